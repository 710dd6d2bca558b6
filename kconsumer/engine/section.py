"""`Unlocked` releases the lock for user code. `Turnstile` lets another thread acquire it first."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from kconsumer._internal.deferred_signals import HandlersRunning

if TYPE_CHECKING:
    from kconsumer._common.deferred_calls import DeferredCalls
    from kconsumer._core.lock import Step
    from kconsumer.engine.environment import Lock, ReentrantLock

MAX_TURN_S = 1.0
"""How long a thread waits at a turnstile for the thread that has taken it."""
MAX_YIELD_S = 0.05
"""The same for the thread that polls, in each step. Others that take the turnstile again and again cannot stop it."""


class Turnstile:
    """Where a thread waits for the engine's lock, so that the thread that polls lets it acquire the lock first.

    `taken` is True while a thread waits. It is an attribute, because each step of a poll reads it. No wait at the
    turnstile is long, because an exception may have ended the thread that has taken it.
    """

    __slots__ = ("_lock", "taken")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.taken = False

    def enter(self) -> None:
        """Take the turnstile. Waits for other threads that have taken it."""
        self._lock.acquire(timeout=MAX_TURN_S)
        self.taken = True

    def leave(self) -> None:
        """Leave the turnstile, after the engine's lock was acquired."""
        self.taken = False
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> None:
        """Wait until the thread that has taken the turnstile leaves it. Called by the thread that polls."""
        self._lock.acquire(timeout=MAX_YIELD_S)
        self.leave()


class Guarded(Protocol):
    """The components of a client that `Unlocked` uses."""

    step: Step
    user_calls: DeferredCalls

    @property
    def lock(self) -> ReentrantLock:
        """The engine's lock."""


class Unlocked:
    """A context manager for user code inside a section. It releases the lock and lets signal handlers run.

    The thread must hold the lock exactly once, and the state must be consistent. The user code may change the state.
    """

    __slots__ = ("_handlers", "_parts")

    def __init__(self, parts: Guarded) -> None:
        self._parts = parts
        self._handlers = HandlersRunning()

    def __enter__(self) -> None:
        parts = self._parts
        parts.step.end()
        parts.lock.release()
        try:
            if parts.user_calls.waiting:
                parts.user_calls.run()
            self._handlers.__enter__()
        except BaseException:  # of a signal handler: acquire the lock, which the section around this releases
            parts.lock.acquire()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parts = self._parts
        changing = False  # the state is consistent if an exception ends the body, or that of a signal handler this
        try:
            self._handlers.__exit__(kind, error, trace)
            changing = kind is None
        finally:
            parts.lock.acquire()
            parts.step.resume(changing)
