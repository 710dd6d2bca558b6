"""A slow decoder of record batches of all formats, written from the protocol guide: the oracle for the compiled one.

It reads one byte after the other, keeps everything in Python objects, and shares no code with kconsumer. Where the
guide specifies nothing, it follows the observed behaviour of Java's decoder: negative lengths are null, five-byte
varints of small numbers are read, and additions wrap at 64 bits.
"""

from __future__ import annotations

import gzip
import heapq
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

TRANSACTIONAL_BIT, CONTROL_BIT, LOG_APPEND_BIT, CODEC_BITS = 0x10, 0x20, 0x08, 0x07


class Malformed(Exception):
    """The bytes do not follow the protocol guide."""


@dataclass
class Decoded:
    """A result: records as tuples (offset, timestamp, timestamp type, key, value, headers, leader epoch), the position
    after them, and whether malformed bytes ended the decoding."""

    records: list[tuple[object, ...]] = field(default_factory=list)
    next_offset: int | None = None
    leader_epoch: int | None = None
    malformed: str | None = None


@dataclass
class Reader:
    """Reads values from bytes, from a position on."""

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
        """Returns a zigzag number of at most 5 bytes (32 bits) or 10 bytes (64 bits). Other bits are dropped."""
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


@dataclass
class Filter:
    """Read-committed filtering: a heap of the aborted transactions to come, and the producers in one now."""

    to_come: list[tuple[int, int]]
    aborted: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, transactions: Iterable[tuple[int, int]]) -> Filter:
        """Returns a filter for pairs of producer id and first offset."""
        heap = [(first, producer) for producer, first in transactions]
        heapq.heapify(heap)
        return cls(heap)

    def at(self, last_offset: int) -> set[int]:
        """Returns the producers in an aborted transaction in a batch that ends at this offset."""
        while self.to_come and self.to_come[0][0] <= last_offset:
            self.aborted.add(heapq.heappop(self.to_come)[1])
        return self.aborted


def decode(
    data: bytes,
    *,
    start_offset: int | None = None,
    check_crcs: bool = True,
    aborted: Iterable[tuple[int, int]] | None = None,
) -> Decoded:
    """Returns everything before the first malformed record or batch. `aborted`: None reads uncommitted."""
    out = Decoded(next_offset=start_offset)
    reader = Reader(data)
    floor = start_offset or 0
    committed = None if aborted is None else Filter.of(aborted)
    try:
        while (batch := _next_batch(reader)) is not None:
            if batch[16] == 2:
                _decode_batch(batch, floor, check_crcs, out, committed)
            else:
                _decode_message(batch, floor, check_crcs, out)
    except Malformed as error:
        out.malformed = str(error)
    return out


def _next_batch(reader: Reader) -> bytes | None:
    """Returns the bytes of the next batch, or None at the end of the data, even in the middle of a batch."""
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
    if size < {0: 14, 1: 22, 2: 49}[magic]:
        raise Malformed(f"a batch of {size} bytes in format {magic}")
    return reader.take(12 + size)


def _decode_batch(batch: bytes, floor: int, check_crcs: bool, out: Decoded, committed: Filter | None) -> None:
    (base_offset, _, epoch, _, crc) = struct.unpack_from(">qiibI", batch, 0)
    (attributes, last_delta, base_time, max_time, producer, _, _, count) = struct.unpack_from(">hiqqqhii", batch, 21)
    if base_offset < 0 or last_delta < 0 or base_offset + last_delta + 1 >= 1 << 63:
        raise Malformed("offsets")
    if check_crcs and crc32c(batch[21:]) != crc:
        raise Malformed("crc")
    if count < 0:
        raise Malformed(f"{count} records")
    leader_epoch = epoch if epoch >= 0 else None
    if committed is not None and producer >= 0:
        aborted = producer in committed.at(base_offset + last_delta)
        if aborted and attributes & TRANSACTIONAL_BIT and not attributes & CONTROL_BIT:
            out.next_offset = max(floor, base_offset + last_delta + 1)
            out.leader_epoch = leader_epoch
            return
    body = batch[61:]
    codec = attributes & CODEC_BITS
    if codec and body:
        body = decompress(codec, body)
    reader = Reader(body)
    if count == 0 and body:
        raise Malformed("bytes in an empty batch")
    if committed is not None and producer >= 0 and attributes & CONTROL_BIT and count:
        _, _, key, _, _ = _record(Reader(body), last=count == 1)
        if key is None or len(key) < 4 or key[0] > 0x7F:
            raise Malformed("a marker's key")
        if key[2:4] == b"\x00\x00":
            committed.aborted.discard(producer)
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


def _decode_message(data: bytes, floor: int, check_crcs: bool, out: Decoded) -> None:
    """Decode a message of format 0 or 1, or the messages inside it if it is compressed."""
    offset, magic, attributes = struct.unpack_from(">q", data)[0], data[16], data[17]
    if not 0 <= offset < (1 << 63) - 1:
        raise Malformed(f"offset {offset}")
    time, _, value = _message_parts(data)
    if attributes & CODEC_BITS:
        messages = _unwrapped(value, attributes & CODEC_BITS, magic, offset)
    else:
        messages = [(offset, data)]
    for at, message in messages:
        if not 0 <= at < (1 << 63) - 1:
            raise Malformed(f"offset {at}")
        if message is not data and message[17] & CODEC_BITS:
            raise Malformed("a wrapper in a wrapper")
        if at >= floor and check_crcs and zlib.crc32(message[16:]) != struct.unpack_from(">I", message, 12)[0]:
            raise Malformed("crc of a message")
        own_time, key, inner_value = _message_parts(message)
        if at < floor:
            continue
        kind = -1 if magic == 0 else int(bool(attributes & LOG_APPEND_BIT))
        out.records.append((at, time if kind == 1 else own_time, kind, key, inner_value, (), None))
        out.next_offset = max(at + 1, -1 if out.next_offset is None else out.next_offset)
        out.leader_epoch = None
    out.next_offset = max(floor, offset + 1)
    out.leader_epoch = None


def _unwrapped(value: bytes | None, codec: int, magic: int, offset: int) -> list[tuple[int, bytes]]:
    """Returns the messages in a wrapper's value with their absolute offsets."""
    if value is None or codec == 4:
        raise Malformed("no value, or zstd")
    reader = Reader(_with_right_header(value) if codec == 3 and magic == 0 else value)
    reader = Reader(decompress(codec, reader.data))
    messages = []
    while reader.left >= 12:
        inner_offset, size = struct.unpack_from(">qi", reader.data, reader.at)
        if size < 14:
            raise Malformed(f"a message of {size} bytes in a wrapper")
        if reader.left < 12 + size:
            break
        message = reader.take(12 + size)
        if message[16] != magic or (magic == 1 and size < 22):
            raise Malformed("a message of another format in a wrapper")
        messages.append((inner_offset, message))
    if not messages:
        raise Malformed("an empty wrapper")
    last = messages[-1][0]
    if magic == 0 or offset == 0:
        return messages
    if last > offset:
        raise Malformed("a wrapper before its messages")
    return [(_wrap(offset - last + inner_offset), message) for inner_offset, message in messages]


def _with_right_header(frame: bytes) -> bytes:
    """Returns the frame with the header checksum that the library accepts, because in format 0 any is valid.

    Only for frames as Kafka writes them, without content size and dictionary.
    """
    import lz4.frame

    if len(frame) < 7 or frame[4] & 0x09:
        return frame
    for checksum in range(256):
        candidate = frame[:6] + bytes([checksum]) + frame[7:]
        try:
            lz4.frame.get_frame_info(candidate)
        except RuntimeError:
            continue
        return candidate
    return frame


def _message_parts(message: bytes) -> tuple[int, bytes | None, bytes | None]:
    """Returns timestamp (-1 in format 0), key and value."""
    reader = Reader(message, 18)
    time = struct.unpack(">q", reader.take(8))[0] if message[16] == 1 else -1
    parts = []
    for _ in range(2):
        size = struct.unpack(">i", reader.take(4))[0]
        parts.append(None if size < 0 else reader.take(size))
    return time, parts[0], parts[1]


def decompress(codec: int, data: bytes) -> bytes:
    """Decompress everything, without limits; unsafe for hostile data."""
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
    """Returns the CRC-32C, computed byte by byte with a table."""
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
    """Returns the number as a signed 64-bit one."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
