"""The batch builder of kconsumer.testing writes what the protocol guide says; the slow decoder reads it."""

from __future__ import annotations

import struct

import pytest

from kconsumer.testing.batches import (
    CODECS,
    Rec,
    build_batch,
    compress,
    control_batch,
    empty_batch,
    encode_record,
    encode_varint,
    frame_batch,
)
from support.oracles import reference


def header(batch: bytes) -> tuple[int, ...]:
    """All header fields but the checksum: base offset, length, epoch, magic, attributes, last delta, times, …"""
    return struct.unpack(">qiib", batch[:17]) + struct.unpack(">hiqqqhii", batch[21:61])


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints(number: int, encoded: str) -> None:
    """Varints are zigzag-encoded, with seven bits per byte and the low bits first."""
    assert encoded == encode_varint(number).hex()
    assert number == reference.Reader(bytes.fromhex(encoded)).varint(64)


def test_one_record() -> None:
    """A record consists of its length, attributes, deltas, key, value and headers."""
    record = Rec(b"v", b"key", [("h", None)])
    expected = bytes.fromhex("1a 00 0a 04 066b6579 0276 02 0268 01")
    assert expected == encode_record(record, offset_delta=2, timestamp_delta=5)


def test_header_fields() -> None:
    """Every argument is written to the header field of its name."""
    batch = build_batch(
        [b"a", Rec(b"b", offset=9, timestamp=130)],
        base_offset=5,
        timestamp=100,
        leader_epoch=3,
        producer_id=1000,
        producer_epoch=2,
        base_sequence=7,
        transactional=True,
    )
    assert (5, len(batch) - 12, 3, 2, 0x10, 4, 100, 130, 1000, 2, 7, 2) == header(batch)
    assert reference.crc32c(batch[21:]) == struct.unpack(">I", batch[17:21])[0]


def test_defaults() -> None:
    """A batch has no producer, epoch or flag by default; the newest timestamp of an empty batch is -1."""
    batch = build_batch([])
    assert (0, 49, -1, 2, 0, 0, 0, -1, -1, -1, -1, 0) == header(batch)


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ({"log_append_time": True}, 0x08),
        ({"transactional": True}, 0x10),
        ({"control": True}, 0x20),
        ({"delete_horizon": True}, 0x40),
        ({"codec": "zstd", "control": True}, 0x24),
        ({"attributes": 0xFF80}, -0x80),
    ],
)
def test_flags(flags: dict[str, object], attributes: int) -> None:
    """Each flag is its bit of the attributes."""
    assert attributes == header(build_batch([b"a"], **flags))[4]  # type: ignore[arg-type]  # a mapping of keywords


@pytest.mark.parametrize("codec", CODECS)
def test_forms_of_records(codec: str) -> None:
    """A record can be given as a value, a null, a pair of key and value, or a Rec with all fields."""
    batch = build_batch([b"v", None, (b"k", b"w"), (None, None), Rec(headers=[(b"\xff", b"")])], codec=codec)
    assert [
        (0, 0, 0, None, b"v", (), None),
        (1, 0, 0, None, None, (), None),
        (2, 0, 0, b"k", b"w", (), None),
        (3, 0, 0, None, None, (), None),
        (4, 0, 0, None, None, (("\ufffd", b""),), None),
    ] == reference.decode(batch).records


@pytest.mark.parametrize(("kind", "number"), [("abort", 0), ("commit", 1), ("leader_change", 2), (77, 77)])
def test_control_batches(kind: str | int, number: int) -> None:
    """A control batch is transactional and has one record, whose key is a version and a type."""
    batch = control_batch(kind, 12, producer_id=4, producer_epoch=1, leader_epoch=2)
    assert (12, 2, 0x30, 0, 4, 1, 1) == tuple(header(batch)[i] for i in (0, 2, 4, 5, 8, 9, 11))
    assert struct.pack(">hh", 0, number) in batch
    decoded = reference.decode(batch)
    assert ([], 13, 2, None) == (decoded.records, decoded.next_offset, decoded.leader_epoch, decoded.malformed)


def test_empty_batches() -> None:
    """An empty batch has no record, but a first and a last offset."""
    decoded = reference.decode(empty_batch(20, 25, leader_epoch=1))
    assert ([], 26, 1, None) == (decoded.records, decoded.next_offset, decoded.leader_epoch, decoded.malformed)


def test_broken_on_purpose() -> None:
    """Checksum, count, length and magic can be set to anything."""
    assert 7 == struct.unpack(">I", build_batch([b"a"], crc=7)[17:21])[0]
    assert 9 == header(build_batch([b"a"], record_count=9))[11]
    assert (-5, 1) == header(frame_batch(b"", length=-5, magic=1))[1:4:2]


def test_unknown_codecs_and_framings() -> None:
    """The error for a misspelt name lists the valid names."""
    with pytest.raises(ValueError, match="zstd"):
        compress("zip", b"")
    with pytest.raises(ValueError, match="xerial"):
        compress("snappy", b"", snappy_framing="hadoop")
