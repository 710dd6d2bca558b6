"""Batches: which records are started together, how long a worker waits for more, and what a failure means for each."""

from __future__ import annotations

import pickle
import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.errors import ConfigError
from kconsumer.parallel import Batch, PartialBatchError, Retry
from kconsumer.parallel.attempt import Call, Failures
from kconsumer.parallel.batch_calls import BatchCalls
from kconsumer.parallel.batch_scheduler import BatchScheduler
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.flows import run_flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.settings import Settings
from kconsumer.parallel.work_queue import Worker, WorkQueue

ATTEMPTS, MAX_RECORDS, PARTITIONS = 3, 5, 3


class StandingClock:
    """A clock that a test sets."""

    now_ms = 0.0

    def now(self) -> float:
        """Returns the time of the test."""
        return self.now_ms


class Refused(ValueError):
    """An error that is not tried again."""


class World:
    """Workers in virtual time. Their handlers take random times, and fail in all ways at random."""

    def __init__(self, order: Any, seed: int, workers: int) -> None:
        self.rng = random.Random(seed)
        self.order = order
        self.clock = StandingClock()
        self.finished: dict[object, list[int]] = defaultdict(list)  # shard -> offsets in the order of their ends
        self.failures: Counter[tuple[int, int]] = Counter()
        self.due: dict[tuple[int, int], float] = {}  # (partition, offset) of the records of a delay topic
        self.named = False  # the handler has said which records have failed
        settings = Settings(
            workers=workers,
            order=order,
            batch=Batch(MAX_RECORDS, self.rng.choice([0, 0.01])),
            retry=Retry(ATTEMPTS, self.rng.choice([0, 0.02]), never=(Refused,)),
            on_failure=self.give_up,
        )
        self.queue = WorkQueue(settings, Concurrency(self.clock), lambda: None)  # type: ignore[arg-type]
        self.calls = BatchCalls(Call(print, settings), self.queue, Failures(self.queue, settings))
        self.trackers = [OffsetTracker(TopicPartition("t", partition)) for partition in range(PARTITIONS)]
        self.free = [self.queue.new_worker() for _ in range(workers)]
        self.running: list[tuple[float, Worker, BaseException | None]] = []  # (end, worker, error)

    def shard(self, record: ConsumerRecord) -> object:
        """Returns what must be processed in order with this record, by the words of the documentation."""
        if self.order == "none" or (self.order == "key" and record.key is None):
            return record.partition, record.offset
        return record.partition if self.order == "partition" else (record.partition, record.key)

    def produce(self) -> None:
        """Add records to a partition. A deserializer has refused the last one. Partition 0 is of a delay topic."""
        at = self.rng.randrange(PARTITIONS)
        to = self.trackers[at]
        first = max(0, to.end) + self.rng.randrange(3)
        batch = [ConsumerRecord("t", at, first + n, key=self.rng.choice(["a", "b", None])) for n in range(9)]
        to.poisoned[batch[-1].offset] = ValueError("not JSON")
        if at == 0:
            to.due.update((record.offset, self.clock.now_ms + self.rng.expovariate(0.02)) for record in batch)
            self.due.update(((at, offset), due) for offset, due in to.due.items())
        self.queue.add(to, to.take(batch, first + 9, 0))

    def revoke(self) -> None:
        """Close a partition, wait for its handlers, and let another tracker take its place."""
        at = self.rng.randrange(PARTITIONS)
        closed = self.trackers[at]
        self.queue.close([closed])
        while self.queue.running([closed]):
            self.work()
        self.trackers[at] = OffsetTracker(closed.topic_partition)
        self.trackers[at].end = closed.end

    def work(self) -> None:
        """Give batches to free workers, and let the next one end."""
        while self.free and self.queue.exchange(self.free[-1], wait=False):
            self.start(self.free.pop())
        if not self.running:
            self.clock.now_ms = self.queue.next_due() or self.clock.now_ms
            return
        at, worker, error = ended = min(self.running, key=lambda entry: entry[0])
        self.running.remove(ended)
        self.clock.now_ms = max(at, self.clock.now_ms)
        self.end(worker, error)
        self.queue.rest(worker)
        self.free.append(worker)

    def start(self, worker: Worker) -> None:
        """Begin a batch. Check that its records may be started together, and now."""
        others = {self.shard(task[2]) for _, other, _ in self.running for task in other.started}
        error = self.calls.begin(worker)
        records = [task[2] for task in worker.started]
        assert set() == others & {self.shard(record) for record in records}
        assert len(records) <= MAX_RECORDS
        assert all(self.due.get((record.partition, record.offset), 0) <= self.clock.now_ms for record in records)
        offsets: dict[object, list[int]] = defaultdict(list)
        for record in records:
            offsets[self.shard(record)].append(record.offset)
        assert [] == [found for found in offsets.values() if found != sorted(set(found))]
        last = [record for record in records if self.failures[record.partition, record.offset] >= ATTEMPTS - 1]
        assert not last or len(records) == 1
        error = error or self.error(len(records))
        self.running.append((self.clock.now_ms + self.rng.expovariate(0.1), worker, error))

    def error(self, count: int) -> BaseException | None:
        """Returns how a batch ends."""
        some = [at for at in range(count) if self.rng.random() < 0.3]
        errors = [None, Refused(), ConnectionError(), PartialBatchError(some), PartialBatchError([count])]
        return self.rng.choice([*errors, PartialBatchError(dict.fromkeys(some, Refused()))])

    def end(self, worker: Worker, error: BaseException | None) -> None:
        """End a batch. Note which of its records are finished."""
        tasks, batch = worker.started, worker.batch
        errors = error.errors(len(tasks)) if isinstance(error, PartialBatchError) else None
        self.named = errors is not None or len(tasks) == 1
        for (_, _, record), failed in zip(tasks, errors or [error] * len(tasks), strict=True):
            self.failures[record.partition, record.offset] += failed is not None
        unfinished = {id(task): task[2].offset in task[0].unfinished for task in tasks}
        run_flow(self.calls.end(batch, error))
        for task in tasks:
            tracker, _, record = task
            if unfinished[id(task)] and record.offset not in tracker.unfinished:
                self.finished[self.shard(record)].append(record.offset)

    def give_up(self, record: ConsumerRecord, error: BaseException) -> None:
        """What follows the last attempt. A record is not the cause only because its batch has failed."""
        assert self.named or self.failures[record.partition, record.offset] == ATTEMPTS


@given(st.sampled_from(["none", "partition", "key"]), st.integers(0, 2**32), st.integers(1, 4))
def test_every_record_finishes_once_and_in_order(order: str, seed: int, workers: int) -> None:
    """With any durations, failures and revocations, a shard is in one batch at a time, in the order of offsets.

    No record is finished twice, and none is lost unless its partition was revoked.
    """
    world = World(order, seed, workers)
    for _ in range(60):
        (world.produce if world.rng.random() < 0.2 else world.work)()
        if world.rng.random() < 0.03:
            world.revoke()
    for _ in range(3000):
        if not world.queue.in_flight and not world.running:
            break
        world.work()
    assert (0, 0, 0) == (world.queue.in_flight, world.queue.runnable, world.queue.delayed)
    assert {} == {shard: ended for shard, ended in world.finished.items() if ended != sorted(set(ended))}
    assert [True] * PARTITIONS == [not (to.unfinished or to.shards or to.failures or to.due) for to in world.trackers]


def scheduler_of(order: str, records: list[ConsumerRecord], **settings: Any) -> BatchScheduler:
    """Returns a scheduler with records."""
    chosen = Settings(order=order, **settings)
    assert chosen.batch is not None
    scheduler, to = BatchScheduler(chosen, chosen.batch), OffsetTracker(TopicPartition("t", 0))
    scheduler.add(to, to.take(records, records[-1].offset + 1, 0))
    return scheduler


def taken(scheduler: BatchScheduler, now: float = 0.0, limit: float = 100) -> list[list[int]]:
    """Returns the offsets of the groups of the next batch."""
    return [[task[2].offset for task in group] for group in scheduler.take_batch(limit, now)]


def test_a_batch_has_records_of_several_orders() -> None:
    """It is filled with those that wait behind the first record of each key, up to the number that may be started."""
    records = [ConsumerRecord("t", 0, n, key="aabb"[n % 4]) for n in range(12)]
    scheduler = scheduler_of("key", records, batch=Batch(8))
    assert [[0, 1, 4, 5, 8, 9], [2, 3]] == taken(scheduler)
    assert [] == taken(scheduler)
    assert [[0, 1, 4]] == taken(scheduler_of("key", records, batch=Batch(8)), limit=3)


def test_a_free_worker_waits_for_a_full_batch() -> None:
    """It waits for `max_wait_s` at most, from when it has found fewer records, and not at all for a full batch."""
    records = [ConsumerRecord("t", 0, n) for n in range(3)]
    scheduler = scheduler_of("none", records, batch=Batch(4, 0.5))
    assert ([], 1500.0, []) == (taken(scheduler, 1000), scheduler.next_due(), taken(scheduler, 1499))
    assert ([[0], [1], [2]], None) == (taken(scheduler, 1500), scheduler.next_due())
    scheduler = scheduler_of("none", records, batch=Batch(3, 0.5))
    assert [[0], [1], [2]] == taken(scheduler)


def test_the_error_of_some_records() -> None:
    """It has the errors of records by their index, also in another process. Indices of no record mean all."""
    error = pickle.loads(pickle.dumps(PartialBatchError({1: KeyError(7)}, "one of them")))
    assert (repr([None, KeyError(7), None]), "one of them") == (repr(error.errors(3)), str(error))
    error = PartialBatchError([2, 0])
    assert ([error, None, error], None) == (error.errors(3), error.errors(2))
    assert None is PartialBatchError([]).errors(2)


def test_more_records_are_in_flight_than_run() -> None:
    """At least two batches for each worker, whatever `max_in_flight` says."""
    assert [1600, 3000] == [Settings(batch=Batch(100), max_in_flight=most).max_in_flight for most in (1000, 3000)]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Batch(0), "max_records must be an integer of at least 1"),
        (lambda: Batch(1, -1), "max_wait_s must be a number of seconds"),
        (lambda: Settings(batch=100), "batch must be a Batch"),  # type: ignore[arg-type]
    ],
)
def test_values_that_are_not_possible(create: Any, message: str) -> None:
    """A ConfigError names the argument."""
    with pytest.raises(ConfigError, match=message):
        create()
