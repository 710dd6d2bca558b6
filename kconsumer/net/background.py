"""Background tasks: work of the network client that may block, such as DNS lookups, or reading tokens and certificates.

The tasks run on at most four daemon threads, which end when no task is waiting. The event loop handles completed tasks
and timeouts.
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
"""If all threads wait for a server that does not respond, further tasks are queued."""

MAX_SLEEP_S = 0.1  # `sleep` checks after each such interval whether the executor was closed

Start = Callable[[Callable[[], None]], None]
"""Runs a callable in the background."""


def in_thread(work: Callable[[], None]) -> None:
    """Run a callable on a daemon thread. The process can exit even if the callable blocks forever."""
    threading.Thread(target=work, name="kconsumer-background", daemon=True).start()


class BackgroundTask(Generic[T]):
    """One blocking call. Once `completed` is set, `result()` returns its result or raises its exception (`error`)."""

    __slots__ = ("_found", "_function", "completed", "error")

    def __init__(self, work: Callable[[], T]) -> None:
        self.completed = False
        self.error: Exception | None = None
        self._function: Callable[[], T] | None = work
        self._found: T | None = None

    def run(self) -> None:
        """Call the function, store its result or exception, and set `completed`."""
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
        """Complete the task with this error, without calling the function."""
        self._function = None
        self.error = error
        self.completed = True

    def result(self) -> T:
        """Returns the result of the call, or raises its exception. Must be called only after `completed` was set."""
        if self.error is not None:
            raise self.error
        return cast(T, self._found)  # None may be a result


class BackgroundExecutor:
    """Runs background tasks on at most MAX_THREADS threads. Only one thread may call `submit` and `start`.

    When a task is completed, the executor sets `completed_tasks` and calls `wake`. If no thread can be started and
    `inline` is True, the waiting tasks run on the thread that calls `submit` or `start`. If `inline` is False, they
    fail.
    """

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
        """Run a callable in the background, as a new task. Returns the task."""
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
            except RuntimeError as error:  # no thread could be started
                if self._inline:
                    self._work()
                else:
                    self._fail_all(error)
        return task

    def acknowledge(self) -> None:
        """Clear `completed_tasks`. Call this before searching for completed tasks: a task that completes during the
        search sets it again, so it is not missed."""
        self.completed_tasks = False

    def close(self) -> None:
        """Drop the waiting tasks. Tasks in progress continue, but nothing uses their results.

        Takes no lock, because a forked child may call it. A background thread of the parent may have held the lock
        during the fork, and the child's copy of it would never be released.
        """
        self._closed = True
        self._waiting.clear()

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` on the thread of a task, in intervals of at most MAX_SLEEP_S.

        If the executor was closed, raises StateError at the end of the present interval.
        """
        while True:
            if self._closed:
                raise StateError("the consumer was closed")
            if seconds <= 0:
                return
            threading.Event().wait(min(seconds, MAX_SLEEP_S))
            seconds -= MAX_SLEEP_S

    def _fail_all(self, error: RuntimeError) -> None:
        """Fail the waiting tasks with this error. They cannot run on the calling thread, because they may call user
        code and that thread holds the engine's lock."""
        with self._lock:
            self._threads -= 1
            waiting, self._waiting = self._waiting, deque()
        for task in waiting:
            task.fail(BrokerConnectionError(f"no background thread can be started: {error}"))
        self.completed_tasks = True
        self._wake()

    def _work(self) -> None:
        """Run waiting tasks one after the other, until there are none. Each background thread runs this method."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                task = self._waiting.popleft()
            task.run()
            self.completed_tasks = True
            self._wake()
