"""Message formats 0 and 1: which records they give, how offsets and times are determined, and what is refused."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import lz4.frame
import pytest

from kconsumer._core.decode import PartitionFetch
from kconsumer._internal.compression import with_correct_lz4_checksum, xxh32
from kconsumer.decode import decode_batches
from kconsumer.errors import CorruptRecordError
from kconsumer.testing.batches import build_batch, build_message, build_message_set
from kconsumer.types import TimestampType, TopicPartition

TP = TopicPartition("old", 1)

LITERAL_V0 = bytes.fromhex(
    "0000000000000005"  # offset 5
    "00000012"  # size: 18 bytes follow
    "cfd56dd7"  # crc32 of all that follows
    "00 00"  # magic, attributes
    "00000001 6b"  # key "k"
    "00000003 763100"  # value "v1\0"
)
LITERAL_V1 = bytes.fromhex(
    "0000000000000006"  # offset 6
    "00000017"  # size: 23 bytes follow
    "55e5010e"  # crc32
    "01 08"  # magic, attributes: log append time
    "0000018bcfe56800"  # timestamp 1700000000000
    "ffffffff"  # null key
    "00000001 61"  # value "a"
)


def rows(data: bytes, **options: Any) -> list[tuple[int, int, bytes | None]]:
    """Return offset, timestamp and value of each record of `decode_batches`."""
    return [(record.offset, record.timestamp, record.value) for record in decode_batches(data, **options)]


def test_literal_bytes() -> None:
    """The layouts are those of the protocol guide, and the builders write the same bytes."""
    first, second = decode_batches(LITERAL_V0 + LITERAL_V1, topic="old", partition=1)
    assert (5, -1, TimestampType.NO_TIMESTAMP, b"k", b"v1\0") == (
        first.offset,
        first.timestamp,
        first.timestamp_type,
        first.key,
        first.value,
    )
    assert (6, 1_700_000_000_000, TimestampType.LOG_APPEND_TIME, None, b"a") == (
        second.offset,
        second.timestamp,
        second.timestamp_type,
        second.key,
        second.value,
    )
    assert ((), None, 1, 3, TP) == (
        first.headers,
        first.leader_epoch,
        first.serialized_key_size,
        first.serialized_value_size,
        first.topic_partition,
    )
    assert LITERAL_V0 == build_message(b"v1\0", b"k", offset=5, magic=0)
    assert LITERAL_V1 == build_message(b"a", offset=6, timestamp=1_700_000_000_000, attributes=8)


def test_create_time_of_a_wrapper_overrides_what_is_inside() -> None:
    """With create time, messages in a wrapper have the wrapper's timestamp type and their own timestamps."""
    inner = build_message(b"a", timestamp=3, attributes=8)
    (record,) = decode_batches(build_message(gzip.compress(inner), offset=4, timestamp=9, attributes=1))
    assert (4, 3, TimestampType.CREATE_TIME) == (record.offset, record.timestamp, record.timestamp_type)


def test_attribute_bits_that_mean_nothing() -> None:
    """Unused attribute bits are ignored: the timestamp type in format 0, and the high bits in both formats."""
    (record,) = decode_batches(build_message(b"a", magic=0, attributes=0xF8))
    assert (-1, TimestampType.NO_TIMESTAMP) == (record.timestamp, record.timestamp_type)


def test_negative_lengths_are_null_and_trailing_bytes_nothing() -> None:
    """As in Java, any negative length is read as null, and bytes after the value are ignored."""
    body = struct.pack(">bBqiii", 1, 0, 77, -5, -(2**31), 12345)
    data = struct.pack(">qiI", 3, len(body) + 4, 0) + body
    (record,) = decode_batches(data, check_crcs=False)
    assert (3, 77, None, None) == (record.offset, record.timestamp, record.key, record.value)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_checksums_of_messages(codec: str) -> None:
    """The checksums of messages in a wrapper are checked and that of the wrapper is not; earlier records are returned
    before the error.
    """
    good, bad = build_message(b"a", offset=0), build_message(b"b", offset=1, crc=1)
    data = good + bad
    if codec == "gzip":
        data = build_message(gzip.compress(data), offset=1, attributes=1, crc=0)
    fetch = PartitionFetch(TP, data, 0)
    assert [b"a"] == [record.value for record in fetch.take(10)]
    with pytest.raises(CorruptRecordError, match="old-1 at offset 1: the checksum"):
        fetch.take(10)
    assert [b"b"] == [record.value for record in PartitionFetch(TP, data, 1, check_crcs=False).take(10)]
    assert 0 == len(PartitionFetch(TP, data, 2).take(10))  # its records are not returned, so it is not checked


def test_lz4_headers_of_format_1_are_checked() -> None:
    """From format 1 on a wrong header checksum is an error."""
    with pytest.raises(CorruptRecordError, match="lz4"):
        decode_batches(build_message_set([b"a"], magic=1, codec="lz4", lz4_header="historical"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)],
)
def test_xxh32_of_short_data(data: bytes, expected: int) -> None:
    """The checksums of short data equal published values."""
    assert expected == xxh32(data)


@pytest.mark.parametrize("store_size", [True, False])
def test_a_right_lz4_header_stays_as_it_is(store_size: bool) -> None:
    """The checksum written to a frame's header is that of the lz4 library, for short and long headers."""
    frame = lz4.frame.compress(b"a" * 1000, store_size=store_size)
    at = 14 if store_size else 6
    assert frame == with_correct_lz4_checksum(frame[:at] + b"?" + frame[at + 1 :])


def inside(inner: bytes, magic: int = 1, offset: int = 9) -> bytes:
    return build_message(gzip.compress(inner), magic=magic, offset=offset, attributes=1)


CORRUPT = {
    "size below format 1's least": build_message(b"")[:8] + struct.pack(">i", 21) + build_message(b"")[12:],
    "key longer than the message": build_message(b"")[:26] + struct.pack(">i", 5) + build_message(b"")[30:],
    "value longer than the message": build_message(b"")[:30] + struct.pack(">i", 1) + b"",
    "negative offset": build_message(b"a", offset=-1),
    "offset beyond 63 bits": build_message(b"a", offset=2**63 - 1),
    "no value in a wrapper": build_message(None, attributes=1),
    "empty value in a wrapper": build_message(b"", attributes=1),
    "nothing in a wrapper": inside(b""),
    "a partial message in a wrapper": inside(build_message(b"a")[:-1]),
    "size too small in a wrapper": inside(build_message(b"a")[:8] + struct.pack(">i", 13) + bytes(30)),
    "format 0 in 1": inside(build_message(b"a", magic=0)),
    "format 1 in 0": inside(build_message(b"a", magic=1), magic=0),
    "format 2 in 1": inside(build_batch([b"a"])),
    "format 1 too small in a wrapper": inside(struct.pack(">qiIbB", 0, 15, 0, 1, 0) + bytes(9)),
    "a wrapper in a wrapper": inside(build_message_set([b"a"], codec="gzip")),
    "wrapper before its messages": inside(build_message(b"a", offset=10)),
    "negative offset in a wrapper": inside(build_message(b"a", magic=0, offset=-1), magic=0),
    "zstd in format 0": build_message_set([b"a"], magic=0, codec="zstd"),
    "zstd in format 1": build_message_set([b"a"], magic=1, codec="zstd"),
    "unknown codec": build_message(b"a", attributes=5),
    "not what the codec says": build_message(b"not gzip", attributes=1),
    "lz4 too short for a header": build_message(b"\x04\x22", magic=0, attributes=3),
    "lz4 without the end of its header": build_message(b"\x04\x22\x4d\x18\x60\x40", magic=0, attributes=3),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
@pytest.mark.parametrize("check_crcs", [True, False])
def test_malformed_sets_raise_corrupt_record_error(data: bytes, check_crcs: bool) -> None:
    """Every malformed set raises CorruptRecordError, which names topic, partition and offset."""
    with pytest.raises(CorruptRecordError, match="old-1 at offset") as caught:
        PartitionFetch(TP, data, 0, check_crcs=check_crcs).take(10)
    assert ("old", 1) == (caught.value.topic, caught.value.partition)


def test_thousands_of_messages_in_many_takes() -> None:
    """Thousands of messages are returned without loss, whatever the number of records per take."""
    data = build_message_set([b"%d" % i for i in range(3000)])
    fetch = PartitionFetch(TP, data, 0)
    seen: list[int] = []
    while not fetch.exhausted:
        seen += [record.offset for record in fetch.take(700)]
        assert len(seen) == fetch.next_offset
    assert list(range(3000)) == seen


def test_a_failing_deserializer_takes_the_fetch_back() -> None:
    """After a failure the record that failed is returned next, in a wrapper and between messages."""
    from kconsumer.deserializers import adapt

    for codec in ("none", "lz4"):
        fetch = PartitionFetch(TP, build_message_set([b"1", b"2", b"x", b"4"], codec=codec), 0)
        run = fetch.take(10)
        run.deserialize(None, adapt(int, "value"))
        assert [1, 2] == [record.value for record in run]
        assert [b"x", b"4"] == [record.value for record in fetch.take(10)]
