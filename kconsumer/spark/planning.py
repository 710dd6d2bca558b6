"""Splits ranges of offsets into tasks. Planners are chosen by name and may be plugins.

The planner `spark` splits exactly as Spark's own source does. These functions are pure: sizes are differences of
offsets, and no request is sent. `limits.py` decides how much one micro-batch reads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kconsumer.errors import ConfigError
from kconsumer.types import TopicPartition

__all__ = [
    "ENTRY_POINTS",
    "OffsetRange",
    "PlanHints",
    "Planner",
    "available",
    "load",
    "plan",
    "plan_unbound",
    "share_tasks",
    "wants_splits",
]

ENTRY_POINTS = "kconsumer.spark.planners"
MIN_SPLIT_OFFSETS = 100_000  # a Python task costs about 60 ms, in which it could read this many

MAX_SHARED_OFFSETS = 500  # ranges share a task while they have no more together, if their bounds are known


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`; -2 and -1 are earliest and latest."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets, if both bounds are known."""
        return self.end - self.start


@dataclass(frozen=True)
class PlanHints:
    """What a planner may consider: options of the user, and properties of the cluster."""

    min_partitions: int | None = None
    max_records: int | None = None
    parallelism: int | None = None  # the number of task slots, if it is known
    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)  # may lack partitions


class Planner(Protocol):
    """Splits ranges. The result covers exactly the given offsets, none of them twice; `plan` checks that."""

    def __call__(self, ranges: Sequence[OffsetRange], hints: PlanHints, /) -> Sequence[OffsetRange]:
        """Return the ranges of the tasks."""
        ...


def java_round(value: float) -> int:
    """Round as Scala does: halves up. Python's `round` takes the even neighbour."""
    return math.floor(value + 0.5)


def split(item: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split a range into `parts`. The later parts take the remainder (10 into 3: 3, 3, 4); empty parts are omitted."""
    found: list[OffsetRange] = []
    at = item.start
    for index in range(parts):
        end = at + (item.end - at) // (parts - index)
        if end > at:
            found.append(item._replace(start=at, end=end))
        at = end
    return found


def split_spark(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """Split as Spark's source does: by maxRecordsPerPartition first, then by minPartitions."""
    result = list(ranges)
    if hints.max_records is not None:
        limit = hints.max_records
        result = [part for item in result for part in split(item, -(-item.size // limit))]
    if hints.min_partitions is not None and len(result) < hints.min_partitions:
        result = _split_to_minimum(result, hints.min_partitions)
    return result


def _split_to_minimum(ranges: Sequence[OffsetRange], minimum: int) -> list[OffsetRange]:
    """Split ranges in proportion to their sizes until there are about `minimum`.

    As in Spark's source, ranges whose share is one task are not split, and the others share the rest of the tasks.
    """
    total = sum(item.size for item in ranges)
    whole = {item.topic_partition for item in ranges if _share(item.size, total, minimum) == 1}
    divisible = [item for item in ranges if item.topic_partition not in whole]
    rest_total = sum(item.size for item in divisible)
    rest_minimum = max(minimum - len(whole), 1)
    result: list[OffsetRange] = []
    for item in ranges:
        if item.topic_partition in whole:
            result.append(item)
        else:
            result += split(item, _share(item.size, rest_total, rest_minimum))
    return result


def _share(size: int, total: int, tasks: int) -> int:
    return max(java_round(size / total * tasks), 1)


def split_even(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """Split into tasks of about the same number of offsets, as many as task slots (or minPartitions)."""
    return _split_by_weight(ranges, hints, lambda item: float(item.size))


def split_bytes(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """Split into tasks of about the same number of bytes, by the sampled record size of each partition."""
    known = hints.bytes_per_offset
    average = sum(known.values()) / len(known) if known else 1.0
    return _split_by_weight(ranges, hints, lambda item: item.size * known.get(item.topic_partition, average))


def _split_by_weight(
    ranges: Sequence[OffsetRange], hints: PlanHints, weigh: Callable[[OffsetRange], float]
) -> list[OffsetRange]:
    wanted = max(hints.min_partitions or hints.parallelism or len(ranges), 1)
    unit = sum(map(weigh, ranges)) / wanted
    result: list[OffsetRange] = []
    for item in ranges:
        parts = max(java_round(weigh(item) / unit), 1) if unit else 1
        if hints.min_partitions is None:  # without a number from the user, a task must be worth its own cost
            parts = max(min(parts, item.size // MIN_SPLIT_OFFSETS), 1)
        if hints.max_records is not None:
            parts = max(parts, -(-item.size // hints.max_records))
        result += split(item, parts)
    return result


BUILT_IN: dict[str, Planner] = {"spark": split_spark, "even": split_even, "bytes": split_bytes}


def available() -> list[str]:
    """Return the names of all planners: built-in ones and plugins."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


@functools.cache
def load(name: str) -> Planner:
    """Return the planner with this name: built in, or an entry point of the group `kconsumer.spark.planners`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in _entry_points():
        if point.name == name:
            planner: Planner = point.load()
            return planner
    raise ConfigError(f"planner {name!r} does not exist; the planners are {', '.join(available())}")


def _entry_points() -> Iterable[_EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and needed only for plugins

    return entry_points(group=ENTRY_POINTS)


class _EntryPoint(Protocol):
    @property
    def name(self) -> str: ...

    def load(self) -> Planner: ...


def plan(ranges: Iterable[OffsetRange], name: str, hints: PlanHints) -> list[OffsetRange]:
    """Return the tasks for these ranges, in order of topic, partition and offset. Empty ranges are dropped.

    Raises ValueError if the planner omitted or repeated offsets.
    """
    filled = sorted(item for item in ranges if item.size > 0)
    if not filled:
        return []
    tasks = sorted(load(name)(filled, hints))
    if _joined(tasks) != _joined(filled):
        raise ValueError(f"planner {name!r} does not cover exactly the offsets of its ranges")
    return tasks


def _joined(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    result: list[OffsetRange] = []
    for item in ranges:
        last = result[-1] if result else None
        if last is not None and last[:2] == item[:2] and last.end == item.start:
            result[-1] = last._replace(end=item.end)
        else:
            result.append(item)
    return result


def share_tasks(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[tuple[OffsetRange, ...]]:
    """Let small ranges share a task, whose own cost exceeds that of reading them.

    With minPartitions or maxRecordsPerPartition each range keeps a task of its own.
    """
    if hints.min_partitions is not None or hints.max_records is not None:
        return [(item,) for item in ranges]
    tasks: list[tuple[OffsetRange, ...]] = []
    remaining = 0
    for item in ranges:
        if item.size <= remaining:
            tasks[-1] = (*tasks[-1], item)
        else:
            tasks.append((item,))
            remaining = MAX_SHARED_OFFSETS
        remaining -= max(item.size, 0)
    return tasks


def plan_unbound(
    unbound: Mapping[TopicPartition, tuple[int, int]],
    bound: Mapping[TopicPartition, tuple[int, int]],
    name: str,
    hints: PlanHints,
) -> list[OffsetRange]:
    """Return the tasks of ranges whose bounds may be EARLIEST or LATEST, which the executors resolve.

    `bound` has the offsets that these were on the driver, and is used only to split. As in Spark, the unbound sizes
    decide whether to split at all: with the default bounds, maxRecordsPerPartition alone splits nothing.
    """
    ranges = sorted(OffsetRange(*tp, *bounds) for tp, bounds in unbound.items())
    if not wants_splits(ranges, name, hints):
        return [item for item in ranges if min(item.start, item.end) < 0 or item.size > 0]
    tasks = plan([OffsetRange(*tp, *bounds) for tp, bounds in bound.items()], name, hints)
    return [_unbind(task, unbound[task.topic_partition], bound[task.topic_partition]) for task in tasks]


def wants_splits(unbound: Sequence[OffsetRange], name: str, hints: PlanHints) -> bool:
    """Whether unbound ranges may be split. If so, the driver must resolve their bounds."""
    if name != "spark":
        return True
    if hints.min_partitions is not None and len(unbound) < hints.min_partitions:
        return True
    return hints.max_records is not None and any(item.size > hints.max_records for item in unbound)


def _unbind(task: OffsetRange, unbound: tuple[int, int], bound: tuple[int, int]) -> OffsetRange:
    start = unbound[0] if task.start == bound[0] else task.start
    return task._replace(start=start, end=unbound[1] if task.end == bound[1] else task.end)
