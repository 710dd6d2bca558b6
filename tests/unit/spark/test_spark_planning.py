"""How the Spark source splits ranges into tasks, against tables derived from Spark's own source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer.errors import ConfigError
from kconsumer.spark import planning
from kconsumer.spark.planning import (
    OffsetRange,
    PlanHints,
    available,
    java_round,
    load,
    plan,
    plan_unbound,
    share_tasks,
)
from kconsumer.types import TopicPartition


def ranges(*sizes: int) -> list[OffsetRange]:
    """Returns ranges of these sizes, in partitions 0, 1, …"""
    return [OffsetRange("t", partition, 100, 100 + size) for partition, size in enumerate(sizes)]


def sizes(tasks: list[OffsetRange]) -> list[list[int]]:
    """Returns the sizes of the tasks of each partition."""
    found: dict[int, list[int]] = {}
    for task in tasks:
        found.setdefault(task.partition, []).append(task.size)
    return [found[partition] for partition in sorted(found)]


TABLE = [
    # sizes, minPartitions, maxRecordsPerPartition, sizes of tasks
    ((10,), None, None, [[10]]),
    ((10, 0, -5), None, None, [[10]]),
    ((10,), 3, None, [[3, 3, 4]]),
    ((100, 1, 1), 4, None, [[50, 50], [1], [1]]),
    ((100, 100), 2, None, [[100], [100]]),
    ((100, 100), 1, None, [[100], [100]]),
    ((100, 100, 100), 6, None, [[50, 50]] * 3),
    ((10, 20), 3, None, [[10], [10, 10]]),
    ((10, 10), 3, None, [[5, 5], [5, 5]]),
    ((1, 1), 8, None, [[1], [1]]),
    ((2, 1), 6, None, [[1, 1], [1]]),
    ((50, 150), 5, None, [[50], [37, 37, 38, 38]]),
    ((100,), None, 30, [[25, 25, 25, 25]]),
    ((100, 20), None, 30, [[25, 25, 25, 25], [20]]),
    ((100, 20), 4, 30, [[25, 25, 25, 25], [20]]),
    ((60, 60), 6, 30, [[15, 15, 15, 15], [15, 15, 15, 15]]),
    ((7,), None, 7, [[7]]),
    ((8,), None, 7, [[4, 4]]),
    ((1000, 1, 1, 1), 8, None, [[200] * 5, [1], [1], [1]]),
]


@pytest.mark.parametrize(("given_sizes", "least", "most", "expected"), TABLE)
def test_cuts_as_spark_does(
    given_sizes: tuple[int, ...], least: int | None, most: int | None, expected: list[list[int]]
) -> None:
    """minPartitions and maxRecordsPerPartition, alone and together, split ranges as Spark does, with
    Scala's rounding.
    """
    assert expected == sizes(plan(ranges(*given_sizes), "spark", PlanHints(least, most)))


def test_halves_round_up() -> None:
    """2.5 is rounded to 3, as in Scala; Python's round gives 2."""
    assert [1, 3, 3, 4] == [java_round(x) for x in (0.5, 2.5, 3.4, 3.5)]


@given(
    st.lists(st.integers(0, 300), max_size=8),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 90),
    st.none() | st.integers(1, 16),
    st.sampled_from(["spark", "even", "bytes"]),
)
def test_every_offset_in_exactly_one_task(
    given_sizes: list[int], least: int | None, most: int | None, slots: int | None, name: str
) -> None:
    """For every planner and its options, tasks cover the ranges exactly (`plan` checks) and none is empty."""
    tasks = plan(ranges(*given_sizes), name, PlanHints(least, most, slots))
    assert sum(given_sizes) == sum(task.size for task in tasks)
    assert all(task.size > 0 for task in tasks)
    if most is not None:
        assert all(task.size <= most for task in tasks)


def test_even_planner_fills_the_slots() -> None:
    """A large partition is split into as many parts as task slots, but not below the cost of a task."""
    big = 4 * planning.MIN_SPLIT_OFFSETS
    assert [[big // 4] * 4] == sizes(plan(ranges(big), "even", PlanHints(parallelism=4)))
    assert [[1000]] == sizes(plan(ranges(1000), "even", PlanHints(parallelism=4)))
    assert [[250] * 4] == sizes(plan(ranges(1000), "even", PlanHints(4)))


def test_bytes_planner_cuts_where_records_are_large() -> None:
    """Of two partitions with equal numbers of offsets, the one with larger records is split into more tasks."""
    hints = PlanHints(8, bytes_per_offset={TopicPartition("t", 0): 10.0, TopicPartition("t", 1): 70.0})
    assert [1, 7] == [len(part) for part in sizes(plan(ranges(7000, 7000), "bytes", hints))]


def test_planner_that_loses_offsets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that loses offsets raises an error."""
    monkeypatch.setitem(planning.BUILT_IN, "lossy", lambda given_ranges, hints: given_ranges[1:])
    load.cache_clear()
    with pytest.raises(ValueError, match="'lossy' does not cover"):
        plan(ranges(5, 5), "lossy", PlanHints())


def test_unknown_planner_names_those_there_are() -> None:
    """The error lists the available planners."""
    with pytest.raises(ConfigError, match="planner 'rack' does not exist; the planners are bytes, even, spark"):
        load("rack")
    assert {"bytes", "even", "spark"} <= set(available())


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_cut_ranges_keep_unbound_outer_ends() -> None:
    """With minPartitions the driver resolves bounds to split; the first start and the last end stay unbound."""
    tasks = plan_unbound({T0: (-2, -1)}, {T0: (5, 15)}, "spark", PlanHints(3))
    assert [("t", 0, -2, 8), ("t", 0, 8, 11), ("t", 0, 11, -1)] == [tuple(task) for task in tasks]


def test_small_ranges_share_a_task() -> None:
    """A thousand ranges of a few offsets are combined into fewer tasks, because a Python task costs tens of
    milliseconds.
    """
    limit = planning.MAX_SHARED_OFFSETS
    assert [4, 1, 3] == [len(task) for task in share_tasks(ranges(1, 2, 3, limit - 6, limit, 1, 1, 1), PlanHints())]
    assert 20 == len(share_tasks(ranges(*[limit // 100] * 2000), PlanHints()))
    assert 1000 == len(share_tasks(ranges(*[limit * 2] * 10_000), PlanHints()))
    assert 10_000 == len(share_tasks(ranges(*[planning.MIN_SPLIT_OFFSETS] * 10_000), PlanHints()))
    assert [1, 1] == [len(task) for task in share_tasks(ranges(1, 1), PlanHints(min_partitions=2))]
    assert [1, 1] == [len(task) for task in share_tasks(ranges(1, 1), PlanHints(max_records=2))]
