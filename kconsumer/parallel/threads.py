"""The executor that runs handlers in threads."""

from __future__ import annotations

from functools import partial
from typing import Any

from kconsumer.engine.environment import Thread
from kconsumer.parallel.attempt import Failures
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.scheduler import Task
from kconsumer.parallel.settings import Handler, Settings
from kconsumer.parallel.work_queue import Worker, WorkQueue


class ThreadExecutor:
    """Runs a handler in `workers` threads. They are daemon threads: a handler that never returns ends no later than the
    process.
    """

    def __init__(self, queue: WorkQueue, settings: Settings, handler: Handler, concurrency: Concurrency) -> None:
        self._queue = queue
        self._handlers = [handler] * settings.workers
        self._failures = Failures(queue, settings)
        self._concurrency = concurrency
        self._now = concurrency.clock.now
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the threads."""
        for number, handler in enumerate(self._handlers):
            work = partial(self._work, self._queue.new_worker(), handler)
            thread = self._concurrency.thread(f"kconsumer-handler-{number}", work)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """Wait for the threads to end."""
        deadline = self._now() + timeout_s * 1000
        for thread in self._threads:
            thread.join(max(0.0, (deadline - self._now()) / 1000))

    def _work(self, worker: Worker, handler: Any) -> None:
        tasks = worker.tasks
        while self._queue.exchange(worker):
            began, count = self._now(), 0
            while True:
                try:
                    task = tasks.popleft()
                except IndexError:  # all are started, or another worker took the last one
                    break
                count += self._process(worker, task, handler)
            worker.adapt(count, self._now() - began)

    def _process(self, worker: Worker, task: Task, handler: Any) -> int:
        """Process a task, and then up to `worker.limit` further records of its shard. Returns how many were started.

        The next record of a shard is taken without the lock. That is safe, because no other worker has the shard.
        """
        finished = worker.done.append
        tracker, shard, record = task
        for count in range(1, worker.limit + 1):
            # In this order: the thread that closes a tracker first sets `closed`, and then waits for `current`.
            worker.current = task
            if tracker.closed or self._queue.stopping:
                self._queue.drop(task)
                return count
            offset = record.offset
            try:
                if tracker.poisoned and offset in tracker.poisoned:
                    raise tracker.poisoned[offset]
                handler(record)
            except BaseException as error:  # user code may raise anything
                self._failures.handle(task, error)
                return count
            if tracker.failures:
                tracker.failures.pop(offset, None)
            tracker.finish(offset)
            waiting = None if shard is None or count == worker.limit else tracker.shards.get(shard)
            if not waiting:
                break
            try:
                record = waiting.popleft()
            except IndexError:  # the partition was closed
                break
            task = (tracker, shard, record)
            finished(None)
        finished(task)
        return count
