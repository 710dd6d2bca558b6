"""Builds Kafka record batches as bytes, for tests and examples: of all formats.

It does not use the decoder. It writes batches as the protocol guide specifies them. Callers can set each field to any
value, so that tests can also build batches that a broker should never send.

    build_batch([b"a", b"b"])                                     two values at offsets 0 and 1
    build_batch([(b"key", b"value")], base_offset=7, codec="zstd")
    build_batch([Rec(b"v", headers=[("h", b"x")], offset=9)], base_offset=5)
    control_batch("abort", 12, producer_id=4)
    commit_marker(12, 4), abort_marker(13, 5)                     markers that end transactions (offset, producer id)
    empty_batch(20, 25)                                           a batch whose records were all compacted
    build_message_set([b"a", b"b"], magic=1)                      two messages of the format before Kafka 0.11
    build_message_set([b"a", b"b"], magic=1, base_offset=7, codec="gzip")   one wrapper at offset 8, with two messages
    build_message(b"a", offset=3, crc=1)                          one message with a wrong checksum
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

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


def build_message(
    value: bytes | None,
    key: bytes | None = None,
    *,
    offset: int = 0,
    timestamp: int = 0,
    magic: int = 1,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """Returns one message. `value` is not compressed, even if `attributes` name a codec.

    `timestamp` is in ms, and is not written in format 0. `crc` is computed if None.
    """
    body = struct.pack(">bB", magic, attributes & 0xFF)
    if magic > 0:
        body += struct.pack(">q", timestamp)
    body += _sized(key) + _sized(value)
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, checksum) + body


def build_message_set(
    records: Iterable[RecordLike],
    *,
    magic: int = 1,
    base_offset: int = 0,
    codec: str = "none",
    timestamp: int = 0,
    log_append_time: bool = False,
    wrapper_offset: int | None = None,
    wrapper_timestamp: int | None = None,
    snappy_framing: str = "xerial",
    lz4_header: str = "right",
) -> bytes:
    """Returns a sequence of messages or, with a codec, one wrapper that contains them.

    Inside a wrapper, offsets are relative to `base_offset` in format 1 and absolute in format 0.

    `records`: each one is a `Rec`, a value (bytes or None), or a pair (key, value). These formats have no headers.
    `timestamp`: the default of the records' timestamps in ms.
    `wrapper_offset`: the offset of the wrapper; None: that of the last record.
    `wrapper_timestamp`: the timestamp of the wrapper in ms; None: the maximum of its records' timestamps.
    `lz4_header`: "right", or "historical" for the wrong header checksum of `historical_lz4`.
    """
    listed = _placed(records, base_offset, timestamp)
    flags = LOG_APPEND_TIME if log_append_time and magic > 0 else 0
    if codec == "none":
        return b"".join(_message(record, record.offset or 0, magic, flags) for record in listed)
    relative_to = base_offset if magic > 0 else 0
    inner = b"".join(_message(record, (record.offset or 0) - relative_to, magic, 0) for record in listed)
    last = (listed[-1].offset or 0) if listed else base_offset
    newest = max((record.timestamp or 0 for record in listed), default=-1)
    packed = compress(codec, inner, snappy_framing=snappy_framing)
    return build_message(
        historical_lz4(packed) if codec == "lz4" and lz4_header == "historical" else packed,
        offset=last if wrapper_offset is None else wrapper_offset,
        timestamp=newest if wrapper_timestamp is None else wrapper_timestamp,
        magic=magic,
        attributes=flags | CODECS[codec],
    )


def historical_lz4(frame: bytes) -> bytes:
    """Returns an lz4 frame with its header checksum replaced by that of Kafka's old clients.

    For format 0, these clients by mistake included the magic number of the lz4 frame in the checksum.
    """
    from kconsumer._internal.compression import xxh32

    at = 6 + 8 * (frame[4] >> 3 & 1)
    return frame[:at] + bytes([xxh32(frame[:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def _placed(records: Iterable[RecordLike], base: int, timestamp: int) -> list[Rec]:
    """Returns the records, with missing offsets and timestamps filled in."""
    placed: list[Rec] = []
    offset = base - 1
    for record in map(as_record, records):
        offset = offset + 1 if record.offset is None else record.offset
        at = timestamp if record.timestamp is None else record.timestamp
        placed.append(record._replace(offset=offset, timestamp=at))
    return placed


def _message(record: Rec, offset: int, magic: int, flags: int) -> bytes:
    return build_message(
        record.value,
        record.key,
        offset=offset,
        timestamp=record.timestamp or 0,
        magic=magic,
        attributes=flags | record.attributes,
    )


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
