"""Scheduler: which record is started next, so that the chosen order holds.

It does not run anything, and does not wait: `now` is an argument. The work queue calls it under a lock.

A shard is a sequence of records that must be processed one after the other: a partition, or a key within a partition.
At most one record of a shard is started or ready. The next ones wait in `OffsetTracker.shards`, where a shard has an
entry while one of its records is unfinished. So the ready queue contains each shard once, and every shard has its turn.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from kconsumer._core.decode import ConsumerRecord
from kconsumer.parallel.offset_tracker import OffsetTracker

Task = tuple[OffsetTracker, Hashable, ConsumerRecord]  # the middle is the shard, or None for a record without order
ONLY_SHARD = "partition"


def _by_partition(record: ConsumerRecord) -> Hashable:
    return ONLY_SHARD


def _by_key(record: ConsumerRecord) -> Hashable:
    key: Hashable = record.key
    return key


ORDERS: dict[str, Callable[[ConsumerRecord], Hashable] | None] = {
    "partition": _by_partition,
    "key": _by_key,
    "none": None,
}


class Scheduler:
    """The records of all partitions that were taken from the consumer, until they are finished."""

    def __init__(
        self, order: str | Callable[[ConsumerRecord], Hashable], workers: int, max_waiting: int = 1000
    ) -> None:
        """Create a scheduler. It notes shards behind whose first record `max_waiting` others wait."""
        self.in_flight = 0  # records that were added and are neither finished nor dropped
        self.runnable = 0  # those of them that are ready or started; the others wait for a retry, or behind their shard
        self.ready: deque[Task] = deque()
        self._shard_of = order if callable(order) else ORDERS[order]
        self._workers = workers
        self._max_waiting = max_waiting
        self._delayed: list[tuple[float, int, Task]] = []  # a heap: when it is due, its number, the task
        self._retries = 0

    def add(
        self,
        tracker: OffsetTracker,
        records: Sequence[ConsumerRecord],
        ordered_as: ConsumerRecord | None = None,
    ) -> None:
        """Add records of a partition, in the order of their offsets. Raises TypeError if a key is not hashable.

        With `ordered_as`, the only one was refused by a deserializer, and is in the shard of that record. Raises what
        a function raises that is the order.
        """
        before, shard_of = len(self.ready), self._shard_of
        if shard_of is None:
            self._add_in_any_order(tracker, records)
        elif ordered_as is None:  # not `map`, for which a StopIteration of the function would be the end
            self._add_to_shards(tracker, records, [shard_of(record) for record in records])
        else:
            self._add_to_shards(tracker, records, [_shard_of_refused(shard_of, ordered_as)])
        self.runnable += len(self.ready) - before
        self.in_flight += len(records)

    def _add_in_any_order(self, tracker: OffsetTracker, records: Sequence[ConsumerRecord]) -> None:
        tasks: list[Task] = [(tracker, None, record) for record in records]
        if tracker.due:
            for task in tasks:
                self._make_ready(task)
        else:
            self.ready.extend(tasks)

    def _make_ready(self, task: Task) -> bool:
        """Add a task to the ready ones. Returns False if its record is not due yet: it is delayed."""
        due = task[0].due.get(task[2].offset)
        if due is None:
            self.ready.append(task)
        else:
            self._add_delayed(task, due)
        return due is None

    def _add_to_shards(
        self, tracker: OffsetTracker, records: Sequence[ConsumerRecord], keys: Sequence[Hashable]
    ) -> None:
        shards = tracker.shards
        ready: Callable[[Task], object] = self._make_ready if tracker.due else self.ready.append
        _check_hashable(keys)
        for shard, record in zip(keys, records, strict=True):
            if shard is None:  # without a key there is no order
                ready((tracker, None, record))
            elif shard in shards:
                waiting = shards[shard]
                if waiting is None:
                    waiting = shards[shard] = deque()
                waiting.append(record)
                if len(waiting) >= self._max_waiting:
                    tracker.long_shards.add(shard)
            else:
                shards[shard] = None
                ready((tracker, shard, record))

    def take(self, limit: int, now: float) -> list[Task]:
        """Returns up to `limit` tasks to start. They belong to different shards.

        With fewer ready tasks, returns only a fair share of them, so that other workers have work, too.
        """
        if self._delayed:
            self._move_due(now)
        ready = self.ready
        count = min(limit, -(-len(ready) // self._workers))
        return [ready.popleft() for _ in range(count)]

    def _move_due(self, now: float) -> None:
        due = []
        while self._delayed and self._delayed[0][0] <= now:
            due.append(heapq.heappop(self._delayed)[2])
        for tracker, _, record in due:
            tracker.due.pop(record.offset, None)
        self.runnable += len(due)
        self.ready.extendleft(reversed(due))

    @property
    def delayed(self) -> int:
        """The number of tasks that wait for a retry, or are of a delay topic and not due."""
        return len(self._delayed)

    def delayed_tasks(self) -> list[Task]:
        return [task for _, _, task in self._delayed]

    def next_due(self) -> float | None:
        """Returns the time (ms) at which the next of these tasks is due, or None."""
        return self._delayed[0][0] if self._delayed else None

    def delay(self, task: Task, due: float) -> None:
        """Start a task again at the time `due` (ms). Its shard waits, all others do not."""
        if task[0].closed:
            self.drop(task)
            return
        self.runnable -= 1
        self._add_delayed(task, due)

    def _add_delayed(self, task: Task, due: float) -> None:
        self._retries += 1
        heapq.heappush(self._delayed, (due, self._retries, task))

    def finish(self, task: Task | None) -> None:
        """End a task whose record is finished. The next record of its shard becomes ready.

        None is a task whose worker has already started the next record of the shard.
        """
        self.in_flight -= 1
        if task is None:
            return
        tracker, shard, _ = task
        if shard is None or tracker.closed:
            self.runnable -= 1
            return
        waiting = tracker.shards[shard]
        if waiting:
            if not self._make_ready((tracker, shard, waiting.popleft())):
                self.runnable -= 1
        else:
            del tracker.shards[shard]
            self.runnable -= 1

    def put_back(self, tasks: Sequence[Task]) -> None:
        """Let records wait again behind an earlier one of their shard, with which they were started."""
        if tasks:
            tracker, shard, _ = tasks[0]
            waiting = tracker.shards[shard] or deque()
            waiting.extendleft(record for _, _, record in reversed(tasks))
            tracker.shards[shard] = waiting

    def drop(self, task: Task, followers: int = 0) -> None:
        """End a task of a closed tracker whose record was not started, or failed. The record stays unfinished.

        So do those of the `followers` of its shard that were started with it.
        """
        self.in_flight -= 1 + followers
        self.runnable -= 1

    def close(self, trackers: Collection[OffsetTracker]) -> None:
        """Drop the records of these partitions that are not started. Those that are started may still finish."""
        for tracker in trackers:
            tracker.closed = True
            for waiting in tracker.shards.values():
                self.in_flight -= _drain(waiting)
            tracker.shards.clear()
        kept = [task for task in self.ready if not task[0].closed]
        delayed = [entry for entry in self._delayed if not entry[2][0].closed]
        self.runnable -= len(self.ready) - len(kept)
        self.in_flight -= len(self.ready) - len(kept) + len(self._delayed) - len(delayed)
        self.ready = deque(kept)
        heapq.heapify(delayed)
        self._delayed = delayed


def _drain(waiting: deque[ConsumerRecord] | None) -> int:
    """Remove the records of a shard, from which a worker may take one at the same time. Returns their number."""
    count = 0
    while waiting:
        try:
            waiting.popleft()
        except IndexError:
            break
        count += 1
    return count


def _shard_of_refused(shard_of: Callable[[ConsumerRecord], Hashable], record: ConsumerRecord) -> Hashable:
    """Returns the shard of a record whose key or value may be bytes in place of what the function expects.

    It has no order if the function cannot have meant that.
    """
    try:
        shard = shard_of(record)
        hash(shard)
    except Exception:
        return None
    return shard


def _check_hashable(keys: Iterable[Hashable]) -> None:
    try:
        hash(tuple(keys))
    except TypeError:
        for key in keys:
            try:
                hash(key)
            except TypeError as error:
                raise TypeError(
                    f'with order="key" a key must be hashable, which a {type(key).__name__} is not: use another '
                    'key_deserializer, or order="partition", or a function of the record'
                ) from error
        raise
