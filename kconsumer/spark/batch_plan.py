"""Plans a batch query: splits the offsets to read, narrowed by filters, into ranges for each task.

A range is unbound while it starts at EARLIEST or ends at LATEST. To bind a range means to replace these by offsets. As
in Spark's own source, tasks bind their ranges on the executor. The driver binds ranges, too, if it needs their sizes or
if filters narrow them. Does not need pyspark.
"""

from __future__ import annotations

from itertools import islice

from kconsumer.errors import ConfigError
from kconsumer.spark.admin import Admin
from kconsumer.spark.filters import Constraints
from kconsumer.spark.offsets import EARLIEST, LATEST
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange, PlanHints, plan, plan_unbound, share_tasks, wants_splits
from kconsumer.types import TopicPartition

__all__ = ["plan_batch"]

Offsets = dict[TopicPartition, int]
MAX_UNSHARED_TASKS = 64  # with more tasks than this, several small ranges are read by one task


def plan_batch(
    config: SourceConfig, admin: Admin, constraints: Constraints, parallelism: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task of a batch query. `parallelism` is the number of task slots, if it is known.

    Raises ConfigError if a partition starts beyond its end.
    """
    partitions = admin.partitions()
    start = admin.unbound(config.starting, partitions, starting=True)
    end = admin.unbound(config.ending, partitions, starting=False)
    _check_resolved(admin, start, end)
    wanted = {tp for tp in partitions if constraints.wants(*tp)}
    unbound = {tp: (start[tp], end[tp]) for tp in wanted}
    sizes = _sizes(config, admin, {tp: at for tp, (at, _) in unbound.items()})
    hints = PlanHints(config["minPartitions"], config["maxRecordsPerPartition"], parallelism, sizes)
    if _narrows(constraints):
        ranges = _narrow(config, admin, constraints, unbound)
        return share_tasks(plan(ranges, config["planner"], hints), hints)
    ranges = sorted(OffsetRange(*tp, *bounds) for tp, bounds in unbound.items())
    bound = _bind(admin, unbound) if wants_splits(ranges, config["planner"], hints) else unbound
    return _share(plan_unbound(unbound, bound, config["planner"], hints), admin, hints)


def _check_resolved(admin: Admin, start: Offsets, end: Offsets) -> None:
    """Raise ConfigError if a partition starts beyond its end.

    Planning drops empty ranges, so without this check the rows of the partition would be missing without an error. If
    one bound of a range is an offset and the other one is EARLIEST or LATEST, the offset for EARLIEST or LATEST is
    requested, to compare the two. A range from EARLIEST to LATEST needs no request.
    """
    first = admin.earliest(tp for tp, at in start.items() if at == EARLIEST and end[tp] != LATEST)
    fixed = {tp: at for tp, at in start.items() if at > 0}
    last = admin.latest((tp for tp in fixed if end[tp] == LATEST), known=fixed)
    for tp in sorted(start):
        low, high = first.get(tp, start[tp]), last.get(tp, end[tp])
        if 0 <= high < low:
            raise ConfigError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The resolved start offset {low} is greater than the"
                f" resolved end offset {high} for topic {tp.topic} partition {tp.partition}. Check whether the start is"
                " set beyond the end, and whether the topic was deleted and created again or its records were deleted"
            )


def _share(tasks: list[OffsetRange], admin: Admin, hints: PlanHints) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task, given one range per task.

    If there are more than MAX_UNSHARED_TASKS tasks, those with small ranges are merged. Otherwise each range keeps its
    task, as in Spark's source.
    """
    if len(tasks) <= MAX_UNSHARED_TASKS:
        return [(task,) for task in tasks]
    first = admin.earliest({task.topic_partition for task in tasks if task.start == EARLIEST})
    last = admin.latest({task.topic_partition for task in tasks if task.end == LATEST})
    sized = [
        task._replace(start=first.get(task.topic_partition, task.start), end=last.get(task.topic_partition, task.end))
        for task in tasks
    ]
    unbound = iter(tasks)
    return [tuple(islice(unbound, len(group))) for group in share_tasks(sized, hints)]


def _bind(admin: Admin, unbound: dict[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    start = admin.bind({tp: bounds[0] for tp, bounds in unbound.items()})
    end = admin.bind({tp: bounds[1] for tp, bounds in unbound.items()})
    return {tp: (start[tp], end[tp]) for tp in unbound}


def _sizes(config: SourceConfig, admin: Admin, start: Offsets) -> dict[TopicPartition, float]:
    return admin.bytes_per_offset(admin.bind(start)) if config["planner"] == "bytes" else {}


def _narrows(constraints: Constraints) -> bool:
    bounds = (constraints.end, constraints.from_ms, constraints.until_ms)
    return constraints.start > 0 or any(bound is not None for bound in bounds)


def _narrow(
    config: SourceConfig, admin: Admin, constraints: Constraints, unbound: dict[TopicPartition, tuple[int, int]]
) -> list[OffsetRange]:
    """Returns the ranges of the partitions, with offsets in place of EARLIEST and LATEST.

    Offsets that the filters exclude are removed from the ranges.
    """
    bound = _bind(admin, unbound)
    start = {tp: max(first, constraints.start) for tp, (first, _) in bound.items()}
    end = {tp: last if constraints.end is None else min(last, constraints.end) for tp, (_, last) in bound.items()}
    # Records without a timestamp have -1, and brokers do not find them by time.
    if constraints.from_ms is not None and constraints.from_ms >= 0:
        found = admin.first_at(bound, constraints.from_ms)
        # Nothing is read from a partition without a record of that time or later.
        start = {tp: max(at, found.get(tp, end[tp])) for tp, at in start.items()}
    if constraints.until_ms is not None and config["timestampOrder"] == "monotonic":
        found = admin.first_at(bound, constraints.until_ms)
        end = {tp: min(at, found.get(tp, at)) for tp, at in end.items()}
    return [OffsetRange(*tp, start[tp], end[tp]) for tp in bound]
