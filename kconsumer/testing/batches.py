"""Builds Kafka record batches as bytes, for tests and examples: format 2 here, formats 0 and 1 in `message_sets`.

It does not use the decoder. It writes batches as the protocol guide specifies them. Callers can set each field to any
value, so that tests can also build batches that a broker should never send.

    build_batch([b"a", b"b"])                                     two values at offsets 0 and 1
    build_batch([(b"key", b"value")], base_offset=7, codec="zstd")
    build_batch([Rec(b"v", headers=[("h", b"x")], offset=9)], base_offset=5)
    control_batch("abort", 12, producer_id=4)
    commit_marker(12, 4), abort_marker(13, 5)                     markers that end transactions (offset, producer id)
    empty_batch(20, 25)                                           a batch whose records were all compacted
    build_message_set([b"a", b"b"], magic=1, codec="gzip")        the format before Kafka 0.11
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kconsumer.testing.message_sets import build_message as build_message
from kconsumer.testing.message_sets import build_message_set as build_message_set
from kconsumer.testing.records import CODECS as CODECS
from kconsumer.testing.records import Rec as Rec
from kconsumer.testing.records import RecordLike as RecordLike
from kconsumer.testing.records import as_record
from kconsumer.testing.records import compress as compress

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

CONTROL_TYPES = {"abort": 0, "commit": 1, "leader_change": 2}

# The header fields before and after the CRC. The CRC covers all bytes from the attributes on. The broker may change the
# fields before the CRC.
_BEFORE_CRC = struct.Struct(">qiib")
_AFTER_CRC = struct.Struct(">hiqqqhii")


def build_batch(
    records: Iterable[RecordLike],
    *,
    base_offset: int = 0,
    codec: str = "none",
    timestamp: int = 0,
    max_timestamp: int | None = None,
    log_append_time: bool = False,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    attributes: int = 0,
    snappy_framing: str = "xerial",
    crc: int | None = None,
) -> bytes:
    """Returns a batch of format 2.

    `records`: each one is a `Rec`, a value (bytes or None), or a pair (key, value).
    `timestamp`: the base timestamp in ms, and the default of the records' timestamps.
    `attributes`: additional attribute bits, besides those that the other arguments set.
    `last_offset_delta`, `max_timestamp`, `record_count`, `crc`: computed from the records if None.
    `snappy_framing`: "xerial" (as Java writes) or "raw".
    """
    encoded, last_offset, newest = _encode_records(records, base_offset, timestamp)
    flags = attributes | CODECS[codec]
    flags |= LOG_APPEND_TIME if log_append_time else 0
    flags |= TRANSACTIONAL if transactional else 0
    flags |= CONTROL if control else 0
    flags |= DELETE_HORIZON if delete_horizon else 0
    return frame_batch(
        compress(codec, b"".join(encoded), snappy_framing=snappy_framing),
        base_offset=base_offset,
        attributes=flags,
        last_offset_delta=max(0, last_offset - base_offset) if last_offset_delta is None else last_offset_delta,
        base_timestamp=timestamp,
        max_timestamp=newest if max_timestamp is None else max_timestamp,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(encoded) if record_count is None else record_count,
        crc=crc,
    )


def control_batch(
    kind: str | int,
    offset: int,
    *,
    producer_id: int = 0,
    producer_epoch: int = 0,
    leader_epoch: int = -1,
    timestamp: int = 0,
) -> bytes:
    """Returns a control batch: a batch with one record, whose key contains a type.

    `kind`: the type, as a key of CONTROL_TYPES or as a number. "abort" and "commit" are the markers of transactions.
    """
    number = CONTROL_TYPES[kind] if isinstance(kind, str) else kind
    marker = Rec(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, number))
    return build_batch(
        [marker],
        base_offset=offset,
        timestamp=timestamp,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def abort_marker(offset: int, producer_id: int, **fields: int) -> bytes:
    """Returns the marker that ends an aborted transaction; `fields` as in `control_batch`."""
    return control_batch("abort", offset, producer_id=producer_id, **fields)


def commit_marker(offset: int, producer_id: int, **fields: int) -> bytes:
    """Returns the marker that ends a committed transaction; `fields` as in `control_batch`."""
    return control_batch("commit", offset, producer_id=producer_id, **fields)


def empty_batch(base_offset: int, last_offset: int, *, leader_epoch: int = -1, producer_id: int = -1) -> bytes:
    """Returns a batch whose records were all compacted. It has no records, but keeps its first and last offset."""
    return build_batch(
        [],
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        max_timestamp=-1,
    )


def frame_batch(
    body: bytes,
    *,
    base_offset: int = 0,
    attributes: int = 0,
    last_offset_delta: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    record_count: int = 1,
    magic: int = 2,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """Returns the 61-byte header with these fields, followed by `body`.

    Nothing is checked, so that tests can build malformed batches. `crc` and `length` are computed if None.
    """
    after = _AFTER_CRC.pack(
        _int16(attributes),
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    covered = after + body
    size = _BEFORE_CRC.size - 12 + 4 + len(covered) if length is None else length
    before = _BEFORE_CRC.pack(base_offset, size, leader_epoch, magic)
    return before + struct.pack(">I", _crc32c(covered) if crc is None else crc) + covered


def encode_record(record: Rec, *, offset_delta: int = 0, timestamp_delta: int = 0) -> bytes:
    """Returns one encoded record of format 2, including its length prefix."""
    body = bytearray(struct.pack("b", record.attributes))
    body += encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += _nullable(record.key) + _nullable(record.value)
    body += encode_varint(len(record.headers))
    for key, value in record.headers:
        name = key.encode() if isinstance(key, str) else key
        body += encode_varint(len(name)) + name + _nullable(value)
    return encode_varint(len(body)) + bytes(body)


def encode_varint(value: int) -> bytes:
    """Returns an int of up to 64 bits as a zigzag-encoded varint or varlong."""
    left = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _encode_records(records: Iterable[RecordLike], base: int, timestamp: int) -> tuple[list[bytes], int, int]:
    """Returns the encoded records, the last offset, and the maximum timestamp.

    Without records, the last offset is `base` - 1 and the maximum timestamp is -1.
    """
    encoded: list[bytes] = []
    offset, newest = base - 1, -1
    for record in map(as_record, records):
        offset = offset + 1 if record.offset is None else record.offset
        at = timestamp if record.timestamp is None else record.timestamp
        newest = max(newest, at)
        encoded.append(encode_record(record, offset_delta=offset - base, timestamp_delta=at - timestamp))
    return encoded, offset, newest


def _nullable(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _int16(value: int) -> int:
    return value - 0x10000 if value > 0x7FFF else value


def _crc32c(data: bytes) -> int:
    import crc32c

    return crc32c.crc32c(data)
