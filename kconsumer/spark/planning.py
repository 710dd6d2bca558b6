"""How ranges of offsets become tasks: planners by name, a stranger's included.

The planner `spark` cuts exactly as Spark's own source does. Pure: sizes are differences of offsets, nothing is asked
of a broker. How much one micro-batch takes is decided in `limits.py`.
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
    "wants_cuts",
]

ENTRY_POINTS = "kconsumer.spark.planners"
LEAST_SPLIT = 100_000  # offsets: a Python task costs about 60 ms, the time in which it could read this many

LEAST_TASK = 500  # offsets: ranges that have no more together share a task, if their ends are known


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`; -2 and -1 are earliest and latest."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets, if both ends are known."""
        return self.end - self.start


@dataclass(frozen=True)
class PlanHints:
    """What the user and the cluster say about how to cut.

    `bytes_per_offset` may lack partitions; `parallelism` is the number of task slots if known.
    """

    min_partitions: int | None = None
    max_records: int | None = None
    parallelism: int | None = None
    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)


class Planner(Protocol):
    """Cuts ranges. What it returns covers exactly the offsets it was given, none twice; `plan` checks."""

    def __call__(self, ranges: Sequence[OffsetRange], hints: PlanHints, /) -> Sequence[OffsetRange]:
        """The ranges of the tasks."""
        ...


def java_round(value: float) -> int:
    """Scala's `round`: halves go up, where Python's go to the even neighbour."""
    return math.floor(value + 0.5)


def cut(item: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` pieces whose later ones take the remainder (10 in 3: 3, 3, 4); empty ones are left out."""
    pieces: list[OffsetRange] = []
    at = item.start
    for index in range(parts):
        end = at + (item.end - at) // (parts - index)
        if end > at:
            pieces.append(item._replace(start=at, end=end))
        at = end
    return pieces


def split_spark(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """As Spark's source: maxRecordsPerPartition first, then minPartitions."""
    result = list(ranges)
    if hints.max_records is not None:
        most = hints.max_records
        result = [piece for item in result for piece in cut(item, -(-item.size // most))]
    if hints.min_partitions is not None and len(result) < hints.min_partitions:
        result = _fill(result, hints.min_partitions)
    return result


def _fill(ranges: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    """Cut in proportion to size until there are about `least`; ranges too small to be cut do not count for others."""
    total = sum(item.size for item in ranges)
    whole = {item.topic_partition for item in ranges if _share(item.size, total, least) == 1}
    cuttable = [item for item in ranges if item.topic_partition not in whole]
    rest_total = sum(item.size for item in cuttable)
    rest_least = max(least - len(whole), 1)
    result: list[OffsetRange] = []
    for item in ranges:
        if item.topic_partition in whole:
            result.append(item)
        else:
            result += cut(item, _share(item.size, rest_total, rest_least))
    return result


def _share(size: int, total: int, least: int) -> int:
    return max(java_round(size / total * least), 1)


def split_even(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """Tasks of about the same number of offsets, as many as there are slots (or minPartitions)."""
    return _by_weight(ranges, hints, lambda item: float(item.size))


def split_bytes(ranges: Sequence[OffsetRange], hints: PlanHints) -> list[OffsetRange]:
    """Tasks of about the same number of bytes, judged by the sampled size of each partition's records."""
    known = hints.bytes_per_offset
    usual = sum(known.values()) / len(known) if known else 1.0
    return _by_weight(ranges, hints, lambda item: item.size * known.get(item.topic_partition, usual))


def _by_weight(
    ranges: Sequence[OffsetRange], hints: PlanHints, weigh: Callable[[OffsetRange], float]
) -> list[OffsetRange]:
    wanted = max(hints.min_partitions or hints.parallelism or len(ranges), 1)
    unit = sum(map(weigh, ranges)) / wanted
    result: list[OffsetRange] = []
    for item in ranges:
        parts = max(java_round(weigh(item) / unit), 1) if unit else 1
        if hints.min_partitions is None:  # the user asked for no number: do not cut below what a task costs
            parts = max(min(parts, item.size // LEAST_SPLIT), 1)
        if hints.max_records is not None:
            parts = max(parts, -(-item.size // hints.max_records))
        result += cut(item, parts)
    return result


BUILT_IN: dict[str, Planner] = {"spark": split_spark, "even": split_even, "bytes": split_bytes}


def available() -> list[str]:
    """The names `load` knows."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


@functools.cache
def load(name: str) -> Planner:
    """The planner of this name: built in, or an entry point of the group `kconsumer.spark.planners`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in _entry_points():
        if point.name == name:
            planner: Planner = point.load()
            return planner
    raise ConfigError(f"there is no planner {name!r}; there are {', '.join(available())}")


def _entry_points() -> Iterable[_EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and needed for plugins only

    return entry_points(group=ENTRY_POINTS)


class _EntryPoint(Protocol):
    @property
    def name(self) -> str: ...

    def load(self) -> Planner: ...


def plan(ranges: Iterable[OffsetRange], name: str, hints: PlanHints) -> list[OffsetRange]:
    """The tasks for these ranges, in order of topic, partition and offset; empty ranges have none.

    ValueError if a planner left offsets out or gave some twice.
    """
    filled = sorted(item for item in ranges if item.size > 0)
    if not filled:
        return []
    tasks = sorted(load(name)(filled, hints))
    if _joined(tasks) != _joined(filled):
        raise ValueError(f"the planner {name!r} does not cover exactly the offsets it was given")
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
    """Ranges so small that the cost of a task is most of their cost, several to a task; the user's wishes go first."""
    if hints.min_partitions is not None or hints.max_records is not None:
        return [(item,) for item in ranges]
    tasks: list[tuple[OffsetRange, ...]] = []
    room = 0
    for item in ranges:
        if item.size <= room:
            tasks[-1] = (*tasks[-1], item)
        else:
            tasks.append((item,))
            room = LEAST_TASK
        room -= max(item.size, 0)
    return tasks


def plan_unbound(
    asked: Mapping[TopicPartition, tuple[int, int]],
    known: Mapping[TopicPartition, tuple[int, int]],
    name: str,
    hints: PlanHints,
) -> list[OffsetRange]:
    """The tasks of a batch whose ends may be EARLIEST or LATEST, which stay so for the executor to bind.

    `known` holds what they stood for on the driver, for cutting only. Whether to cut at all is decided by unbound
    sizes, as Spark does: with default ends maxRecordsPerPartition alone cuts nothing.
    """
    unbound = sorted(OffsetRange(*tp, *ends) for tp, ends in asked.items())
    if not wants_cuts(unbound, name, hints):
        return [item for item in unbound if min(item.start, item.end) < 0 or item.size > 0]
    tasks = plan([OffsetRange(*tp, *ends) for tp, ends in known.items()], name, hints)
    return [_unbind(task, asked[task.topic_partition], known[task.topic_partition]) for task in tasks]


def wants_cuts(unbound: Sequence[OffsetRange], name: str, hints: PlanHints) -> bool:
    """Whether ranges whose ends may be EARLIEST or LATEST are cut at all, so that the driver has to bind them, too."""
    if name != "spark":
        return True
    if hints.min_partitions is not None and len(unbound) < hints.min_partitions:
        return True
    return hints.max_records is not None and any(item.size > hints.max_records for item in unbound)


def _unbind(task: OffsetRange, asked: tuple[int, int], known: tuple[int, int]) -> OffsetRange:
    start = asked[0] if task.start == known[0] else task.start
    return task._replace(start=start, end=asked[1] if task.end == known[1] else task.end)
