"""Offsets of many partitions: parses, formats and compares them. `admin.py` requests offsets from brokers.

The JSON form is that of Spark's own source, `{"topic":{"0":23}}`. Spark compares offsets as text, so keys are always
written in the same order. A limit is the place at which a query starts or ends, as an option such as startingOffsets
or endingTimestamp sets it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kconsumer.errors import ConfigError
from kconsumer.types import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "Limit",
    "Named",
    "Specific",
    "Timestamp",
    "Timestamps",
    "as_document",
    "changes",
    "from_document",
    "from_json",
    "must_cover",
    "parse_offsets",
    "parse_partitions",
    "parse_timestamps",
    "to_json",
]

EARLIEST, LATEST = -2, -1  # in place of an offset, as in ListOffsets requests
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Named:
    """A limit at which a query starts or ends: EARLIEST or LATEST in every partition."""

    sentinel: int  # EARLIEST or LATEST


@dataclass(frozen=True)
class Specific:
    """A limit at which a query starts or ends: for each partition, an offset, EARLIEST or LATEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Timestamp:
    """A limit at which a query starts or ends: in every partition, the first record of this time (ms) or later."""

    ms: int


@dataclass(frozen=True)
class Timestamps:
    """A limit at which a query starts or ends: like `Timestamp`, but each partition has its own time (ms)."""

    ms: Mapping[TopicPartition, int]


Limit = Named | Specific | Timestamp | Timestamps


def as_document(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Convert offsets to nested dicts such as {"topic": {"0": 23}}, sorted by topic and partition number."""
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return document


def to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Convert offsets to JSON. Equal offsets give equal text."""
    return json.dumps(as_document(offsets), separators=(",", ":"))


def from_document(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Returns the offsets in nested dicts such as {"topic": {"0": 23}}: the inverse of `as_document`."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def from_json(text: str) -> dict[TopicPartition, int]:
    """Convert JSON such as {"topic":{"0":23}} to offsets."""
    return from_document(json.loads(text))


def parse_offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """Parse the JSON of the option `name`: startingOffsets or endingOffsets.

    Raises ConfigError if the text does not map partitions to offsets, or if an offset is less than -2 (EARLIEST).
    """
    found = _parse(name, text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    for tp, offset in found.items():
        if offset < EARLIEST:
            raise ConfigError(f"option {name}: {offset} of {tp} is not an offset; -2 is earliest, -1 latest")
    return found


def parse_timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    """Parse the JSON of the option `name`: startingOffsetsByTimestamp or endingOffsetsByTimestamp.

    Raises ConfigError if the text does not map partitions to timestamps.
    """
    return _parse(name, text, '{"topicA":{"0":123456789,"1":123456789},"topicB":{"0":123456789}}')


def _parse(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    try:
        document = json.loads(text)
        return {
            _partition(topic, partition): _integer(value)
            for topic, partitions in document.items()
            for partition, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"Expected e.g. {example} for option {name}, got {text}") from None


def parse_partitions(name: str, text: str) -> frozenset[TopicPartition]:
    """Parse the JSON of the option assign, such as {"topic":[0,1]}. Raises ConfigError for other text."""
    try:
        document = json.loads(text)
        found = {_partition(topic, partition) for topic, listed in document.items() for partition in listed}
    except (ValueError, AttributeError, TypeError):
        found = set()
    if not found:
        raise ConfigError(f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}} for option {name}, got {text}')
    return frozenset(found)


def _partition(topic: str, partition: Any) -> TopicPartition:
    number = _integer(int(partition) if isinstance(partition, str) else partition)
    if number < 0:
        raise ValueError
    return TopicPartition(topic, number)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INT64_MAX:
        raise ValueError
    return value


class Changes(NamedTuple):
    """The differences between two maps of offsets."""

    added: frozenset[TopicPartition]
    deleted: frozenset[TopicPartition]
    decreased: dict[TopicPartition, tuple[int, int]]  # (offset before, offset after)


def changes(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> Changes:
    """Returns the partitions that were added, that were deleted, and whose offset decreased."""
    back = {tp: (before[tp], end) for tp, end in after.items() if tp in before and end < before[tp]}
    return Changes(frozenset(after.keys() - before.keys()), frozenset(before.keys() - after.keys()), back)


def must_cover(given: Iterable[TopicPartition], assigned: Iterable[TopicPartition], error: str, option: str) -> None:
    """Raise ConfigError unless `given` and `assigned` contain the same partitions.

    `error` is the name of Spark's error class. The message contains it and the name of the `option`.
    """
    named, existing = set(given), set(assigned)
    if named != existing:
        hint = " Use -1 for latest, -2 for earliest, if you don't care." if "TIMESTAMP" not in error else ""
        raise ConfigError(
            f"[{error}] {option} names partitions, so it must specify all TopicPartitions and no others.{hint}"
            f" Specified: {_list(named)}; assigned: {_list(existing)}"
        )


def _list(partitions: Iterable[TopicPartition]) -> str:
    return "[" + ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)) + "]"
