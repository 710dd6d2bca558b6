"""WorkQueue: what workers take from each other, how long they wait, and errors of user code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.parallel.async_processor import LoopConcurrency, LoopQueue
from kconsumer.parallel.concurrency import Concurrency, Condition
from kconsumer.parallel.flows import await_flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.settings import Settings
from kconsumer.parallel.work_queue import RECLAIM_INTERVAL_S, Worker, WorkQueue
from kconsumer.testing.clock import VirtualClock


class Waited(Exception):
    """A worker began to wait."""


class RefusingCondition:
    """A condition whose waits raise, with the time after which they would end."""

    def wait(self, timeout: float | None = None) -> bool:
        """Raise an error."""
        raise Waited(timeout)

    def notify(self, n: int = 1) -> None:
        """Do nothing."""

    notify_all = notify


class OneThread(Concurrency):
    """What a queue uses in a test of one thread."""

    def condition(self, lock: Any) -> Condition:
        """Returns a condition for which nothing waits."""
        return RefusingCondition()


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of the queue."""
    return VirtualClock()


def queue_of(clock: VirtualClock, records: int, **settings: Any) -> tuple[WorkQueue, OffsetTracker]:
    """Returns a queue with records of a partition, and their tracker."""
    queue = WorkQueue(Settings(workers=2, order="none", **settings), OneThread(clock), lambda: None)  # type: ignore[arg-type]
    tracker = OffsetTracker(TopicPartition("t", 0))
    queue.add(tracker, tracker.take([ConsumerRecord("t", 0, n) for n in range(records)], records, 0))
    return queue, tracker


def taken(worker: Worker) -> list[int]:
    """Returns the offsets that a worker has taken and not started."""
    return [task[2].offset for task in worker.tasks]


def test_a_busy_worker_takes_what_a_slow_one_has_not_started(clock: VirtualClock) -> None:
    """Though other records are ready, those that were taken with a slow one do not wait for its handler."""
    queue, _ = queue_of(clock, 100)
    slow, busy = queue.new_worker(), queue.new_worker()
    slow.limit = 4
    queue.exchange(slow)
    slow.current = slow.tasks.popleft()
    clock.advance(1000 * RECLAIM_INTERVAL_S - 1)
    queue.exchange(busy)
    assert ([1, 2, 3], [4]) == (taken(slow), taken(busy))
    busy.tasks.clear()
    clock.advance(1000 * RECLAIM_INTERVAL_S)
    queue.exchange(busy)
    assert ([], [1]) == (taken(slow), taken(busy))


def test_an_idle_worker_does_not_wait_while_another_has_records(clock: VirtualClock) -> None:
    """It takes what another one has not started, though that one has not started its first record yet either."""
    queue, _ = queue_of(clock, 7)
    other, idle = queue.new_worker(), queue.new_worker()
    other.limit = 4
    queue.exchange(other)
    other.tasks.popleft()  # it will be `current` next
    started = []
    while len(started) < 6 and queue.exchange(idle):
        started += taken(idle)
        idle.done.append(idle.tasks.popleft())
    with pytest.raises(Waited, match="None"):
        queue.exchange(idle)
    assert [1, 2, 3, 4, 5, 6] == sorted(started)


def test_an_error_that_takes_no_note_ends_the_run(clock: VirtualClock) -> None:
    """An exception whose notes cannot be extended is the error of the run like any other."""
    queue, _ = queue_of(clock, 1)
    worker = queue.new_worker()
    queue.exchange(worker)
    error = ValueError()
    error.__notes__ = "mine"  # type: ignore[assignment]
    queue.give_up(worker.tasks.popleft(), error)
    assert (error, True) == (queue.error, queue.stopping)


def test_records_that_wait_are_not_runnable(clock: VirtualClock) -> None:
    """A record that waits for its retry makes room for another one."""
    queue, _ = queue_of(clock, 3)
    worker = queue.new_worker()
    queue.exchange(worker)
    assert queue.retry(worker.tasks.popleft(), ValueError())
    assert (3, 2) == (queue.in_flight, queue.runnable)
    clock.advance(1e6)
    queue.exchange(worker)
    assert (3, 3) == (queue.in_flight, queue.runnable)


@pytest.mark.parametrize("steps", range(6))
def test_a_wait_in_an_event_loop_can_always_be_cancelled(steps: int) -> None:
    """Also if the loop has just notified it, whatever of this has happened by then."""

    async def run() -> bool:
        queue = LoopQueue(Settings(), LoopConcurrency(), lambda: None)
        task = asyncio.create_task(await_flow(queue.wait_until(lambda: False, 20.0)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.close([], all_work=True)
        queue.exchange(queue.new_worker(), wait=False)  # notifies it
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5.0)
        return task.cancelled()

    assert asyncio.run(run())
