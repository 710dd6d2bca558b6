"""Work that may wait for others than brokers, beside the event loop: names to be resolved, credentials to be fetched.

Decides who does it: short-lived threads, few of them. Whose turn it is when an errand is done, and how long is waited
for it, is the ConnectionLoop's.
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
"""A name server, or an issuer of tokens, that does not answer keeps as many; further errands wait for their turn."""

MAX_SLEEP_S = 0.1

Start = Callable[[Callable[[], None]], None]
"""Runs something beside the caller."""


def in_thread(work: Callable[[], None]) -> None:
    """On a daemon thread: nobody waits for it, whatever it waits for."""
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
        """Do it; what goes wrong is kept."""
        work, self._function = self._function, None
        assert work is not None
        try:
            self._found = work()
        except Exception as error:
            self.error = error
        except BaseException as error:  # sys.exit() of a user's callable: the thread has more to do
            self.error = RuntimeError(f"{type(error).__name__} was raised")
        self.completed = True

    def fail(self, error: Exception) -> None:
        """End it with this error, without running it."""
        self._function = None
        self.error = error
        self.completed = True

    def result(self) -> T:
        """What came of it."""
        if self.error is not None:
            raise self.error
        return cast(T, self._found)  # which may be None by right


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
        self._lock = threading.Lock()  # guards these two
        self._waiting: deque[BackgroundTask[Any]] = deque()
        self._threads = 0

    def submit(self, work: Callable[[], T]) -> BackgroundTask[T]:
        """Have it done beside the caller."""
        return self.start(BackgroundTask(work))

    def start(self, errand: E) -> E:
        """The same for an errand of a kind of its own."""
        with self._lock:
            self._waiting.append(errand)
            another = self._threads < MAX_THREADS
            self._threads += another
        if another:
            try:
                self._start(self._work)
            except RuntimeError as error:  # no thread is to be had
                if self._inline:
                    self._work()
                else:
                    self._fail_all(error)
        return errand

    def acknowledge(self) -> None:
        """Clear `completed_tasks`. Must be called before the search for completed tasks: one that completes during the
        search sets it again."""
        self.completed_tasks = False

    def close(self) -> None:
        """Begin nothing more; what is under way ends unheard. Takes no lock: a forked child may call it."""
        self._closed = True
        self._waiting.clear()

    def sleep(self, seconds: float) -> None:
        """For an errand that is to wait: raises StateError soon after `close`, when nobody wants its outcome."""
        for _ in range(max(1, round(seconds / MAX_SLEEP_S))):
            if self._closed:
                raise StateError("the consumer was closed")
            threading.Event().wait(min(seconds, MAX_SLEEP_S))

    def _fail_all(self, error: RuntimeError) -> None:
        """Fail what waits: it may be user code, which must not run on the caller's thread, inside the engine's lock."""
        with self._lock:
            self._threads -= 1
            waiting, self._waiting = self._waiting, deque()
        for errand in waiting:
            errand.fail(BrokerConnectionError(f"no background thread can be started: {error}"))
        self.completed_tasks = True
        self._wake()

    def _work(self) -> None:
        """Do one after the other, until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                errand = self._waiting.popleft()
            errand.run()
            self.completed_tasks = True
            self._wake()
