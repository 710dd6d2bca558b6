"""The executor that runs handlers in threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kconsumer.engine.environment import Thread
from kconsumer.parallel.attempt import Call, Failures, refuse_deferred, timeout_error
from kconsumer.parallel.batch_calls import BatchCalls
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.flows import run_flow
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
        self._call = Call(handler, settings)
        self._batches = BatchCalls(self._call, queue, self._failures)
        self._timeout_s = settings.handler_timeout_s
        # Workers take one record, or one batch, at a time.
        self._single = self._timeout_s is not None or queue.gate.limited or settings.batch is not None
        self._concurrency = concurrency
        self._now = concurrency.clock.now
        self._threads: dict[Worker, Thread] = {}

    def start(self) -> None:
        self._queue.on_expired = self._replace
        for handler in self._handlers:
            worker = self._queue.new_worker()
            self._start_thread(worker, partial(self._work, worker, handler))

    def _start_thread(self, worker: Worker, work: Callable[[], None]) -> None:
        thread = self._concurrency.thread(f"kconsumer-handler-{len(self._threads)}", partial(self._run, worker, work))
        thread.start()
        self._threads[worker] = thread

    def _run(self, worker: Worker, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # not of a handler: such as that of a process, or of a key that has changed
            self._queue.fail(error)
            self._queue.rest(worker)

    def _replace(self, expired: Worker, task: Task) -> None:
        """Start a thread in place of one whose handler does not return, which ends when it does."""
        worker = self._queue.new_worker()
        worker.current, worker.batch = expired.current, expired.batch
        del self._threads[expired]
        self._start_thread(worker, partial(self._continue, worker, task))

    def _continue(self, worker: Worker, task: Task) -> None:
        if worker.batch:
            run_flow(self._batches.end(worker.batch, timeout_error(self._timeout_s), last=True))
        else:
            run_flow(self._failures.handle(task, timeout_error(self._timeout_s), last=True))
        self._work(worker, self._handlers[0])

    def stop(self, timeout_s: float) -> None:
        """Wait for the threads to end."""
        deadline = self._now() + timeout_s * 1000
        for thread in self._threads.values():
            thread.join(max(0.0, (deadline - self._now()) / 1000))

    def _work(self, worker: Worker, handler: Any) -> None:
        tasks = worker.tasks
        while self._queue.exchange(worker):
            began = self._now()
            count = self._process_batch(worker, handler) if worker.batch else 0
            while True:
                try:
                    task = tasks.popleft()
                except IndexError:  # all are started, or another worker took the last one
                    break
                count += self._process(worker, task, handler)
            if worker not in self._queue.workers:  # it was replaced
                return
            took_ms = self._now() - began
            worker.took(count, took_ms)
            if not self._single:
                worker.adapt(count, took_ms)

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
                if self._timeout_s is None:
                    result = handler(*self._call.arguments(task)) if self._call.takes_attempt else handler(record)
                    if result is not None:
                        refuse_deferred("the handler", result)
                elif not self._call_in_time(worker, task, handler, self._call.arguments(task)):
                    return count
            except BaseException as error:  # user code may raise anything
                run_flow(self._failures.handle(task, error))
                return count
            if tracker.failures:
                tracker.failures.pop(offset, None)
            tracker.finish(offset)
            waiting = None if shard is None or count == worker.limit or tracker.due else tracker.shards.get(shard)
            if not waiting or self._queue.gate.paused:
                break
            try:
                record = waiting.popleft()
            except IndexError:  # the partition was closed
                break
            task = (tracker, shard, record)
            finished(None)
        finished(task)
        return count

    def _process_batch(self, worker: Worker, handler: Any) -> int:
        """Process the batch of the worker. Returns how often the handler was called."""
        error = self._batches.begin(worker)
        batch = worker.batch
        if not batch or error is not None:
            run_flow(self._batches.end(batch, error))
            return 0
        arguments = self._batches.arguments(batch)
        try:
            if self._timeout_s is None:
                refuse_deferred("the handler", handler(*arguments))
            elif not self._call_in_time(worker, batch[0][0], handler, arguments):
                return 1
        except BaseException as raised:  # user code may raise anything
            error = raised
        run_flow(self._batches.end(batch, error))
        return 1

    def _call_in_time(self, worker: Worker, task: Task, handler: Any, arguments: tuple[Any, ...]) -> bool:
        """Call the handler. Returns False, and raises nothing, if another thread has replaced this one meanwhile."""
        worker.started_at = self._now()
        worker.claim.append(task)
        error: BaseException | None = None
        try:
            refuse_deferred("the handler", handler(*arguments))
        except BaseException as raised:  # user code may raise anything
            error = raised
        try:
            worker.claim.pop()
        except IndexError:
            return False
        if error is not None:
            raise error
        return True
