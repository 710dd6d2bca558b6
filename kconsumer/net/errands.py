"""Work that may wait for others than brokers, beside the event loop: credentials to be fetched, tickets to be had.

Decides who does it: short-lived threads, few of them. Whose turn it is when an errand is done, and how long is waited
for it, is the ConnectionLoop's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kconsumer.net.resolver import Start, in_thread

T = TypeVar("T")

MOST_THREADS = 4
"""An issuer of tokens that does not answer keeps as many of one consumer; further errands wait for their turn."""


class Errand(Generic[T]):
    """One piece of work. When `done`, `outcome()` returns what it gave or raises what it raised."""

    __slots__ = ("_error", "_found", "_work", "done")

    def __init__(self, work: Callable[[], T]) -> None:
        self.done = False
        self._work: Callable[[], T] | None = work
        self._found: T | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Do it; what goes wrong is kept."""
        work, self._work = self._work, None
        assert work is not None
        try:
            self._found = work()
        except Exception as error:
            self._error = error
        self.done = True

    def outcome(self) -> T:
        """What came of it."""
        if self._error is not None:
            raise self._error
        found: T = self._found  # type: ignore[assignment]  # of a T that may be None
        return found


class Errands:
    """Runs them. One thread calls `begin`; `ended` tells it that some are done since it last reset it, and `wake` ends
    its waiting."""

    def __init__(self, wake: Callable[[], None], start: Start = in_thread) -> None:
        self.ended = False
        self._wake = wake
        self._start = start
        self._lock = threading.Lock()  # guards these two
        self._waiting: deque[Errand[object]] = deque()
        self._threads = 0

    def begin(self, work: Callable[[], T]) -> Errand[T]:
        """Have it done beside the caller."""
        errand = Errand(work)
        with self._lock:
            self._waiting.append(errand)  # type: ignore[arg-type]  # nobody here looks at what comes of it
            another = self._threads < MOST_THREADS
            self._threads += another
        if another:
            try:
                self._start(self._work)
            except RuntimeError:  # no thread is to be had
                self._work()
        return errand

    def close(self) -> None:
        """Begin nothing more; what is under way ends unheard. Takes no lock: a forked child may call it."""
        self._waiting.clear()

    def _work(self) -> None:
        """Do one after the other, until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                errand = self._waiting.popleft()
            errand.run()
            self.ended = True
            self._wake()
