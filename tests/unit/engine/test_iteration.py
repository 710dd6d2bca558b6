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


def test_nothing_before_and_after() -> None:
    """Without a batch there is no next record and no unseen one."""
    iteration = Iteration()
    assert (False, {}, []) == (iteration.active, iteration.unseen(), list(iteration))
    iteration.start(batch(a=(5, 3)))
    iteration.stop()
    assert (False, {}, []) == (iteration.active, iteration.unseen(), list(iteration))


def test_unseen_before_the_first_record() -> None:
    """A batch that was not iterated is unseen from the first offset of each partition."""
    iteration = Iteration()
    iteration.start(batch(a=(5, 3), b=(9, 2)))
    assert (True, {A: 5, B: 9}) == (iteration.active, iteration.unseen())


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


def test_iterators_share_their_position() -> None:
    """Every iterator continues at the record where the last one stopped."""
    iteration = Iteration()
    iteration.start(batch(a=(0, 4)))
    assert [("a", 0), ("a", 1)] == at(iteration, 2)
    assert [("a", 2), ("a", 3)] == at(iteration, 10)
    assert not iteration.active


def test_stop_ends_a_running_loop() -> None:
    """A loop ends when its body stops the iteration of the batch."""
    iteration = Iteration()
    iteration.start(batch(a=(0, 4)))
    seen = []
    for record in iteration:
        seen.append(record.offset)
        if record.offset == 1:
            iteration.stop()
    assert [0, 1] == seen


def test_loop_continues_with_a_new_batch() -> None:
    """After a poll in the body the loop continues with the new batch."""
    iteration = Iteration()
    iteration.start(batch(a=(0, 2)))
    seen = []
    for record in iteration:
        seen.append((record.topic, record.offset))
        if record.topic == "a":
            iteration.start(batch(b=(5, 2)))
    assert [("a", 0), ("b", 5), ("b", 6)] == seen


def test_empty_batch() -> None:
    """A loop over a batch without records has no iteration."""
    iteration = Iteration()
    iteration.start(ConsumerRecords.EMPTY)
    assert (False, {}, []) == (iteration.active, iteration.unseen(), list(iteration))
