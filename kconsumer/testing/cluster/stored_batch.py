"""Batches as a log stores them: the header fields that a broker uses, and the fields that it rewrites on append.

This module checks only what it needs to find the batches in the bytes. `produce` checks whether a produced batch is
valid.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from kconsumer._core.decode import ConsumerRecord, crc32c
from kconsumer._internal.compression import decompress, output_limit
from kconsumer.decode import decode_batches
from kconsumer.testing.records import CODECS, compress

CODEC_BITS, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
ABORT, COMMIT = 0, 1  # types of control records that end a transaction
NO_TIMESTAMP = -1

_OVERHEAD = 12  # base offset and size, before the counted bytes
_MAGIC_AT = 16
_SMALLEST = {0: 26, 1: 34, 2: 61}  # bytes of the smallest batch, by format
_V2 = struct.Struct(">qiibIhiqqqhii")
_V1 = struct.Struct(">qiIbbq")
CODEC_NAMES = {number: name for name, number in CODECS.items()}


class StoredBatch:
    """One batch of format 2, or one message of format 0 or 1.

    A compressed message of format 0 or 1 contains several messages.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "data",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.magic: int = data[_MAGIC_AT]
        self.attributes: int
        self.leader_epoch = self.producer_id = self.producer_epoch = self.base_sequence = -1
        if self.magic == 2:
            fields = _V2.unpack_from(data)
            self.base_offset, self.leader_epoch, self.attributes = fields[0], fields[2], fields[5]
            self.last_offset: int = self.base_offset + fields[6]
            self.max_timestamp: int = fields[8]
            self.producer_id, self.producer_epoch, self.base_sequence, self.record_count = fields[9:]
        else:
            self._read_message()

    def _read_message(self) -> None:
        """Set the fields from a message of format 0 or 1."""
        last, _, _, _, self.attributes, timestamp = _V1.unpack_from(self.data + bytes(8))
        self.max_timestamp = timestamp if self.magic == 1 else NO_TIMESTAMP
        self.base_offset = self.last_offset = last
        self.record_count = 1
        if self.codec:
            records = list(self.records())
            self.record_count = len(records)
            self.base_offset = records[0].offset if records else self.last_offset

    @property
    def size(self) -> int:
        """The size of the batch in bytes."""
        return len(self.data)

    @property
    def codec(self) -> int:
        """The compression codec; 0 if the batch is not compressed."""
        return self.attributes & CODEC_BITS

    @property
    def transactional(self) -> bool:
        """True if the records, or the marker, belong to a transaction."""
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """True if the batch contains a control record, such as the marker that ends a transaction."""
        return self.magic == 2 and bool(self.attributes & CONTROL)

    @property
    def control_type(self) -> int | None:
        """The type of the control record (ABORT, COMMIT or another one), or None if there is none."""
        if not self.control or not self.record_count:
            return None
        at = _V2.size
        at = _varint_end(self.data, at) + 1  # the length, then the attributes
        for _ in range(3):  # the timestamp delta, the offset delta, the key length
            at = _varint_end(self.data, at)
        kind: int = struct.unpack_from(">h", self.data, at + 2)[0]
        return kind

    def records(self) -> Iterator[ConsumerRecord]:
        """Yields the records. There are none in a control batch."""
        yield from decode_batches(self.data, check_crcs=False)

    def __repr__(self) -> str:
        return f"<StoredBatch {self.base_offset}-{self.last_offset}, format {self.magic}, epoch {self.leader_epoch}>"


def split_batches(data: bytes) -> list[StoredBatch]:
    """Returns the batches in `data`. Raises ValueError if the bytes are not whole batches of a known format."""
    found: list[StoredBatch] = []
    at = 0
    while at < len(data):
        magic = data[at + _MAGIC_AT] if at + _MAGIC_AT < len(data) else -1
        size = _OVERHEAD + int.from_bytes(data[at + 8 : at + _OVERHEAD], signed=True)
        if magic not in _SMALLEST or size < _SMALLEST[magic] or at + size > len(data):
            raise ValueError(f"the bytes from position {at} on are not a whole batch")
        found.append(StoredBatch(data[at : at + size]))
        at += size
    return found


def place(batch: StoredBatch, base_offset: int, leader_epoch: int, append_time: int | None = None) -> StoredBatch:
    """Returns a copy of a batch as the leader stores it, with a new base offset and leader epoch.

    `append_time`: the time in ms that replaces the timestamps of the records; None keeps them.
    """
    data = bytearray(batch.data)
    if batch.magic == 2:
        struct.pack_into(">q", data, 0, base_offset)
        struct.pack_into(">i", data, 12, leader_epoch)
        if append_time is not None:
            struct.pack_into(">h", data, 21, batch.attributes | LOG_APPEND_TIME)
            struct.pack_into(">q", data, 35, append_time)
            update_crc(data)
        return StoredBatch(bytes(data))
    if batch.magic == 0 and batch.codec:
        data = _rewrap(batch, base_offset)
    struct.pack_into(">q", data, 0, base_offset + batch.record_count - 1)
    if append_time is not None and batch.magic == 1:
        data[17] |= LOG_APPEND_TIME
        struct.pack_into(">q", data, 18, append_time)
        update_crc(data)
    return StoredBatch(bytes(data))


def recompressed(data: bytes, codec: int) -> bytes:
    """Returns batches of format 2 with their records in another codec. Markers and other formats do not change."""
    return b"".join(
        batch.data if batch.codec == codec or batch.magic != 2 or batch.control else _recompressed(batch, codec)
        for batch in split_batches(data)
    )


def _recompressed(batch: StoredBatch, codec: int) -> bytes:
    records = batch.data[_V2.size :]
    if batch.codec:
        records = bytes(decompress(batch.codec, records, output_limit(len(records)), 2))
    data = bytearray(batch.data[: _V2.size]) + compress(CODEC_NAMES[codec], records)
    struct.pack_into(">i", data, 8, len(data) - _OVERHEAD)
    struct.pack_into(">h", data, 21, batch.attributes & ~CODEC_BITS | codec)
    update_crc(data)
    return bytes(data)


def update_crc(data: bytearray) -> None:
    """Write the checksum of a batch into its header."""
    if data[_MAGIC_AT] == 2:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    else:
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))


def _rewrap(batch: StoredBatch, base_offset: int) -> bytearray:
    """Returns a compressed message of format 0 whose inner messages have the offsets from `base_offset` on."""
    packed = batch.data[26:]  # after the header of 18 bytes, the null key, and the size of the value
    inner = bytearray(bytes(decompress(batch.codec, packed, output_limit(len(packed)), 0)))
    at, offset = 0, base_offset
    while at < len(inner):
        struct.pack_into(">q", inner, at, offset)
        at, offset = at + _OVERHEAD + int.from_bytes(inner[at + 8 : at + _OVERHEAD]), offset + 1
    value = compress(CODEC_NAMES[batch.codec], bytes(inner))
    data = bytearray(batch.data[:22]) + struct.pack(">i", len(value)) + value
    struct.pack_into(">i", data, 8, len(data) - _OVERHEAD)
    update_crc(data)
    return data


def _varint_end(data: bytes, at: int) -> int:
    """Returns the position after the varint at `at`."""
    while data[at] & 0x80:
        at += 1
    return at + 1
