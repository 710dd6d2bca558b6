"""A slow decoder of v2 record batches, written from the protocol guide: the oracle for the compiled one.

Reads one byte after the other, keeps everything in Python objects, and shares no code with kconsumer. Where the guide
is silent it does what Java's decoder was seen to do (negative lengths are null, five-byte varints of small numbers
are read, additions wrap at 64 bits).
"""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field

CONTROL_BIT, LOG_APPEND_BIT, CODEC_BITS = 0x20, 0x08, 0x07


class Malformed(Exception):
    """The bytes are not what the guide says."""


@dataclass
class Decoded:
    """What came out: records as tuples (offset, timestamp, timestamp type, key, value, headers, leader epoch), where
    the reader goes on, and whether it was stopped by malformed bytes."""

    records: list[tuple[object, ...]] = field(default_factory=list)
    next_offset: int | None = None
    leader_epoch: int | None = None
    malformed: str | None = None


@dataclass
class Reader:
    """Bytes and a position in them."""

    data: bytes
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise Malformed(f"{size} bytes wanted, {self.left} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        """A zigzag number; 5 bytes at most for 32 bits, 10 for 64; what does not fit is cut off."""
        raw = 0
        for i in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                raw &= (1 << bits) - 1
                return (raw >> 1) if raw % 2 == 0 else -(raw >> 1) - 1
        raise Malformed("a varint does not end")

    def nullable(self) -> bytes | None:
        size = self.varint(32)
        return None if size < 0 else self.take(size)


def decode(data: bytes, *, start_offset: int | None = None, check_crcs: bool = True) -> Decoded:
    """Everything that can be read before the first malformed record or batch."""
    out = Decoded(next_offset=start_offset)
    reader = Reader(data)
    floor = start_offset or 0
    try:
        while (batch := _next_batch(reader)) is not None:
            _decode_batch(batch, floor, check_crcs, out)
    except Malformed as error:
        out.malformed = str(error)
    return out


def _next_batch(reader: Reader) -> bytes | None:
    """The bytes of the next batch; None at the end of the data, be it in the middle of a batch."""
    if reader.left < 12:
        return None
    (size,) = struct.unpack_from(">i", reader.data, reader.at + 8)
    if size < 14:
        raise Malformed(f"a batch of {size} bytes")
    if reader.left < 17:
        return None
    magic = struct.unpack_from(">b", reader.data, reader.at + 16)[0]
    if magic not in (0, 1, 2):
        raise Malformed(f"magic {magic}")
    if reader.left < 12 + size:
        return None
    if magic != 2:
        raise Malformed(f"magic {magic} is not read here")
    if size < 49:
        raise Malformed(f"a v2 batch of {size} bytes")
    return reader.take(12 + size)


def _decode_batch(batch: bytes, floor: int, check_crcs: bool, out: Decoded) -> None:
    (base_offset, _, epoch, _, crc) = struct.unpack_from(">qiibI", batch, 0)
    (attributes, last_delta, base_time, max_time, _, _, _, count) = struct.unpack_from(">hiqqqhii", batch, 21)
    if base_offset < 0 or last_delta < 0 or base_offset + last_delta + 1 >= 1 << 63:
        raise Malformed("offsets")
    if check_crcs and crc32c(batch[21:]) != crc:
        raise Malformed("crc")
    if count < 0:
        raise Malformed(f"{count} records")
    leader_epoch = epoch if epoch >= 0 else None
    body = batch[61:]
    codec = attributes & CODEC_BITS
    if codec and body:
        body = decompress(codec, body)
    reader = Reader(body)
    if count == 0 and body:
        raise Malformed("bytes in an empty batch")
    for index in range(count):
        delta, time_delta, key, value, headers = _record(reader, last=index == count - 1)
        offset = _wrap(base_offset + delta)
        if offset < 0 or offset == (1 << 63) - 1:
            raise Malformed(f"record offset {offset}")
        if attributes & CONTROL_BIT or offset < floor:
            continue
        log_append = bool(attributes & LOG_APPEND_BIT)
        time = max_time if log_append else _wrap(base_time + time_delta)
        out.records.append((offset, time, int(log_append), key, value, headers, leader_epoch))
        out.next_offset = max(offset + 1, -1 if out.next_offset is None else out.next_offset)
        out.leader_epoch = leader_epoch
    out.next_offset = max(floor, base_offset + last_delta + 1)
    out.leader_epoch = leader_epoch


def _record(
    reader: Reader, *, last: bool
) -> tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    body = Reader(reader.take(reader.varint(32)))
    body.take(1)
    time_delta, delta = body.varint(64), body.varint(32)
    key, value = body.nullable(), body.nullable()
    count = body.varint(32)
    if count < 0:
        raise Malformed(f"{count} headers")
    headers = []
    for _ in range(count):
        name = body.take(body.varint(32)).decode(errors="replace")
        headers.append((name, body.nullable()))
    if body.left:
        raise Malformed("bytes left in a record")
    if last and reader.left:
        raise Malformed("bytes left after the records")
    return delta, time_delta, key, value, tuple(headers)


def decompress(codec: int, data: bytes) -> bytes:
    """Whole and without limits: not for hostile data."""
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return _unsnappy(data)
    if codec == 3:
        import lz4.frame

        plain: bytes = lz4.frame.decompress(data)
        return plain
    if codec == 4:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    raise Malformed(f"codec {codec}")


def _unsnappy(data: bytes) -> bytes:
    import snappy

    if not data.startswith(b"\x82SNAPPY\x00"):
        raw: bytes = snappy.decompress(data)
        return raw
    reader = Reader(data, 16)
    plain = b""
    while reader.left:
        plain += snappy.decompress(reader.take(struct.unpack(">i", reader.take(4))[0]))
    return plain


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, eight bits at a time from a table."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFF_FFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F6_3B78 if byte & 1 else 0)
    return byte


CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]


def _wrap(value: int) -> int:
    """As a signed 64-bit number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
