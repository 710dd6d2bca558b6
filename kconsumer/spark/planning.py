"""Splits ranges of offsets into tasks. The function that does this, the planner, is chosen by name.

A planner is built in or a plugin. The planner `spark` splits exactly as Spark's own source does. No requests are sent,
because the size of a range is the difference of its offsets. `limits.py` decides how much one micro-batch reads.

A range is unbound while it starts at EARLIEST or ends at LATEST, and bound when both are offsets.
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
MIN_SPLIT_OFFSETS = 100_000  # to start a Python task takes about 60 ms, in which it could read this many

# Maximum offsets, in total, of several ranges that are read by one task. The maximum is larger, up to
# MIN_SPLIT_OFFSETS, if a query has more offsets than MAX_SMALL_TASKS tasks of this size.
MAX_SHARED_OFFSETS = 500
MAX_SMALL_TASKS = 1000


class OffsetRange(NamedTuple):
    """A range of offsets of one partition."""

    topic: str
    partition: int
    start: int  # the first offset, or -2 for the earliest one
    end: int  # the offset after the last one, or -1 for the latest end

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets. It has no meaning if the range starts at EARLIEST or ends at LATEST."""
        return self.end - self.start


@dataclass(frozen=True)
class PlanHints:
    """Options of the user and properties of the cluster that a planner may use."""

    min_partitions: int | None = None  # the option minPartitions
    max_records: int | None = None  # the option maxRecordsPerPartition
    parallelism: int | None = None  # the number of task slots, if it is known
    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)  # may lack partitions


class Planner(Protocol):
    """A function that splits ranges into one range per task.

    The result must contain each offset of the given ranges exactly once, and no other. `plan` checks this.
    """

    def __call__(self, ranges: Sequence[OffsetRange], hints: PlanHints, /) -> Sequence[OffsetRange]:
        """Returns one range for each task."""
        ...


def java_round(value: float) -> int:
    """Round to the nearest integer. Halves are rounded up, as in Scala.

    Python's `round` rounds halves to even numbers.
    """
    return math.floor(value + 0.5)


def split(item: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split a range into at most `parts` ranges, whose sizes differ by at most one. Empty ranges are omitted.

    The last ranges are the larger ones: 10 offsets in 3 parts become 3, 3 and 4 offsets.
    """
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
    """Split ranges into about `minimum` ranges, the larger ones into more parts.

    As in Spark's source, the number of parts of a range is proportional to its size. Ranges that get only one part are
    left whole. Then the other parts are divided among the other ranges.
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
    """Split into tasks of about the same number of offsets.

    The number of tasks is about minPartitions. If this option is not set, it is about the number of task slots.
    """
    return _split_by_weight(ranges, hints, lambda item: float(item.size))


def split_bytes(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """Split into tasks of about the same number of bytes, as estimated from a sample of each partition."""
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
        if hints.min_partitions is None:  # the user set no number of tasks: avoid tasks that cost more than they save
            parts = max(min(parts, item.size // MIN_SPLIT_OFFSETS), 1)
        if hints.max_records is not None:
            parts = max(parts, -(-item.size // hints.max_records))
        result += split(item, parts)
    return result


BUILT_IN: dict[str, Planner] = {"spark": split_spark, "even": split_even, "bytes": split_bytes}


def available() -> list[str]:
    """Returns the names of all planners: built-in ones and plugins."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


@functools.cache
def load(name: str) -> Planner:
    """Returns the planner with this name: built in, or an entry point of the group `kconsumer.spark.planners`.

    Raises ConfigError if there is none.
    """
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
    """Split ranges with the planner `name`. Returns one range per task, sorted by partition and offset.

    The bounds of the ranges must be offsets, and not EARLIEST or LATEST. Empty ranges are dropped. Raises ConfigError
    if the planner does not exist, and ValueError if the planner has omitted or repeated offsets.
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
    """Group consecutive small ranges into tasks. Returns the ranges of each task.

    To start a task costs more than to read a small range. Two consecutive tasks together have more offsets than
    `max_shared_offsets`. So there are at most 2 * MAX_SMALL_TASKS tasks, or two for each MIN_SPLIT_OFFSETS offsets if
    that is more. If the user sets minPartitions or maxRecordsPerPartition, each range keeps its own task. The bounds of
    the ranges must be offsets, and not EARLIEST or LATEST.
    """
    if hints.min_partitions is not None or hints.max_records is not None:
        return [(item,) for item in ranges]
    limit = max_shared_offsets(ranges)
    tasks: list[list[OffsetRange]] = []
    remaining = -1  # offsets that fit into the last task
    for item in ranges:
        size = max(item.size, 0)
        if size <= remaining:
            tasks[-1].append(item)
        else:
            tasks.append([item])
            remaining = limit
        remaining -= size
    return [tuple(task) for task in tasks]


def max_shared_offsets(ranges: Iterable[OffsetRange]) -> int:
    """Returns the maximum number of offsets of a task that reads several ranges."""
    total = sum(max(item.size, 0) for item in ranges)
    return min(max(MAX_SHARED_OFFSETS, total // MAX_SMALL_TASKS), MIN_SPLIT_OFFSETS)


def plan_unbound(
    unbound: Mapping[TopicPartition, tuple[int, int]],
    bound: Mapping[TopicPartition, tuple[int, int]],
    name: str,
    hints: PlanHints,
) -> list[OffsetRange]:
    """Split ranges with the planner `name`. Returns one range per task, with EARLIEST and LATEST where `unbound` has
    them.

    `unbound` maps partitions to ranges that may start at EARLIEST or end at LATEST. `bound` maps them to the same
    ranges with offsets instead, and the planner splits these. If `wants_splits` returns False, `bound` is not used, and
    the ranges of `unbound` are returned whole. Empty ranges are dropped.
    """
    ranges = sorted(OffsetRange(*tp, *bounds) for tp, bounds in unbound.items())
    if not wants_splits(ranges, name, hints):
        return [item for item in ranges if min(item.start, item.end) < 0 or item.size > 0]
    tasks = plan([OffsetRange(*tp, *bounds) for tp, bounds in bound.items()], name, hints)
    return [_unbind(task, unbound[task.topic_partition], bound[task.topic_partition]) for task in tasks]


def wants_splits(unbound: Sequence[OffsetRange], name: str, hints: PlanHints) -> bool:
    """Returns True if the planner `name` may split these ranges. `plan_unbound` then needs offsets for EARLIEST and
    LATEST.

    For the planner `spark`, the result depends on minPartitions and maxRecordsPerPartition, as in Spark's source. The
    latter is compared with the sizes of the unbound ranges: EARLIEST is -2 and LATEST is -1, so a range from EARLIEST
    to LATEST has the size 1, and maxRecordsPerPartition alone does not split it. For every other planner, returns True.
    """
    if name != "spark":
        return True
    if hints.min_partitions is not None and len(unbound) < hints.min_partitions:
        return True
    return hints.max_records is not None and any(item.size > hints.max_records for item in unbound)


def _unbind(task: OffsetRange, unbound: tuple[int, int], bound: tuple[int, int]) -> OffsetRange:
    start = unbound[0] if task.start == bound[0] else task.start
    return task._replace(start=start, end=unbound[1] if task.end == bound[1] else task.end)
