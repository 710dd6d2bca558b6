"""BatchScheduler: which records are started together, for handlers of several records.

A batch consists of groups: the records of one shard, in their order. So a shard is never in two batches that run at the
same time. A record that is tried for the last time, and one that a deserializer has refused, is a batch of its own:
otherwise a record that fails whatever it is processed with would take others with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kconsumer.parallel.batches import Batch
from kconsumer.parallel.scheduler import Scheduler, Task
from kconsumer.parallel.settings import Settings

Group = list[Task]  # of one shard, or a single record without order


class Failure(NamedTuple):
    """How a record has failed. The defaults are for one that was processed alone."""

    rest: Sequence[tuple[Task, bool]] = ()  # the tasks after it in its group, and whether they have failed
    undivided: bool = False  # others have failed with it, and it is not known whether it was the cause
    counts: bool = True  # for the circuit breaker, to which a batch is one attempt


ALONE = Failure()


class BatchScheduler(Scheduler):
    """Of the records that are started, `runnable` counts the first one of each group."""

    def __init__(self, settings: Settings, batch: Batch) -> None:
        super().__init__(settings.order, settings.workers, settings.max_waiting)
        self._batch = batch
        self._attempts = settings.retry.attempts
        self._waiting_since: float | None = None  # ms; a free worker waits for more records than there are

    def take_batch(self, limit: float, now: float) -> list[Group]:
        """Returns the groups of a batch of up to `limit` records, or none while a worker should wait for more."""
        if self._delayed:
            self._move_due(now)
        if not self.ready or limit < 1:
            self._waiting_since = None
            return []
        if not self._is_complete():
            if self._waiting_since is None:
                self._waiting_since = now
            if now < self._waits_until(self._waiting_since):
                return []
        self._waiting_since = None
        return self._form(int(min(limit, self._batch.max_records)))

    def next_due(self) -> float | None:
        """Returns the time (ms) of the next retry, or of a batch that is not complete, or None."""
        due = super().next_due()
        if self._waiting_since is None:
            return due
        until = self._waits_until(self._waiting_since)
        return until if due is None else min(due, until)

    def _waits_until(self, since: float) -> float:
        return since + self._batch.max_wait_s * 1000

    def _is_complete(self) -> bool:
        """Returns True if there is nothing to wait for."""
        count = 0
        for task in self.ready:
            tracker, shard, _ = task
            count += 1 if shard is None else 1 + len(tracker.shards[shard] or ())
            if count >= self._batch.max_records or self._is_alone(task):
                return True
        return False

    def _form(self, limit: int) -> list[Group]:
        groups: list[Group] = []
        while self.ready and limit > 0:
            alone = self._is_alone(self.ready[0])
            if alone and groups:
                break
            group = [self.ready.popleft()]
            groups.append(group)
            if alone:
                break
            self._fill(group, limit)
            limit -= len(group)
        return groups

    def _fill(self, group: Group, limit: int) -> None:
        """Add the records that wait behind the first one."""
        tracker, shard, _ = group[0]
        waiting = None if shard is None else tracker.shards[shard]
        while waiting and len(group) < limit and not self._must_wait((tracker, shard, waiting[0])):
            group.append((tracker, shard, waiting.popleft()))

    def _must_wait(self, task: Task) -> bool:
        return task[2].offset in task[0].due or self._is_alone(task)

    def _is_alone(self, task: Task) -> bool:
        tracker, _, record = task
        return record.offset in tracker.poisoned or tracker.failures.get(record.offset, 0) >= max(1, self._attempts - 1)
