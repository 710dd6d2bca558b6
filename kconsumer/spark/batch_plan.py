"""Which ranges a batch reads, in which tasks: limits, filters and planners put together.

Ends that are not fixed stay so until a task binds them on its executor, as with Spark's own source. Without pyspark.
"""

from __future__ import annotations

from itertools import islice

from kconsumer.errors import ConfigError
from kconsumer.spark.admin import Admin
from kconsumer.spark.filters import Constraints
from kconsumer.spark.offsets import EARLIEST, LATEST
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange, PlanHints, plan, plan_unbound, share_tasks, wants_cuts
from kconsumer.types import TopicPartition

__all__ = ["plan_batch"]

Offsets = dict[TopicPartition, int]
MANY = 64  # tasks: above, small ranges share one


def plan_batch(
    config: SourceConfig, admin: Admin, constraints: Constraints, parallelism: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task of a batch."""
    partitions = admin.partitions()
    start = admin.unbound(config.starting, partitions, starting=True)
    end = admin.unbound(config.ending, partitions, starting=False)
    _check_resolved(admin, start, end)
    wanted = {tp for tp in partitions if constraints.wants(*tp)}
    asked = {tp: (start[tp], end[tp]) for tp in wanted}
    sizes = _sizes(config, admin, {tp: at for tp, (at, _) in asked.items()})
    hints = PlanHints(config["minPartitions"], config["maxRecordsPerPartition"], parallelism, sizes)
    if _narrows(constraints):
        ranges = _narrow(config, admin, constraints, asked)
        return share_tasks(plan(ranges, config["planner"], hints), hints)
    unbound = sorted(OffsetRange(*tp, *ends) for tp, ends in asked.items())
    known = _bind(admin, asked) if wants_cuts(unbound, config["planner"], hints) else asked
    return _share(plan_unbound(asked, known, config["planner"], hints), admin, hints)


def _check_resolved(admin: Admin, start: Offsets, end: Offsets) -> None:
    """Raise ConfigError if a partition starts beyond its end.

    Planning drops ranges without offsets, so the rows of the other partitions would look like the whole result. Ends
    that are not fixed are looked up if the other end is: they may be on its wrong side.
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
    """Small ranges together where there are many; up to then as many tasks as Spark's source has."""
    if len(tasks) <= MANY:
        return [(task,) for task in tasks]
    first = admin.earliest({task.topic_partition for task in tasks if task.start == EARLIEST})
    last = admin.latest({task.topic_partition for task in tasks if task.end == LATEST})
    sized = [
        task._replace(start=first.get(task.topic_partition, task.start), end=last.get(task.topic_partition, task.end))
        for task in tasks
    ]
    unbound = iter(tasks)
    return [tuple(islice(unbound, len(group))) for group in share_tasks(sized, hints)]


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
