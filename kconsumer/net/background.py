"""Background tasks: blocking work of the network client, such as DNS lookups, credentials and changed certificates.

Decides on which threads it runs: on at most four daemon threads, which end when there is no more work. The event loop
handles completed tasks and timeouts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from kconsumer.errors import BrokerConnectionError, StateError

T = TypeVar("T")
E = TypeVar("E", bound="BackgroundTask[Any]")

MAX_THREADS = 4
"""A name server or token endpoint that does not respond may occupy all of them; further tasks then wait."""

MAX_SLEEP_S = 0.1

Start = Callable[[Callable[[], None]], None]
"""Runs a callable in the background."""


def in_thread(work: Callable[[], None]) -> None:
    """Run a callable on a daemon thread, which does not keep the process from ending, however long it blocks."""
    threading.Thread(target=work, name="kconsumer-background", daemon=True).start()


class BackgroundTask(Generic[T]):
    """One blocking call. When `completed`, `result()` returns its result or raises its exception (`error`)."""

    __slots__ = ("_found", "_function", "completed", "error")

    def __init__(self, work: Callable[[], T]) -> None:
        self.completed = False
        self.error: Exception | None = None
        self._function: Callable[[], T] | None = work
        self._found: T | None = None

    def run(self) -> None:
        """Call the function, and keep its result or exception."""
        work, self._function = self._function, None
        assert work is not None
        try:
            self._found = work()
        except Exception as error:
            self.error = error
        except BaseException as error:  # sys.exit() in a user's callable must not end the thread
            self.error = RuntimeError(f"{type(error).__name__} was raised")
        self.completed = True

    def fail(self, error: Exception) -> None:
        """Complete the task with this error, without running it."""
        self._function = None
        self.error = error
        self.completed = True

    def result(self) -> T:
        """Returns the result, or raises the exception."""
        if self.error is not None:
            raise self.error
        return cast(T, self._found)  # None may be a result


class BackgroundExecutor:
    """Runs background tasks on at most MAX_THREADS threads. One thread calls `submit`. When a task is completed,
    `completed_tasks` is set and `wake` is called. If no thread can be started, tasks fail, or with `inline` run on the
    caller's thread."""

    def __init__(self, wake: Callable[[], None], start: Start = in_thread, *, inline: bool = False) -> None:
        self.completed_tasks = False
        self._inline = inline
        self._closed = False
        self._wake = wake
        self._start = start
        self._lock = threading.Lock()  # guards the two fields below
        self._waiting: deque[BackgroundTask[Any]] = deque()
        self._threads = 0

    def submit(self, work: Callable[[], T]) -> BackgroundTask[T]:
        """Run a callable in the background. Returns its task."""
        return self.start(BackgroundTask(work))

    def start(self, task: E) -> E:
        """Run a task in the background. Returns the task."""
        with self._lock:
            self._waiting.append(task)
            another = self._threads < MAX_THREADS
            self._threads += another
        if another:
            try:
                self._start(self._work)
            except RuntimeError as error:  # the system gives no thread
                if self._inline:
                    self._work()
                else:
                    self._fail_all(error)
        return task

    def acknowledge(self) -> None:
        """Clear `completed_tasks`. Must be called before the search for completed tasks: one that completes during the
        search sets it again."""
        self.completed_tasks = False

    def close(self) -> None:
        """Start no more tasks, and ignore the results of those in progress. Takes no lock: a forked child may call it,
        in which the lock is perhaps held by a thread of the parent."""
        self._closed = True
        self._waiting.clear()

    def sleep(self, seconds: float) -> None:
        """Sleep in a task. Raises StateError soon after `close`, when the task's result is of no use."""
        for _ in range(max(1, round(seconds / MAX_SLEEP_S))):
            if self._closed:
                raise StateError("the consumer was closed")
            threading.Event().wait(min(seconds, MAX_SLEEP_S))

    def _fail_all(self, error: RuntimeError) -> None:
        """Fail the waiting tasks: they may call user code, which must not run on the calling thread, as that holds the
        engine's lock."""
        with self._lock:
            self._threads -= 1
            waiting, self._waiting = self._waiting, deque()
        for task in waiting:
            task.fail(BrokerConnectionError(f"no background thread can be started: {error}"))
        self.completed_tasks = True
        self._wake()

    def _work(self) -> None:
        """Run one task after the other, until none is waiting."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                task = self._waiting.popleft()
            task.run()
            self.completed_tasks = True
            self._wake()
