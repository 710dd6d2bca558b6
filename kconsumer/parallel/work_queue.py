"""WorkQueue: the scheduler, shared by the thread that polls and by the workers of an executor.

Decides when a worker or the polling thread waits, and when it is notified. All changes of the scheduler are made under
one lock. A worker takes several records at once if their handlers return quickly, because to take the lock for each
record would cost more than the record. What it has taken, or has finished without releasing it, another worker that
has nothing to do takes from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from kconsumer._core.decode import ConsumerRecord
from kconsumer.parallel.batch_scheduler import ALONE, BatchScheduler, Failure, Group
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.gate import Gate
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.producers import Message
from kconsumer.parallel.scheduler import Scheduler, Task
from kconsumer.parallel.settings import Settings

MAX_BATCH = 64  # records that a worker takes at once
FAST_MS, SLOW_MS = 0.5, 2.0  # the time of such a batch, below which the next is larger, and above which it is smaller
RECLAIM_INTERVAL_S = 0.02  # how often an idle worker checks whether another one has records that it has not started
DRAIN_INTERVAL_S = 0.005  # how often a thread that waits for handlers checks whether they have returned


def note(error: BaseException, text: str) -> None:
    """Add a note to an error of user code, which may refuse it in any way."""
    with suppress(BaseException):
        error.add_note(text)


class Worker:
    """What one worker has taken. Only its own thread appends, but other workers may take records away."""

    __slots__ = (
        "batch",
        "busy_ms",
        "claim",
        "current",
        "done",
        "handled",
        "limit",
        "longest_ms",
        "started_at",
        "taken_at",
        "tasks",
    )

    def __init__(self) -> None:
        self.tasks: deque[Task] = deque()  # not started
        self.current: Task | None = None  # started last
        self.batch: list[Group] = []  # in place of `tasks` and `current`, for a handler of several records
        # Finished, and not yet known to the scheduler. None: a record whose shard the worker still has.
        self.done: deque[Task | None] = deque()
        self.limit = 1  # how many tasks it takes at once
        self.taken_at = 0.0  # when it took tasks (ms)
        # With `handler_timeout_s` in threads: when the handler was called (ms), and its task. Whichever thread removes
        # the task decides how it ends: the worker when the handler returns, or `expire`.
        self.started_at = 0.0
        self.claim: deque[Task] = deque()
        # For metrics: the records that were handled since the last `take_times`, their time, and that of the slowest.
        self.handled, self.busy_ms, self.longest_ms = 0, 0.0, 0.0

    @property
    def started(self) -> list[Task]:
        """The tasks whose handler may not have returned."""
        current = self.current
        return [task for group in self.batch for task in group] if current is None else [current]

    def took(self, count: int, took_ms: float) -> None:
        """Note the time of `count` handlers."""
        self.handled += count
        self.busy_ms += took_ms
        self.longest_ms = max(self.longest_ms, took_ms / max(1, count))

    def take_times(self) -> tuple[float, float]:
        """Returns the mean and the longest time (ms) of the handlers since the last call.

        A handler that returns at the same time on its thread may be left out.
        """
        mean_ms, longest_ms = self.busy_ms / max(1, self.handled), self.longest_ms
        self.handled, self.busy_ms, self.longest_ms = 0, 0.0, 0.0
        return mean_ms, longest_ms

    def adapt(self, count: int, took_ms: float) -> None:
        """Set the limit for the next batch, after one of `count` records."""
        if took_ms > SLOW_MS:
            self.limit = max(1, self.limit // 4)
        elif took_ms < FAST_MS and count >= self.limit:
            self.limit = min(MAX_BATCH, self.limit * 2)


class WorkQueue:
    """The records in flight, with waits and notifications for several threads."""

    def __init__(self, settings: Settings, concurrency: Concurrency, on_error: Callable[[], None]) -> None:
        self.error: BaseException | None = None  # the first error that ends the run
        # True: the run ends, and workers start nothing more. Set without the lock, because signal handlers set it.
        self.stopping = False
        self.processed = self.failed = self.retries = 0
        self.workers: list[Worker] = []
        self.on_ready: Callable[[], None] | None = None  # notifies an executor whose workers do not wait in `exchange`
        self.on_expired: Callable[[Worker, Task], None] | None = None  # replaces a worker whose handler takes too long
        self.gate = Gate(settings)
        # Records whose last attempt failed, and what a transaction must contain before they are finished.
        self.handed_over: deque[tuple[OffsetTracker, int, Message]] = deque()
        self._settings = settings
        self._scheduler = (
            Scheduler(settings.order, settings.workers, settings.max_waiting)
            if settings.batch is None
            else BatchScheduler(settings, settings.batch)
        )
        self._now = concurrency.clock.now
        self._on_error = on_error
        self._lock = concurrency.lock()
        self._work = concurrency.condition(self._lock)  # workers wait for records
        self._room = concurrency.condition(self._lock)  # the polling thread waits for room, or for handlers
        self._idle = 0  # workers that wait
        self._next_check = 0.0  # when busy workers check again whether another one is slow (ms)
        self._awaited: Callable[[], bool] | None = None  # the polling thread waits until this is true
        self._closed = False

    # --- the polling thread ------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of records that are neither finished nor dropped."""
        return self._scheduler.in_flight + len(self.handed_over)

    def add(
        self,
        tracker: OffsetTracker,
        records: Sequence[ConsumerRecord],
        ordered_as: ConsumerRecord | None = None,
    ) -> None:
        """Add records of a partition. The order of one that a deserializer has refused is that of `ordered_as`."""
        with self._lock:
            self._scheduler.add(tracker, records, ordered_as)
            self._notify_workers()
            if tracker.due:  # a worker that waits must wait until then
                self._work.notify()
        if self.on_ready is not None:
            self.on_ready()

    @property
    def runnable(self) -> int:
        """The number of records that handlers process, or could process if there were more workers.

        Those that wait for a transaction count, too.
        """
        return self._scheduler.runnable + len(self.handed_over)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Flow[bool]:
        """Wait until a condition is true, which depends on what workers finish.

        Returns False after the timeout, or at an error.
        """
        self._awaited, deadline = condition, self._now() + timeout_s * 1000
        try:
            while not condition() and self.error is None and (left := deadline - self._now()) > 0:
                yield partial(self._wait_for_room, condition, left / 1000)
        finally:
            self._awaited = None
        return condition()

    def _wait_for_room(self, condition: Callable[[], bool], timeout_s: float) -> Awaitable[None] | None:
        """Wait for a notification. Returns what must be awaited, if this waits in an event loop."""
        with self._lock:
            if not condition() and self.error is None:
                self._room.wait(timeout_s)
        return None

    @property
    def delayed(self) -> int:
        """The number of records that wait for another attempt."""
        return self._scheduler.delayed

    def find(self, tracker: OffsetTracker, offset: int) -> tuple[object, str]:
        """Returns the key of an unfinished record, and what happens to it. The key is None if it is not found."""
        running = [task for worker in list(self.workers) for task in worker.started]
        with self._lock:
            for tasks, what in (
                (running, "its handler has not returned"),
                (self._scheduler.delayed_tasks(), "it waits for another attempt"),
                (self._scheduler.ready, "it waits for a worker"),
            ):
                for task in tasks:
                    if task[0] is tracker and task[2].offset == offset:
                        return task[2].key, what
        return None, "its handler has not started"

    @property
    def suspended(self) -> bool:
        """True while no records are started, and no more need to be read."""
        return not self.workers or self.gate.suspended(self._now())

    def pause(self) -> None:
        """Start no more records. Those that run may finish."""
        with self._lock:
            self.gate.paused = True
            for worker in self.workers:
                self._take_back(worker, len(worker.tasks))

    def resume(self) -> None:
        """Start records again."""
        with self._lock:
            self.gate.paused = False
            self._work.notify_all()
            self._notify_room()
        if self.on_ready is not None:
            self.on_ready()

    def expire(self) -> None:
        """Replace the workers whose handlers take longer than `handler_timeout_s`."""
        timeout_s, now = self._settings.handler_timeout_s, self._now()
        if timeout_s is None or self.on_expired is None:
            return
        for worker in list(self.workers):
            if worker.claim and now >= worker.started_at + timeout_s * 1000:
                try:
                    task = worker.claim.pop()
                except IndexError:  # the handler has returned
                    continue
                with self._lock:
                    self._take_back(worker, len(worker.tasks))
                    self.workers.remove(worker)
                self.on_expired(worker, task)

    def close(self, trackers: Collection[OffsetTracker], *, all_work: bool = False) -> None:
        """Start no more records of these partitions. With `all_work`, workers end after what they have started."""
        with self._lock:
            self._closed |= all_work
            self._scheduler.close(trackers)
            self._work.notify_all()
        if self.on_ready is not None:
            self.on_ready()

    def running(self, trackers: Collection[OffsetTracker]) -> int:
        """Returns the number of handlers that have started records of these partitions, and have not returned."""
        return sum(task[0] in trackers for worker in self.workers for task in worker.started)

    def unfinished_handlers(self) -> set[tuple[OffsetTracker, int]]:
        """Returns the tracker and the offset of each record whose handler has started, and may not have returned."""
        return {(task[0], task[2].offset) for worker in self.workers for task in worker.started}

    def wait_for_handlers(self, trackers: Collection[OffsetTracker], timeout_s: float) -> Flow[bool]:
        """Wait until no handler processes a record of these closed partitions. Returns False after the timeout."""
        deadline = self._now() + timeout_s * 1000
        while self.running(trackers):
            left = deadline - self._now()
            if left <= 0:
                return False
            yield partial(self._pause, min(DRAIN_INTERVAL_S, left / 1000))
        return True

    def _pause(self, timeout_s: float) -> Awaitable[None] | None:
        """Wait, as `_wait_for_room` does."""
        with self._lock:
            self._room.wait(timeout_s)
        return None

    # --- workers -----------------------------------------------------------------------------------------------------

    def new_worker(self) -> Worker:
        """Returns a new worker, which can start records."""
        worker = Worker()
        self.add_worker(worker)
        return worker

    def add_worker(self, worker: Worker) -> None:
        """Note that a worker can start records."""
        with self._lock:
            self.workers.append(worker)
            self._notify_room()

    def exchange(self, worker: Worker, *, wait: bool = True) -> bool:
        """Release what the worker has finished, and give it new tasks. Returns False if there are none.

        With `wait`, waits for tasks, and returns False only when the run has ended.
        """
        with self._lock:
            self._release(worker)
            worker.current, worker.batch = None, []
            while not self._closed and not self.stopping:
                now = self._now()
                if now >= self._next_check:
                    self._reclaim_from_slow(now)
                count = self._take(worker, now)
                if count:
                    self.gate.started(count)
                    worker.taken_at = now
                    self._notify_workers()
                    self._notify_room()
                    return True
                self._notify_room()
                if not wait:
                    return False
                if self._settings.batch is None and self.gate.allowance(now) >= 1 and self._reclaim():
                    continue
                self._idle += 1
                try:
                    self._work.wait(self._wait_s())
                finally:
                    self._idle -= 1
            self._room.notify_all()
        return False

    def _take(self, worker: Worker, now: float) -> int:
        """Give new tasks to a worker. Returns their number."""
        allowed, scheduler = self.gate.allowance(now), self._scheduler
        if isinstance(scheduler, BatchScheduler):
            worker.batch = scheduler.take_batch(allowed, now)
            return sum(map(len, worker.batch))
        tasks = scheduler.take(int(min(worker.limit, allowed)), now)
        worker.tasks.extend(tasks)
        return len(tasks)

    def finish(self, *tasks: Task | None) -> None:
        """End tasks whose records are finished. None is one that others of its shard follow in the same batch."""
        with self._lock:
            self.processed += len(tasks)
            self.gate.succeeded()
            for task in tasks:
                self._scheduler.finish(task)
            self._notify_workers()
            self._notify_room()

    def rest(self, worker: Worker) -> None:
        """Note that the worker has started nothing."""
        with self._lock:
            worker.current, worker.batch = None, []

    def drop(self, task: Task, followers: int = 0) -> None:
        """End a task that was not started because its partition is closed, and those that follow it in a batch."""
        with self._lock:
            self.gate.dropped()
            self._scheduler.drop(task, followers)

    def retry(self, task: Task, error: BaseException, *, last: bool = False, failure: Failure = ALONE) -> bool:
        """Start a task again later. Returns False if there is no further attempt, as with `last`.

        If its partition is closed, ends the task. The record stays unfinished, and its next owner processes it. Raises
        what a callable `backoff_s` raises.

        The records that follow it in a batch wait again. If the batch has failed as a whole, an error that is not tried
        again may be that of another record: then the next attempt is the last one, in which each record is alone.
        """
        tracker, _, record = task
        failures, attempts = tracker.failures.get(record.offset, 0) + 1, self._settings.retry.attempts
        poisoned, delay = record.offset in tracker.poisoned, None
        if not (last or poisoned) and isinstance(error, Exception):
            delay = self._settings.retry.delay_ms(failures, error, record)  # without the lock: it may call user code
            if delay is None and failure.undivided and failures < attempts:
                failures, delay = attempts - 1, 0.0
        with self._lock:
            if tracker.closed:
                self.gate.dropped()
                self._scheduler.drop(task, len(failure.rest))
                return True
            tracker.failures[record.offset] = failures
            if poisoned:  # no handler was called, which a circuit breaker may be waiting for
                self.gate.dropped()
            elif failure.counts:
                self.gate.failed(self._now())
            if delay is None:
                return False
            self.retries += 1
            self._put_back(failure)
            self._scheduler.delay(task, self._now() + delay)
            self._work.notify()
            self._notify_room()
        if self.on_ready is not None:
            self.on_ready()
        return True

    def _put_back(self, failure: Failure) -> None:
        for (tracker, _, record), failed in failure.rest:
            if failed:
                tracker.failures[record.offset] = tracker.failures.get(record.offset, 0) + 1
                self.retries += 1
        self._scheduler.put_back([task for task, _ in failure.rest])

    def give_up(
        self, task: Task, error: BaseException | None, followers: int = 0, message: Message | None = None
    ) -> None:
        """End a task whose last attempt failed. Without an `error`, the record counts as finished.

        With a `message`, it does when a transaction contains this. The next records of its shard do not wait for that.
        With one, it and its `followers` in a batch stay unfinished, and the error ends the run.
        """
        tracker, _, record = task
        if error is not None and error is not self.error:
            failures = tracker.failures.get(record.offset, 1)
            note(error, f"while processing {tracker.topic_partition} offset {record.offset}, attempt {failures}")
        with self._lock:
            tracker.failures.pop(record.offset, None)
            tracker.poisoned.pop(record.offset, None)
            if error is None:
                if message is None:
                    self.skip(tracker, record.offset)
                else:
                    self.handed_over.append((tracker, record.offset, message))
                self._scheduler.finish(None if followers else task)
                self._notify_workers()
                return
            self._scheduler.drop(task, followers)
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the run with an error, unless an earlier one has ended it."""
        with self._lock:
            if self.error is None:
                self.error = error
            self.stopping = True
            self._room.notify_all()
        self._on_error()

    def skip(self, tracker: OffsetTracker, offset: int) -> None:
        """Count a record as finished whose last attempt failed."""
        tracker.skip(offset)
        self.failed += 1

    def next_due(self) -> float | None:
        """Returns the time (ms) at which a record may be started that may not be started now, or None."""
        with self._lock:
            return self._next_due()

    # --- under the lock ----------------------------------------------------------------------------------------------

    def _release(self, worker: Worker) -> None:
        done = worker.done
        count = len(done)
        for _ in range(count):
            self._scheduler.finish(done.popleft())
        self.processed += count
        if count:
            self.gate.succeeded()

    def _next_due(self) -> float | None:
        opens_at = self.gate.opens_at(self._now()) if self._scheduler.ready else None
        times = [time for time in (self._scheduler.next_due(), opens_at) if time is not None]
        return min(times, default=None)

    def _reclaim(self) -> bool:
        """Take back tasks of other workers: those that are finished, and half of those that are not started.

        Returns True if there are ready tasks now. Without this, a handler that is slow all of a sudden would delay
        records that its worker has taken with it.
        """
        for worker in self.workers:
            self._take_back(worker, (len(worker.tasks) + 1) // 2)
        return bool(self._scheduler.ready)

    def _reclaim_from_slow(self, now: float) -> None:
        """Take back what other workers took long ago, and have not started. Their handlers are slow."""
        self._next_check = now + RECLAIM_INTERVAL_S * 1000
        for worker in self.workers:
            if worker.taken_at + RECLAIM_INTERVAL_S * 1000 <= now:
                self._take_back(worker, len(worker.tasks))

    def _take_back(self, worker: Worker, count: int) -> None:
        if worker.done:
            self._release(worker)
        for _ in range(count):
            try:
                self._scheduler.ready.appendleft(worker.tasks.pop())
            except IndexError:  # its own thread has started the last one
                break

    def _wait_s(self) -> float | None:
        due = self._next_due()
        wait_s = None if due is None else max(0.0, (due - self._now()) / 1000)
        if any(worker.limit > 1 and worker.current is not None for worker in self.workers):
            return RECLAIM_INTERVAL_S if wait_s is None else min(wait_s, RECLAIM_INTERVAL_S)
        return wait_s

    def _notify_workers(self) -> None:
        if self._idle and self._scheduler.ready:
            self._work.notify(min(self._idle, len(self._scheduler.ready)))

    def _notify_room(self) -> None:
        awaited = self._awaited  # the thread that polls sets it without the lock
        if awaited is not None and awaited():
            self._room.notify()
