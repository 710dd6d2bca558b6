"""The user data that the sticky assignors add to a subscription, in Java's layouts.

`sticky`, version 1 (version 0 ends before the generation):

    int32 topics | topics x (int16 length | UTF-8 name | int32 n | n x int32 partition) | int32 generation

`cooperative-sticky`: int32 generation.

All numbers are big-endian. The bytes come from other members, so invalid bytes do not raise an error. They are read as
a claim to no partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kconsumer.types import TopicPartition

NO_GENERATION = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">2i")


class Claim(NamedTuple):
    """The partitions that a member claims to have owned, and in which generation."""

    generation: int
    partitions: Iterable[tuple[str, int]]  # may be an iterator, which can be read only once


NOTHING = Claim(NO_GENERATION, ())


def encode_sticky(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Returns the user data of `sticky`, in version 1, for a claim to these partitions.

    Topics are encoded in the order in which they first occur in `partitions`.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, ids in by_topic.items():
        name = topic.encode()
        parts += (_INT16.pack(len(name)), name, struct.pack(f">i{len(ids)}i", len(ids), *ids))
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def decode_sticky(data: bytes | None) -> Claim:
    """Returns the claim in the user data of `sticky`, in version 1 or 0.

    If `data` is empty, None or invalid, returns NOTHING, which is a claim to no partitions.
    """
    if not data:
        return NOTHING
    try:
        partitions, position = _partitions(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return NOTHING
    try:
        (generation,) = _INT32.unpack_from(data, position)
    except struct.error:  # version 0
        generation = NO_GENERATION
    return Claim(generation, partitions)


def encode_generation(generation: int) -> bytes:
    """Returns the user data of `cooperative-sticky`, which contains only the generation."""
    return _INT32.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """Returns the generation in user data of `cooperative-sticky`, or -1 if `data` is None or too short."""
    if data is None or len(data) < _INT32.size:
        return NO_GENERATION
    generation: int = _INT32.unpack_from(data)[0]
    return generation


def _partitions(data: bytes) -> tuple[Iterable[tuple[str, int]], int]:
    """Returns the (topic, partition) pairs in user data of `sticky`, and the index of the byte after them.

    Raises struct.error, UnicodeDecodeError or ValueError if `data` is invalid. A length is checked before memory of
    this size is allocated. The pairs are an iterator over two lists, not a list of tuples, which the garbage collector
    would have to traverse.
    """
    (topics,) = _INT32.unpack_from(data)
    if topics < 0:
        raise ValueError("negative number of topics")
    names: list[str] = []
    numbers: list[int] = []
    position, end = 4, len(data) - 4
    padded = data + b"\0\0\0\0"  # a second number is read together with each count, also with the last one
    read_length, read_two = _INT16.unpack_from, _TWO_INT32.unpack_from
    for _ in range(topics):
        (length,) = read_length(data, position)
        start = position + 2
        position = start + length
        count, first = read_two(padded, position)
        if length < 0 or count < 0 or count > (end - position) // 4:
            raise ValueError("a length that the bytes cannot hold")
        topic = data[start:position].decode()
        position += 4
        if count == 1:
            names.append(topic)
            numbers.append(first)
        else:
            names += [topic] * count
            numbers += struct.unpack_from(f">{count}i", data, position)
        position += 4 * count
    return zip(names, numbers, strict=True), position
