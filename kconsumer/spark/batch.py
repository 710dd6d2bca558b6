"""A batch read: which ranges, in which tasks. Spark makes one reader a query, on the driver, and pickles it to tasks.

Ends that are not fixed stay so until a task binds them on its executor, as with Spark's own source.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kconsumer.spark import filters
from kconsumer.spark.admin import Admin
from kconsumer.spark.compat import DataSourceReader, InputPartition, filter_hook
from kconsumer.spark.executor import read
from kconsumer.spark.filters import Constraints
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange, PlanHints, plan, plan_unbound, wants_cuts
from kconsumer.spark.schema import Projection
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "RangePartition", "plan_batch", "ranges_of"]

Offsets = dict[TopicPartition, int]


class RangePartition(InputPartition):
    """A task of the source: the ranges it reads, one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(tuple(map(tuple, ranges)))


def ranges_of(partition: InputPartition) -> list[OffsetRange]:
    """What a task is to read; nothing for the one task that Spark makes up where a source has none."""
    return [OffsetRange(*values) for values in partition.value or ()]


class BatchReader(DataSourceReader):
    """Reads what `config` says, narrowed by the filters that Spark pushes."""

    def __init__(self, config: SourceConfig, projection: Projection, parallelism: int | None = None) -> None:
        self._config, self._projection, self._parallelism = config, projection, parallelism
        self._constraints = Constraints()
        self._run = uuid.uuid4().hex[:12]  # the same in all tasks, for dead letters
        hook = filter_hook(self._push)
        if hook is not None:
            self.pushFilters = hook

    def _push(self, pushed: list[Any]) -> Iterator[Any]:
        self._constraints, rest = filters.push(pushed)
        return iter(rest)

    def partitions(self) -> list[RangePartition]:
        """The tasks."""
        with Admin(self._config) as admin:
            tasks = plan_batch(self._config, admin, self._constraints, self._parallelism)
        return [RangePartition((task,)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in its worker process."""
        return read(self._config, self._projection, ranges_of(partition), ("batch", self._run))


def plan_batch(
    config: SourceConfig, admin: Admin, constraints: Constraints, parallelism: int | None = None
) -> list[OffsetRange]:
    """The tasks of a batch."""
    partitions = admin.partitions()
    start = admin.unbound(config.starting, partitions, starting=True)
    end = admin.unbound(config.ending, partitions, starting=False)
    wanted = {tp for tp in partitions if constraints.wants(*tp)}
    asked = {tp: (start[tp], end[tp]) for tp in wanted}
    sizes = _sizes(config, admin, {tp: at for tp, (at, _) in asked.items()})
    hints = PlanHints(config["minPartitions"], config["maxRecordsPerPartition"], parallelism, sizes)
    if _narrows(constraints):
        ranges = _narrow(config, admin, constraints, asked)
        return plan(ranges, config["planner"], hints)
    unbound = sorted(OffsetRange(*tp, *ends) for tp, ends in asked.items())
    known = _bind(admin, asked) if wants_cuts(unbound, config["planner"], hints) else asked
    return plan_unbound(asked, known, config["planner"], hints)


def _bind(admin: Admin, asked: dict[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    start = admin.bind({tp: ends[0] for tp, ends in asked.items()})
    end = admin.bind({tp: ends[1] for tp, ends in asked.items()})
    return {tp: (start[tp], end[tp]) for tp in asked}


def _sizes(config: SourceConfig, admin: Admin, start: Offsets) -> dict[TopicPartition, float]:
    return admin.bytes_per_offset(admin.bind(start)) if config["planner"] == "bytes" else {}


def _narrows(constraints: Constraints) -> bool:
    bounds = (constraints.end, constraints.from_ms, constraints.until_ms)
    return constraints.start > 0 or any(bound is not None for bound in bounds)


def _narrow(
    config: SourceConfig, admin: Admin, constraints: Constraints, asked: dict[TopicPartition, tuple[int, int]]
) -> list[OffsetRange]:
    """Ranges with fixed ends, without the offsets that the filters rule out."""
    known = _bind(admin, asked)
    start = {tp: max(ends[0], constraints.start) for tp, ends in known.items()}
    end = {tp: ends[1] if constraints.end is None else min(ends[1], constraints.end) for tp, ends in known.items()}
    if constraints.from_ms is not None:
        first = admin.first_at(known, constraints.from_ms)
        # Without a record of that time or later none is wanted.
        start = {tp: max(at, first.get(tp, end[tp])) for tp, at in start.items()}
    if constraints.until_ms is not None and config["timestampOrder"] == "monotonic":
        behind = admin.first_at(known, constraints.until_ms)
        end = {tp: min(at, behind.get(tp, at)) for tp, at in end.items()}
    return [OffsetRange(*tp, start[tp], end[tp]) for tp in known]
