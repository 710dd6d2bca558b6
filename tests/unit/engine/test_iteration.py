"""How far a loop has read a batch, and which records it has not reached."""

from __future__ import annotations

from itertools import islice

import pytest

from kconsumer._core.decode import PartitionFetch
from kconsumer.engine.iteration import Iteration
from kconsumer.records import ConsumerRecords
from kconsumer.testing.batches import build_batch
from kconsumer.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def batch(**starts_and_counts: tuple[int, int]) -> ConsumerRecords:
    """Returns the result of a poll: `a=(first offset, count)`, in this order."""
    partitions = {"a": A, "b": B}
    runs = []
    for name, (start, count) in starts_and_counts.items():
        data = build_batch([(None, b"v")] * count, base_offset=start)
        runs.append(PartitionFetch(partitions[name], data, start).take(count))
    return ConsumerRecords.from_runs(runs)


def at(iteration: Iteration, count: int) -> list[tuple[str, int]]:
    """Returns this many of the next records."""
    return [(record.topic, record.offset) for record in islice(iteration, count)]


@pytest.mark.parametrize(
    ("taken", "unseen"),
    [(1, {A: 6, B: 9}), (2, {A: 7, B: 9}), (3, {B: 9}), (4, {B: 10}), (5, {})],
)
def test_unseen_after_some_records(taken: int, unseen: dict[TopicPartition, int]) -> None:
    """The current record counts as seen; partitions that were read to their end are omitted."""
    iteration = Iteration()
    iteration.start(batch(a=(5, 3), b=(9, 2)))
    assert taken == len(at(iteration, taken))
    assert (bool(unseen), unseen) == (iteration.active, iteration.unseen())
    assert unseen == iteration.unseen(), "unseen() changes nothing"


def test_partition_with_two_runs() -> None:
    """If a batch contains a partition in two runs, the earliest unseen offset counts."""
    runs = [
        PartitionFetch(tp, build_batch([(None, b"v")] * 2, base_offset=start), start).take(2)
        for tp, start in ((A, 0), (B, 7), (A, 2))
    ]
    iteration = Iteration()
    iteration.start(ConsumerRecords.from_runs(runs))
    expected = [{A: 0, B: 7}, {A: 1, B: 7}, {B: 7, A: 2}, {B: 8, A: 2}, {A: 2}, {A: 3}, {}]
    seen = [iteration.unseen()]
    seen += [iteration.unseen() for _ in iteration]
    assert expected == seen


def test_gaps_between_offsets() -> None:
    """If offsets are missing (compaction), the unseen offset is that of the next existing record."""
    fetches = [
        PartitionFetch(A, build_batch([(None, b"v")], base_offset=offset), offset).take(1) for offset in (3, 10, 40)
    ]
    iteration = Iteration()
    iteration.start(ConsumerRecords.from_runs(fetches))
    at(iteration, 1)
    assert {A: 10} == iteration.unseen()
