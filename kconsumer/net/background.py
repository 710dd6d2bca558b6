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
E = TypeVar("E", bound="Errand[Any]")

MOST_THREADS = 4
"""A name server, or an issuer of tokens, that does not answer keeps as many; further errands wait for their turn."""

LONGEST_NAP_S = 0.1

Start = Callable[[Callable[[], None]], None]
"""Runs something beside the caller."""


def in_thread(work: Callable[[], None]) -> None:
    """On a daemon thread: nobody waits for it, whatever it waits for."""
    threading.Thread(target=work, name="kconsumer-errand", daemon=True).start()


class Errand(Generic[T]):
    """One piece of work. When `done`, `outcome()` returns what it gave or raises what it raised: `error`, if any."""

    __slots__ = ("_found", "_work", "done", "error")

    def __init__(self, work: Callable[[], T]) -> None:
        self.done = False
        self.error: Exception | None = None
        self._work: Callable[[], T] | None = work
        self._found: T | None = None

    def run(self) -> None:
        """Do it; what goes wrong is kept."""
        work, self._work = self._work, None
        assert work is not None
        try:
            self._found = work()
        except Exception as error:
            self.error = error
        except BaseException as error:  # sys.exit() of a user's callable: the thread has more to do
            self.error = RuntimeError(f"{type(error).__name__} was raised")
        self.done = True

    def fail(self, error: Exception) -> None:
        """End it with this error, without running it."""
        self._work = None
        self.error = error
        self.done = True

    def outcome(self) -> T:
        """What came of it."""
        if self.error is not None:
            raise self.error
        return cast(T, self._found)  # which may be None by right


class Errands:
    """Runs them. One thread calls `begin`; `ended` tells it that some are done since it last reset it, and `wake` ends
    its waiting. If the system has no thread left, they fail, or with `inline` run on the caller's thread."""

    def __init__(self, wake: Callable[[], None], start: Start = in_thread, *, inline: bool = False) -> None:
        self.ended = False
        self._inline = inline
        self._closed = False
        self._wake = wake
        self._start = start
        self._lock = threading.Lock()  # guards these two
        self._waiting: deque[Errand[Any]] = deque()
        self._threads = 0

    def begin(self, work: Callable[[], T]) -> Errand[T]:
        """Have it done beside the caller."""
        return self.send(Errand(work))

    def send(self, errand: E) -> E:
        """The same for an errand of a kind of its own."""
        with self._lock:
            self._waiting.append(errand)
            another = self._threads < MOST_THREADS
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

    def close(self) -> None:
        """Begin nothing more; what is under way ends unheard. Takes no lock: a forked child may call it."""
        self._closed = True
        self._waiting.clear()

    def pause(self, seconds: float) -> None:
        """For an errand that is to wait: raises StateError soon after `close`, when nobody wants its outcome."""
        for _ in range(max(1, round(seconds / LONGEST_NAP_S))):
            if self._closed:
                raise StateError("the consumer was closed")
            threading.Event().wait(min(seconds, LONGEST_NAP_S))

    def _fail_all(self, error: RuntimeError) -> None:
        """Fail what waits: it may be user code, which must not run on the caller's thread, inside the engine's lock."""
        with self._lock:
            self._threads -= 1
            waiting, self._waiting = self._waiting, deque()
        for errand in waiting:
            errand.fail(BrokerConnectionError(f"no thread can be started for the login: {error}"))
        self.ended = True
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
            self.ended = True
            self._wake()
