"""Builds message sets of the formats before Kafka 0.11 (magic 0 and 1) as bytes, for tests.

It does not use the decoder. `kconsumer.testing.batches` exports both builders together with those for format 2.

    build_message_set([b"a", (b"key", b"b")], magic=1)                      two messages at offsets 0 and 1
    build_message_set([b"a", b"b"], magic=1, base_offset=7, codec="gzip")   one wrapper at offset 8, with two messages
    build_message(b"a", offset=3, crc=1)                                    one message with a wrong checksum
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from kconsumer.testing.records import CODECS, Rec, RecordLike, as_record, compress

LOG_APPEND_TIME = 0x08


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
