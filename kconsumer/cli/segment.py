"""Cuts a log segment file into batches without reading the whole file into memory.

Decides what of a file is a batch, and what its header says; its records are decoded by `kconsumer.decode_batches`.
Memory held is that of one batch, whose size is compared with the file's before anything is read.
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

CONTROL = 0x20
ATTRIBUTES_LOW_BYTE_AT = 22  # in format 2

_BEGINNING = struct.Struct(">qiib")  # of every format: offset, size, something, and which format it is
_BEFORE_SIZE = 12  # the size counts from here
_V2 = struct.Struct(">qiibIhiqqqhii")
_V1_TIMESTAMP_AT = 18
_LEAST_SIZE = {0: 14, 1: 22, 2: 49}


class NoSegmentError(errors.KafkaError):
    """A file that is no log segment, or not from some place on."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a segment: a record batch, or a message of the older formats. `data` is all its bytes.

    What a format does not have is -1 or None. `count` is what the header says, None in the older formats.
    """

    position: int
    data: bytes
    magic: int
    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp: int
    count: int | None = None
    crc: int = 0
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def codec(self) -> str:
        """The codec's name."""
        return CODECS.get(self.attributes & 7, f"codec {self.attributes & 7}")

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType.LOG_APPEND_TIME if self.attributes & 8 else TimestampType.CREATE_TIME

    @property
    def transactional(self) -> bool:
        """Whether it is of a transaction."""
        return self.magic == 2 and self.attributes & 0x10 != 0

    @property
    def control(self) -> bool:
        """Whether it holds a marker and no records of users."""
        return self.magic == 2 and self.attributes & CONTROL != 0


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file that is not a whole batch: one of `batch_size` bytes that was being written, or, if that is 0,
    room that was reserved. None: not even that is there."""

    position: int
    size: int
    batch_size: int | None


def partition_of(path: Path) -> TopicPartition:
    """The partition by the name of the folder, as brokers name it: `topic-3/00000000000000000000.log`."""
    found = re.fullmatch(r"(?P<topic>.+)-(?P<partition>\d+)", path.resolve().parent.name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else TopicPartition("", 0)


def read_segment(file: BinaryIO, name: str) -> Iterator[Batch | Tail]:
    """The batches of a segment, in order, and its tail if it has one. NoSegmentError names the file and the position
    of what cannot be a batch."""
    end = os.fstat(file.fileno()).st_size
    position = 0
    while position < end:
        beginning = file.read(_BEGINNING.size)
        if not any(beginning):
            yield Tail(position, end - position, 0)
            return
        if len(beginning) < _BEGINNING.size:
            yield Tail(position, end - position, None)
            return
        _, size, _, magic = _BEGINNING.unpack(beginning)
        if magic not in _LEAST_SIZE or size < _LEAST_SIZE[magic]:
            raise NoSegmentError(
                f"{name} is not a log segment at position {position}: a batch of {size} bytes in message format {magic}"
            )
        if size > end - position - _BEFORE_SIZE:
            yield Tail(position, end - position, _BEFORE_SIZE + size)
            return
        data = beginning + file.read(_BEFORE_SIZE + size - len(beginning))
        yield parse(data, position)
        position += len(data)


def parse(data: bytes, position: int) -> Batch:
    """What the header of a batch says."""
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
