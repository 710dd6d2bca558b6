"""How each kind of value is encoded, and what happens with bytes and values that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._core.codec import (
    decode,
    decode_request,
    decode_response,
    encode,
    encode_request,
    encode_response,
)
from kconsumer._core.wire import Slice
from kconsumer.errors import ProtocolError
from kconsumer.schema import APIS
from kconsumer.schema.classic_group import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from kconsumer.schema.dsl import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    F,
    Message,
    array,
    plan,
)
from kconsumer.schema.fetch import FETCH, FetchableTopicResponse, FetchPartitionData, FetchResponse
from kconsumer.schema.metadata import API_VERSIONS, METADATA, ApiVersionsResponse, MetadataRequest
from kconsumer.schema.sasl import SASL_HANDSHAKE, SaslHandshakeRequest


class Point(Message):
    x: int = F(INT8)
    y: int = F(INT8)


ID = bytes(range(16))

# kind, value, bytes without and with compact lengths
LAYOUTS: list[tuple[Any, Any, bytes, bytes]] = [
    (BOOL, True, b"\x01", b"\x01"),
    (BOOL, False, b"\x00", b"\x00"),
    (INT8, -2, b"\xfe", b"\xfe"),
    (INT16, 258, b"\x01\x02", b"\x01\x02"),
    (INT32, -1, b"\xff\xff\xff\xff", b"\xff\xff\xff\xff"),
    (INT64, 2**40, b"\x00\x00\x01\x00\x00\x00\x00\x00", b"\x00\x00\x01\x00\x00\x00\x00\x00"),
    (UUID, ID, ID, ID),
    (STRING, "", b"\x00\x00", b"\x01"),
    (STRING, "é", b"\x00\x02\xc3\xa9", b"\x03\xc3\xa9"),
    (STRING, None, b"\xff\xff", b"\x00"),
    (BYTES, b"ab", b"\x00\x00\x00\x02ab", b"\x03ab"),
    (BYTES, None, b"\xff\xff\xff\xff", b"\x00"),
    (RECORDS, b"ab", b"\x00\x00\x00\x02ab", b"\x03ab"),
    (RECORDS, None, b"\xff\xff\xff\xff", b"\x00"),
    (array(INT16), [1, 2], b"\x00\x00\x00\x02\x00\x01\x00\x02", b"\x03\x00\x01\x00\x02"),
    (array(INT16), [], b"\x00\x00\x00\x00", b"\x01"),
    (array(INT16), None, b"\xff\xff\xff\xff", b"\x00"),
    (array(STRING), ["a"], b"\x00\x00\x00\x01\x00\x01a", b"\x02\x02a"),
    (array(Point), [Point(x=1, y=2)], b"\x00\x00\x00\x01\x01\x02", b"\x02\x01\x02\x00"),
    (Point, Point(x=1, y=2), b"\x01\x01\x02", b"\x01\x01\x02\x00"),
    (Point, None, b"\xff", b"\xff"),
]


def one_field(kind: Any, *, null: str = "0+", **more: Any) -> type[Message]:
    """A struct with one field."""

    class One(Message):
        value: Any = F(kind, null=null, **more)

    return One


@pytest.mark.parametrize(("kind", "value", "plain", "compact"), LAYOUTS)
def test_layout(kind: Any, value: Any, plain: bytes, compact: bytes) -> None:
    """Each kind of value has the expected bytes, in versions with and without compact lengths."""
    cls = one_field(kind)
    message = cls(value=value)
    assert plain == encode(plan(cls, 0, False), message)
    assert compact + b"\x00" == encode(plan(cls, 0, True), message)
    assert message == decode(plan(cls, 0, False), plain)
    assert message == decode(plan(cls, 0, True), compact + b"\x00")


def test_long_compact_length() -> None:
    """A compact length takes as many bytes as it needs."""
    cls = one_field(BYTES)
    wire = b"\xc9\x01" + bytes(200) + b"\x00"
    assert wire == encode(plan(cls, 0, True), cls(value=bytes(200)))
    assert bytes(200) == decode(plan(cls, 0, True), wire).value


def test_records_are_not_copied() -> None:
    """Records are returned as a view that keeps the frame alive; all other values are copies."""
    cls = one_field(RECORDS)
    frame = bytearray(b"\x00\x00\x00\x02ab")
    records = decode(plan(cls, 0, False), frame).value
    assert isinstance(records, Slice)
    frame[4] = ord("x")
    assert b"xb" == bytes(records)
    assert b"\x00\x00\x00\x02xb" == encode(plan(cls, 0, False), cls(value=records))


# --- tagged fields ------------------------------------------------------------------------------------------


class Tagged(Message):
    second: int = F(INT16, tag=1)
    first: str | None = F(STRING, null="0+", tag=0, default=None)
    third: list[int] = F(array(INT8), tag=2)
    fourth: Point | None = F(Point, tag=3)


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (Tagged(), b"\x00"),
        (Tagged(second=0, first=None, third=[]), b"\x00"),
        (Tagged(second=5, first="a"), b"\x02\x00\x02\x02a\x01\x02\x00\x05"),
        (Tagged(third=[7]), b"\x01\x02\x02\x02\x07"),
        (Tagged(fourth=Point(x=1, y=2)), b"\x01\x03\x03\x01\x02\x00"),
    ],
)
def test_tagged_fields(message: Message, wire: bytes) -> None:
    """Tagged fields are written last, by ascending tag, and only if they differ from their default."""
    assert wire == encode(plan(Tagged, 0, True), message)
    assert message == decode(plan(Tagged, 0, True), wire)


def test_unknown_tags_are_skipped() -> None:
    """A newer broker may send tags that this client does not know."""
    wire = b"\x03\x01\x02\x00\x05\x07\x03abc\x91\x01\x00"
    assert Tagged(second=5) == decode(plan(Tagged, 0, True), wire)


def test_tagged_fields_are_not_in_older_versions() -> None:
    """A tag is unknown in a version that did not have its field yet."""

    class Later(Message):
        value: int = F(INT8, "1+", tag=0)

    assert 0 == decode(plan(Later, 0, True), b"\x01\x00\x01\x09").value
    assert 9 == decode(plan(Later, 1, True), b"\x01\x00\x01\x09").value


# --- fields of other versions -------------------------------------------------------------------------------


def test_absent_fields() -> None:
    """A field that the version does not have is not written and is read as its default; each list is a new one."""

    class Old(Message):
        kept: int = F(INT8)
        new: int = F(INT8, "1+", default=-1)
        items: list[int] = F(array(INT8), "1+")

    assert b"\x05" == encode(plan(Old, 0, False), Old(kept=5, new=6, items=[1]))
    one, other = decode(plan(Old, 0, False), b"\x05"), decode(plan(Old, 0, False), b"\x05")
    assert Old(kept=5) == one
    assert one.items is not other.items


# --- bytes that do not parse --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "flexible", "wire", "reason"),
    [
        (INT32, False, b"\x00\x00\x00", "end here"),
        (BOOL, False, b"", "end here"),
        (UUID, False, bytes(15), "end here"),
        (STRING, False, b"\x00", "end here"),
        (STRING, False, b"\x00\x02a", "2 bytes announced, 1 left"),
        (STRING, False, b"\xff\xfe", "length of -2"),
        (STRING, False, b"\xff\xff", "null"),
        (STRING, False, b"\x00\x01\xff", "UTF-8"),
        (STRING, True, b"\x00\x00", "null"),
        (STRING, True, b"\x80", "end within a length"),
        (STRING, True, b"\xff\xff\xff\xff\x0f", "4294967294 bytes announced"),
        (BYTES, False, b"\x7f\xff\xff\xff", "2147483647 bytes announced, 0 left"),
        (RECORDS, False, b"\x00\x00\x00\x05abc", "5 bytes announced, 3 left"),
        (array(INT32), False, b"\x7f\xff\xff\xff", "2147483647 elements announced"),
        (array(INT32), False, b"\x00\x00\x00\x02" + bytes(7), "2 elements announced, 7 bytes left"),
        (array(Point), False, b"\x00\x00\x00\x02\x00\x00\x00", "2 elements announced"),
        (array(STRING), True, b"\xff\xff\xff\xff\x0f", "4294967294 elements announced"),
        (Point, True, b"\x01\x02", "end within the number of tagged"),
        (INT8, True, b"\x01\x01", "end within a tagged field"),
        (INT8, True, b"\x01\x01\x05\x03a", "tag 5 of 3 bytes, 1 left"),
        (INT8, False, b"\x01\x02", "1 bytes after the message"),
    ],
)
def test_malformed(kind: Any, flexible: bool, wire: bytes, reason: str) -> None:
    """Bytes that do not parse raise a ProtocolError that describes the problem."""
    cls = one_field(kind, null="")
    with pytest.raises(ProtocolError, match=reason):
        decode(plan(cls, 0, flexible), wire)


def test_malformed_says_where() -> None:
    """The error names the struct, the field and the byte."""

    class Where(Message):
        one: int = F(INT32)
        items: list[Point] = F(array(Point))

    with pytest.raises(ProtocolError, match=r"Where\.items at byte 8 of 9: 1 elements announced"):
        decode(plan(Where, 0, False), bytes(7) + b"\x01\x05")


def test_tag_of_the_wrong_size() -> None:
    """A tagged field that is longer or shorter than its size says is malformed."""
    with pytest.raises(ProtocolError, match=r"Tagged\.second at .*: 1 bytes too many in tag 1"):
        decode(plan(Tagged, 0, True), b"\x01\x01\x03\x00\x05\x00")
    with pytest.raises(ProtocolError, match=r"Tagged\.second at .*: the bytes end here"):
        decode(plan(Tagged, 0, True), b"\x01\x01\x01\x00\x05\x00")


def test_trailing_bytes() -> None:
    """Bytes after the message are an error, unless the caller expects them."""
    cls = one_field(INT8)
    assert 1 == decode(plan(cls, 0, False), b"\x01\x02", allow_trailing=True).value
    assert 2 == decode(plan(cls, 0, False), b"\x01\x02", 1).value
    with pytest.raises(ValueError, match="offset 3"):
        decode(plan(cls, 0, False), b"\x01\x02", 3)


def test_announced_elements_take_no_memory() -> None:
    """A frame cannot make the client allocate for elements that it does not hold."""
    body = bytes(4) + b"\x00\x00" + bytes(4) + b"\x7f\xff\xff\xff" + bytes(1000)
    with pytest.raises(ProtocolError, match="2147483647 elements"):
        decode_response(FETCH, 7, b"\x00\x00\x00\x01" + body)


# --- values that do not fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (INT8, 128, OverflowError),
        (INT16, -(2**15) - 1, OverflowError),
        (INT32, 2**31, OverflowError),
        (INT64, 2**63, OverflowError),
        (INT32, "1", TypeError),
        (INT32, 1.5, TypeError),
        (INT32, None, TypeError),
        (STRING, b"a", TypeError),
        (STRING, None, TypeError),
        (STRING, "x" * 32768, ValueError),
        (STRING, "\ud800", ValueError),
        (BYTES, "a", TypeError),
        (BYTES, None, TypeError),
        (UUID, b"short", ValueError),
        (UUID, None, ValueError),
        (array(INT8), 5, TypeError),
        (array(INT8), b"ab", TypeError),
        (array(INT8), None, TypeError),
        (array(INT8), [1, 300], OverflowError),
        (array(Point), [5], TypeError),
        (Point, Tagged(), TypeError),
        (Point, None, TypeError),
    ],
)
def test_values_that_do_not_fit(kind: Any, value: Any, error: type[Exception]) -> None:
    """A value that cannot be encoded raises an error that names the field."""
    cls = one_field(kind, null="")
    for flexible in (False, True):
        with pytest.raises(error) as raised:
            encode(plan(cls, 0, flexible), cls(value=value))
        assert "in One.value" in raised.value.__notes__


def test_any_sequence_is_an_array() -> None:
    """Arrays are written from lists, tuples and other iterables."""
    cls = one_field(array(INT8))
    for value in ([1, 2], (1, 2), range(1, 3), dict.fromkeys([1, 2])):
        assert b"\x00\x00\x00\x02\x01\x02" == encode(plan(cls, 0, False), cls(value=value))


def test_any_buffer_is_bytes() -> None:
    """Any object that supports the buffer protocol is written as bytes."""
    cls = one_field(BYTES)
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab"), Slice(b"ab")):
        assert b"\x00\x00\x00\x02ab" == encode(plan(cls, 0, False), cls(value=value))


def test_message_of_another_class() -> None:
    """A plan refuses to write messages of another class."""
    with pytest.raises(TypeError, match="a Tagged is expected, not Point"):
        encode(plan(Tagged, 0, True), Point())


def test_deleted_field() -> None:
    """Writing a message with a deleted field raises an error and does not crash."""
    message = Point()
    del message.x
    with pytest.raises(TypeError, match=r"Point\.x has no value"):
        encode(plan(Point, 0, False), message)


@pytest.mark.parametrize(
    "wrong",
    [
        (Point, False, ("z", "int8", None, False, -1, 0, None)),
        (Point, False, ("__init__", "int8", None, False, -1, 0, None)),
        (Point, False, ("x", "struct", None, False, -1, 0, None)),
        (int, False, ("real", "int8", None, False, -1, 0, None)),
    ],
)
def test_plans_are_checked(wrong: Any) -> None:
    """A tuple that is not a plan for its class is refused before any memory is accessed."""
    with pytest.raises(TypeError):
        decode(wrong, b"\x00\x00")


# --- requests and responses ---------------------------------------------------------------------------------


def test_request_frame() -> None:
    """A request frame contains the size, header v1 or v2, and the message."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (
        b"\x00\x00\x00\x17"
        b"\x00\x0c\x00\x00\x00\x00\x00\x07\x00\x03cli"
        b"\x00\x01g\x00\x00\x00\x01\x00\x01m" == encode_request(HEARTBEAT, 0, 7, "cli", request)
    )
    assert (
        b"\x00\x00\x00\x15"
        b"\x00\x0c\x00\x04\x00\x00\x00\x07\xff\xff\x00"
        b"\x02g\x00\x00\x00\x01\x02m\x00\x00" == encode_request(HEARTBEAT, 4, 7, None, request)
    )


def test_response_frame() -> None:
    """A response header has tagged fields if the message is flexible; unknown ones are skipped."""
    assert (7, HeartbeatResponse(error_code=27)) == decode_response(HEARTBEAT, 0, b"\x00\x00\x00\x07\x00\x1b")
    flexible = b"\x00\x00\x00\x07" + b"\x01\x05\x01x" + b"\x00\x00\x00\x09\x00\x1b\x00"
    expected = HeartbeatResponse(throttle_time_ms=9, error_code=27)
    assert (7, expected) == decode_response(HEARTBEAT, 4, flexible)


def test_api_versions_response_has_a_plain_header() -> None:
    """ApiVersions responses keep header v0 in flexible versions."""
    wire = b"\x00\x00\x00\x01" + b"\x00\x00\x01\x00\x00\x00\x00\x00"
    assert (1, ApiVersionsResponse()) == decode_response(API_VERSIONS, 3, wire)


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x00\x1b\x00"])
def test_malformed_response(frame: bytes) -> None:
    """A response that ends early or late is a ProtocolError."""
    with pytest.raises(ProtocolError):
        decode_response(HEARTBEAT, 0, frame)


def test_unknown_version() -> None:
    """An error that names the version is raised for versions outside the tables."""
    with pytest.raises(ValueError, match="Heartbeat v5"):
        encode_request(HEARTBEAT, 5, 1, None, HeartbeatRequest())
    with pytest.raises(ValueError, match="Fetch v3"):
        decode_response(FETCH, 3, b"")


@pytest.mark.parametrize(
    ("api", "version", "message"),
    [
        (METADATA, 12, MetadataRequest(topics=None)),
        (METADATA, 1, MetadataRequest(topics=None)),
        (SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
    ],
)
@pytest.mark.parametrize("client_id", ["cli", "", None])
def test_broker_side(api: Any, version: int, message: Message, client_id: str | None) -> None:
    """A fake broker reads what the client wrote, and the client reads the fake broker's response."""
    frame = encode_request(api, version, 42, client_id, message)
    assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
    assert (api, version, 42, client_id, message) == decode_request(APIS, frame[4:])
    response = encode_response(api, version, 42, api.response())
    assert len(response) - 4 == int.from_bytes(response[:4], "big")
    assert (42, api.response()) == decode_response(api, version, response[4:])


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x0c",
        b"\x03\xe7\x00\x00",
        b"\x00\x0c\x00\x63",
        b"\x00\x0c\x00\x00\x00",
        b"\x00\x0c\x00\x00" + bytes(5),
    ],
)
def test_malformed_request(frame: bytes) -> None:
    """A fake broker refuses requests that it cannot read."""
    with pytest.raises(ProtocolError):
        decode_request(APIS, frame)


def test_oversized_client_id() -> None:
    """A client id must fit its two-byte length."""
    with pytest.raises(ValueError, match="32768"):
        encode_request(HEARTBEAT, 0, 1, "x" * 32768, HeartbeatRequest())


def test_no_leaks_between_frames() -> None:
    """A decoded message does not keep its frame alive, unless it has records."""
    wire = encode_response(
        FETCH,
        12,
        1,
        FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[FetchPartitionData(records=b"abc")])]),
    )[4:]
    source = bytearray(wire)
    _, message = decode_response(FETCH, 12, source)
    with pytest.raises(BufferError):
        source.append(0)
    message.responses[0].partitions[0].records = None
    source.append(0)


def test_sequence_that_changes() -> None:
    """An error is raised if a list shrinks while it is written, because code of one of its values removed elements."""
    items: list[Any] = []

    class Sly:
        def __index__(self) -> int:
            items.clear()
            return 1

    items += [Sly(), Sly(), Sly()]
    cls = one_field(array(INT8))
    with pytest.raises(ValueError, match="changed"):
        encode(plan(cls, 0, False), cls(value=items))
