"""What executors share: their interface, and what happens to a record whose last attempt failed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from functools import partial
from typing import Any, Protocol

from kconsumer.errors import TimeoutError
from kconsumer.parallel.batch_scheduler import ALONE, Failure
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.producers import Message
from kconsumer.parallel.scheduler import Task
from kconsumer.parallel.settings import Attempt, Handler, Settings, positional_arguments
from kconsumer.parallel.work_queue import WorkQueue


class Executor(Protocol):
    """Runs handlers for the tasks of a WorkQueue."""

    def start(self) -> None:
        """Start the workers. Raises an error if they cannot start."""

    def stop(self, timeout_s: float) -> Awaitable[None] | None:
        """End the workers, after the queue was closed. Handlers that have not returned after the timeout are left.

        Returns what must be awaited, if this waits in an event loop.
        """


class Call:
    """Decides with which arguments a handler is called."""

    def __init__(self, handler: Handler, settings: Settings) -> None:
        self.takes_attempt = positional_arguments(handler, 2) == 2
        self._attempts = settings.retry.attempts

    def arguments(self, task: Task) -> tuple[Any, ...]:
        """Returns the record, and the attempt if the handler takes it."""
        tracker, _, record = task
        if not self.takes_attempt:
            return (record,)
        return (record, Attempt(tracker.failures.get(record.offset, 0) + 1, self._attempts))


def timeout_error(timeout_s: float | None) -> TimeoutError:
    """Returns the error of a handler that took longer than `handler_timeout_s`."""
    return TimeoutError(f"the handler has not returned within handler_timeout_s={timeout_s}")


def cancelled_error(what: str, error: BaseException) -> RuntimeError:
    """Returns the error of user code that has ended with CancelledError though the run has not cancelled it."""
    found = RuntimeError(f"{what} was cancelled")
    found.__cause__ = error
    return found


def refuse_deferred(what: str, result: object) -> None:
    """Raise TypeError for a result that must be awaited or iterated: the function has done nothing yet."""
    if isinstance(result, Coroutine | Generator | AsyncGenerator):
        if isinstance(result, Coroutine):
            result.close()  # otherwise Python warns that it was never awaited, later and elsewhere
        raise TypeError(
            f"{what} returned {result!r}, and so has done nothing yet: with executor='asyncio' a coroutine function is "
            "awaited, and nothing iterates over a generator"
        )


class Failures:
    """Decides what happens to a record whose handler has raised: another attempt, `on_failure`, or the end."""

    def __init__(
        self, queue: WorkQueue, settings: Settings, cancellation: type[BaseException] | tuple[()] = ()
    ) -> None:
        """Create it. `cancellation` is what ends coroutines when the run has ended."""
        self._queue = queue
        self._cancellation = cancellation
        self._on_failure = settings.on_failure
        self._arguments = max(2, positional_arguments(self._on_failure, 3)) if callable(self._on_failure) else 0
        self._attempts = settings.retry.attempts

    def handle(self, task: Task, error: BaseException, *, last: bool = False, failure: Failure = ALONE) -> Flow[bool]:
        """Handle the error of an attempt, the `last` one or not. Calls a callable `on_failure`.

        Returns True if the record counts as finished. Otherwise the tasks that follow it in a batch have ended, too.
        """
        followers = len(failure.rest)
        try:
            if self._queue.retry(task, error, last=last, failure=failure):
                return False
            result = yield partial(self._call, task, error)
            refuse_deferred("on_failure", result)
        except BaseException as fatal:  # user code may raise anything, and the run ends with it
            if isinstance(fatal, self._cancellation):
                if task[0].closed:  # the run has ended, and waits no longer
                    self._queue.drop(task, followers)
                    raise
                fatal = cancelled_error("on_failure", fatal)
            self._queue.give_up(task, fatal, followers)
            return False
        self._queue.give_up(task, None, followers, result if isinstance(result, Message) else None)
        return True

    def _call(self, task: Task, error: BaseException) -> Any:
        """Call `on_failure`. Raises the error that ends the run, if there is one."""
        if self._on_failure == "stop" or not isinstance(error, Exception):
            raise error
        if not callable(self._on_failure):
            return None
        tracker, _, record = task
        attempt = Attempt(tracker.failures.get(record.offset, 1), self._attempts)
        return self._on_failure(*(record, error, attempt)[: self._arguments])
