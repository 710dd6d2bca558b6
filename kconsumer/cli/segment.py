"""Splits a log segment file into batches without reading the whole file into memory.

Finds the batches of a file and parses their headers; `kconsumer.decode_batches` decodes the records. Only one batch is
in memory at a time. Before a batch is read, the size in its header is compared with the size of the file.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kconsumer import errors
from kconsumer.types import TimestampType, TopicPartition

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
CONTROL_TYPES = {0: "abort", 1: "commit", 2: "leader change", 3: "snapshot header", 4: "snapshot footer"}

CONTROL = 0x20  # the bit of the attributes that marks a control batch
ATTRIBUTES_LOW_BYTE_AT = 22  # position in a batch of format 2, in bytes

_PREFIX = struct.Struct(">qiib")  # common to all formats: offset, size, a field of the format, magic
_SIZE_BEGINS_AT = 12  # the size field counts the bytes from this position on
_V2 = struct.Struct(">qiibIhiqqqhii")
_V1_TIMESTAMP_AT = 18
_MIN_SIZE = {0: 14, 1: 22, 2: 49}  # by magic


class InvalidSegmentError(errors.KafkaError):
    """A file is not a log segment, or is damaged at some position."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a segment: a record batch, or a message of format 0 or 1.

    The header of a message has only one offset, so `base_offset` and `last_offset` are equal. Fields that the batch's
    format does not have are -1 or None.
    """

    position: int  # in the file, in bytes
    data: bytes  # the whole batch
    magic: int
    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp: int  # ms
    count: int | None = None  # the number of records in the header
    crc: int = 0
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def codec(self) -> str:
        """The name of the codec."""
        return CODECS.get(self.attributes & 7, f"codec {self.attributes & 7}")

    @property
    def timestamp_type(self) -> TimestampType:
        """The type of the timestamps: set by the producer or by the broker."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType.LOG_APPEND_TIME if self.attributes & 8 else TimestampType.CREATE_TIME

    @property
    def transactional(self) -> bool:
        return self.magic == 2 and self.attributes & 0x10 != 0

    @property
    def control(self) -> bool:
        """True if the batch contains control records, which a consumer does not return."""
        return self.magic == 2 and self.attributes & CONTROL != 0


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of a file, if they are not a complete batch: the beginning of a batch, or preallocated zeros."""

    position: int  # in the file, in bytes
    size: int  # in bytes
    batch_size: int | None  # the size in the incomplete batch's header; 0: zeros; None: the header is incomplete


def partition_of(path: Path) -> TopicPartition:
    """Returns the partition in the name of a file's folder, as in `topic-3/00000000000000000000.log`.

    If the folder has another kind of name, returns partition 0 of a topic without a name.
    """
    found = re.fullmatch(r"(?P<topic>.+)-(?P<partition>\d+)", path.resolve().parent.name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else TopicPartition("", 0)


def read_segment(file: BinaryIO, name: str) -> Iterator[Batch | Tail]:
    """Yield the batches of a segment in order, then its tail if it has one.

    Raises InvalidSegmentError for bytes that cannot be a batch. The message contains `name` and the position.
    """
    end = os.fstat(file.fileno()).st_size
    position = 0
    while position < end:
        prefix = file.read(_PREFIX.size)
        if not any(prefix):
            yield Tail(position, end - position, 0)
            return
        if len(prefix) < _PREFIX.size:
            yield Tail(position, end - position, None)
            return
        _, size, _, magic = _PREFIX.unpack(prefix)
        if magic not in _MIN_SIZE or size < _MIN_SIZE[magic]:
            raise InvalidSegmentError(
                f"{name} is not a log segment at position {position}: the header there has batch size {size} and "
                f"message format {magic}"
            )
        if size > end - position - _SIZE_BEGINS_AT:
            yield Tail(position, end - position, _SIZE_BEGINS_AT + size)
            return
        data = prefix + file.read(_SIZE_BEGINS_AT + size - len(prefix))
        yield parse(data, position)
        position += len(data)


def parse(data: bytes, position: int) -> Batch:
    """Returns the Batch for `data`, the bytes of one batch. `position` is where they begin in the file, in bytes."""
    magic = data[16]
    if magic == 2:
        offset, _, epoch, _, crc, attributes, delta, _, newest, producer, producer_epoch, sequence, count = (
            _V2.unpack_from(data)
        )
        return Batch(
            position,
            data,
            magic,
            offset,
            offset + delta,
            attributes & 0xFFFF,
            newest,
            count,
            crc,
            epoch,
            producer,
            producer_epoch,
            sequence,
        )
    offset, _, crc, _, attributes = struct.unpack_from(">qiIbB", data)
    time = struct.unpack_from(">q", data, _V1_TIMESTAMP_AT)[0] if magic == 1 else -1
    return Batch(position, data, magic, offset, offset, attributes, time, crc=crc)
