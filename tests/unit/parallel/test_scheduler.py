"""Scheduler: orders, retries and closed partitions, with workers in virtual time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


class World:
    """Workers in virtual time, which process records for random times and fail at random."""

    def __init__(self, order: str, seed: int, workers: int) -> None:
        self.rng = random.Random(seed)
        self.order = order
        self.scheduler = Scheduler(order, workers)
        self.trackers = [tracker(partition) for partition in range(3)]
        self.now = 0.0
        self.running: list[tuple[float, Task]] = []  # (end, task)
        self.due: dict[int, float] = {}  # offset of the records of partition 0, which is of a delay topic
        self.free = workers
        self.finished: dict[object, list[int]] = defaultdict(list)  # shard -> offsets in the order of their ends

    def shard(self, item: ConsumerRecord) -> object:
        """Returns what must be processed in order with this record, by the words of the documentation."""
        if self.order == "none" or (self.order == "key" and item.key is None):
            return (item.partition, item.offset)
        return item.partition if self.order == "partition" else (item.partition, item.key)

    def produce(self) -> None:
        """Add a batch of random records."""
        to = self.rng.choice(self.trackers)
        first = max(0, to.end) + self.rng.randrange(3)
        keys = ["a", "b", "c", None]
        partition = to.topic_partition.partition
        if partition == 0:
            to.due.update((first + n, self.now + self.rng.expovariate(0.02)) for n in range(1, 8))
            self.due.update(to.due)
        add(self.scheduler, to, [record(partition, first + n, self.rng.choice(keys)) for n in range(1, 8)])

    def work(self) -> None:
        """Give tasks to free workers, and let the next one end."""
        while self.free and (tasks := self.scheduler.take(1, self.now)):
            self.free -= 1
            assert all(task[2].partition or self.due[task[2].offset] <= self.now for task in tasks)
            self.running += [(self.now + self.rng.expovariate(0.1), task) for task in tasks]
        shards = [self.shard(task[2]) for _, task in self.running]
        assert len(shards) == len(set(shards))
        if self.running:
            ended = min(self.running, key=lambda entry: entry[0])
            self.running.remove(ended)
            self.now, task = ended
            self.free += 1
            self.end(task)
        else:
            self.now = self.scheduler.next_due() or self.now

    def end(self, task: Task) -> None:
        """End a task. A third of the attempts fail."""
        if self.rng.random() < 0.3:
            self.scheduler.delay(task, self.now + self.rng.expovariate(0.05))
            return
        self.finished[self.shard(task[2])].append(task[2].offset)
        task[0].finish(task[2].offset)
        self.scheduler.finish(task)


@given(st.sampled_from(["none", "partition", "key"]), st.integers(0, 2**32), st.integers(1, 5))
def test_every_record_finishes_once_and_in_order(order: str, seed: int, workers: int) -> None:
    """With any durations and failures, a shard has one record at a time, in the order of offsets, and none is lost."""
    world = World(order, seed, workers)
    for _ in range(60):
        (world.produce if world.rng.random() < 0.2 else world.work)()
    for _ in range(5000):
        if not world.scheduler.in_flight:
            break
        world.work()
    assert 0 == world.scheduler.in_flight
    assert {} == {shard: ended for shard, ended in world.finished.items() if ended != sorted(set(ended))}
    assert [True] * 3 == [not (to.unfinished or to.shards or to.due) for to in world.trackers]
