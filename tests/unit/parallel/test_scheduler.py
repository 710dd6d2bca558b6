"""Scheduler: orders, retries and closed partitions, with workers in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.scheduler import Scheduler, Task


def record(partition: int, offset: int, key: object = None) -> ConsumerRecord:
    """Returns a record."""
    return ConsumerRecord("orders", partition, offset, key=key)


def tracker(partition: int = 0) -> OffsetTracker:
    """Returns the tracker of a partition."""
    return OffsetTracker(TopicPartition("orders", partition))


def add(scheduler: Scheduler, to: OffsetTracker, batch: Sequence[ConsumerRecord]) -> None:
    """Add records as a run does."""
    scheduler.add(to, to.take(batch, batch[-1].offset + 1, 0))


def offsets(tasks: Sequence[Task]) -> list[int]:
    """Returns the offsets of tasks."""
    return [task[2].offset for task in tasks]


def test_no_order_starts_all_records() -> None:
    """With order="none", each worker gets its share of the ready records, and all may run at a time."""
    scheduler = Scheduler("none", workers=2)
    add(scheduler, tracker(), [record(0, n, b"same") for n in range(8)])
    assert [[0, 1, 2, 3], [4, 5], [6], [7], []] == [offsets(scheduler.take(64, 0.0)) for _ in range(5)]


def test_a_partition_is_one_shard() -> None:
    """With order="partition", one record of each partition runs at a time, and partitions take turns."""
    scheduler = Scheduler("partition", workers=1)
    for partition in (0, 1):
        add(scheduler, tracker(partition), [record(partition, n) for n in range(3)])
    started = []
    for _ in range(3):
        tasks = scheduler.take(64, 0.0)
        started += [(task[2].partition, task[2].offset) for task in tasks]
        for task in tasks:
            scheduler.finish(task)
    assert [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)] == started
    assert 0 == scheduler.in_flight


def test_a_key_is_a_shard_within_its_partition() -> None:
    """With order="key", records with other keys, of other partitions or without a key do not wait."""
    scheduler = Scheduler("key", workers=1)
    add(scheduler, tracker(0), [record(0, 0, "a"), record(0, 1, "a"), record(0, 2, "b"), record(0, 3), record(0, 4)])
    add(scheduler, tracker(1), [record(1, 9, "a")])
    first, *others = scheduler.take(64, 0.0)
    assert [0, 2, 3, 4, 9] == offsets([first, *others])
    scheduler.finish(first)
    assert [1] == offsets(scheduler.take(64, 0.0))


def test_an_unhashable_key_is_refused() -> None:
    """A key that a deserializer made unhashable raises an error that says what to change."""
    scheduler = Scheduler("key", workers=1)
    with pytest.raises(TypeError, match=r'with order="key" a key must be hashable, which a dict is not: use another'):
        scheduler.add(tracker(), [record(0, 0, {"id": 1})])


def test_a_retry_delays_only_its_shard() -> None:
    """While a record waits for its retry, the next one of its shard waits, and others do not. It comes first then."""
    scheduler = Scheduler("key", workers=1)
    add(scheduler, tracker(), [record(0, 0, "a"), record(0, 1, "a"), record(0, 2, "b"), record(0, 3, "b")])
    failing, other = scheduler.take(64, 0.0)
    scheduler.delay(failing, 100.0)
    scheduler.finish(other)
    assert 100.0 == scheduler.next_due()
    assert [3] == offsets(scheduler.take(64, 99.0))
    [again] = scheduler.take(64, 100.0)
    assert (failing, None) == (again, scheduler.next_due())
    scheduler.finish(again)
    assert [1] == offsets(scheduler.take(64, 100.0))


def test_records_of_a_delay_topic_start_when_they_are_due() -> None:
    """Only their shards wait. A record whose turn comes later than it is due starts at once."""
    for order, expected in (("none", [[2], [1, 0], []]), ("key", [[2], [0], [1]]), ("partition", [[], [0], [1]])):
        scheduler, delayed = Scheduler(order, workers=1), tracker()
        delayed.due = {0: 100.0, 1: 50.0}
        add(scheduler, delayed, [record(0, 0, "a"), record(0, 1, "a"), record(0, 2, "b")])
        assert {"none": 2, "key": 1, "partition": 1}[order] == scheduler.delayed
        assert len(expected[0]) == scheduler.runnable
        for now, started in zip((49.0, 100.0, 100.0), expected, strict=True):
            tasks = scheduler.take(64, now)
            assert started == offsets(tasks)
            for task in tasks:
                scheduler.finish(task)
        assert {} == delayed.due


def test_a_closed_partition_starts_nothing() -> None:
    """Ready, waiting and delayed records of a closed partition are dropped; one that runs may still finish."""
    scheduler = Scheduler("key", workers=1)
    closed, other = tracker(0), tracker(1)
    add(scheduler, closed, [record(0, n, "ab"[n % 2]) for n in range(6)])
    running, delayed = scheduler.take(64, 0.0)
    add(scheduler, closed, [record(0, 6, "c")])
    add(scheduler, other, [record(1, 0, "a")])
    scheduler.delay(delayed, 5.0)
    scheduler.close([closed])
    assert (2, None) == (scheduler.in_flight, scheduler.next_due())
    assert [(1, 0)] == [(task[2].partition, task[2].offset) for task in scheduler.take(64, 0.0)]
    scheduler.finish(running)
    assert 1 == scheduler.in_flight
