"""The executor that runs coroutine functions in an event loop, which has a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from kconsumer.parallel.attempt import Call, Failures, cancelled_error, timeout_error
from kconsumer.parallel.batch_calls import BatchCalls
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.flows import await_flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.scheduler import Task
from kconsumer.parallel.settings import Handler, Settings
from kconsumer.parallel.work_queue import Worker, WorkQueue


class EventLoopExecutor:
    """Runs up to `workers` coroutines of a handler at a time. When it stops, it cancels those that still run."""

    def __init__(self, queue: WorkQueue, settings: Settings, handler: Handler, concurrency: Concurrency) -> None:
        self._queue = queue
        self._handler = handler
        self._failures = Failures(queue, settings, asyncio.CancelledError)
        self._call_of = Call(handler, settings)
        self._batches = BatchCalls(self._call_of, queue, self._failures)
        self._timeout_s = settings.handler_timeout_s
        self._now = concurrency.clock.now
        self._new_event_loop = concurrency.event_loop
        self._started = False
        self._loop: asyncio.AbstractEventLoop  # set by `start`
        self._free = [queue.new_worker() for _ in range(settings.workers)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = concurrency.thread("kconsumer-handlers", self._run)

    def start(self) -> None:
        self._loop = self._new_event_loop()
        self._thread.start()
        self._started = True
        self._queue.on_ready = self._on_ready
        self._on_ready()

    def stop(self, timeout_s: float) -> Awaitable[None] | None:
        """Cancel the coroutines that still run, and close the event loop when they have ended."""
        self._queue.on_ready = None
        if not self._started:  # `start` was not called
            return None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(timeout_s)
        return None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            if self._tasks:
                self._loop.run_until_complete(asyncio.wait(self._tasks))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        except BaseException as error:  # of a callback that a handler has scheduled, such as SystemExit
            self._queue.fail(error)
        finally:
            self._loop.close()

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.stop()

    def _on_ready(self) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._start_tasks)

    def _start_tasks(self) -> None:
        """Start coroutines while there are free workers and records. Called in the event loop."""
        try:
            self._start_some()
        except BaseException as error:  # not of a handler: such as that of a key that has changed
            self._queue.fail(error)
        self._wait_for_retry()

    def _start_some(self) -> None:
        while self._free and self._queue.exchange(self._free[-1], wait=False):
            worker = self._free.pop()
            if worker.tasks:
                worker.current = worker.tasks.popleft()  # before `closed` is read, as in `ThreadExecutor`
            processing = self._process_batch(worker) if worker.current is None else self._process(worker.current)
            coroutine = self._loop.create_task(processing)
            self._tasks.add(coroutine)
            coroutine.add_done_callback(partial(self._on_done, worker))

    def _wait_for_retry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._queue.next_due() if self._free else None
        if due is not None:
            self._timer = self._loop.call_later(max(0.0, (due - self._now()) / 1000), self._start_tasks)

    def _on_done(self, worker: Worker, coroutine: asyncio.Task[None]) -> None:
        # Not in a `finally` of `_process`: the garbage collector runs that, in any thread, after the loop was closed.
        self._tasks.discard(coroutine)
        if not coroutine.cancelled() and (error := coroutine.exception()) is not None:
            self._queue.fail(error)
        worker.took(1, self._now() - worker.taken_at)
        self._queue.rest(worker)
        self._free.append(worker)
        self._start_tasks()

    async def _process(self, task: Task) -> None:
        tracker, _, record = task
        if tracker.closed or self._queue.stopping:
            self._queue.drop(task)
        elif record.offset in tracker.poisoned:
            await await_flow(self._failures.handle(task, tracker.poisoned[record.offset]))
        else:
            await self._call(task)

    async def _call(self, task: Task) -> None:
        tracker, _, record = task
        try:
            error = await self._attempt(self._call_of.arguments(task), (tracker,))
        except asyncio.CancelledError:
            self._queue.drop(task)
            raise
        if error is not None:
            await await_flow(self._failures.handle(task, error))
        else:
            tracker.failures.pop(record.offset, None)
            tracker.finish(record.offset)
            self._queue.finish(task)

    async def _process_batch(self, worker: Worker) -> None:
        error = self._batches.begin(worker)
        batch = worker.batch
        if batch and error is None:
            try:
                error = await self._attempt(self._batches.arguments(batch), [group[0][0] for group in batch])
            except asyncio.CancelledError:
                self._batches.drop(batch)
                raise
        await await_flow(self._batches.end(batch, error))

    async def _attempt(self, arguments: tuple[Any, ...], trackers: Iterable[OffsetTracker]) -> BaseException | None:
        """Call the handler. Returns its error, or None. Raises CancelledError if the run has ended."""
        timer = None if self._timeout_s is None else asyncio.timeout(self._timeout_s)
        try:
            result = self._handler(*arguments)
            if not isinstance(result, Awaitable):
                raise TypeError(
                    f"with executor='asyncio' the handler must be a coroutine function; it returned {result!r}"
                )
            if timer is None:
                await result
            else:
                async with timer:
                    await result
        except asyncio.CancelledError as error:
            if all(tracker.closed for tracker in trackers):  # the run has ended
                raise
            return cancelled_error("the handler", error)
        except GeneratorExit:  # the garbage collector ends the coroutine, because the loop was closed before
            raise
        except BaseException as error:  # user code may raise anything
            return timeout_error(self._timeout_s) if timer is not None and timer.expired() else error
        return None
