"""Context managers for changes of an engine's state: `Section` holds the lock, `Unlocked` releases it for user code."""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from kconsumer.deferred_signals import SIGNALS, HandlersRunning
from kconsumer.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kconsumer.clock import Clock
    from kconsumer.deferred_calls import DeferredCalls
    from kconsumer.engine.environment import Lock, ReentrantLock
    from kconsumer.state.changes import ChangeLog
    from kconsumer.state.partition import PartitionState

EXPECTED = (KafkaError, TypeError, ValueError, LookupError)
"""Argument checks and managers raise these errors only before they change any state."""


class Step:
    """Records whether a thread is changing the state of an engine.

    `unfinished` is True during a change. It stays True if an exception ends the change in the middle, because the state
    may then be inconsistent. Examples are a MemoryError, an exception set with PyThreadState_SetAsyncExc, and an
    exception raised by a signal handler that is not deferred.
    """

    __slots__ = ("shared_by", "unfinished")

    def __init__(self) -> None:
        self.unfinished = False
        self.shared_by = 0  # the id of the thread that holds the lock for a shared call, see `shared_calls.py`; 0: none

    def begin(self) -> None:
        """Mark the beginning of a change."""
        self.unfinished = True

    def begin_shared(self) -> None:
        """Mark the calling thread as the one that holds the lock for a shared call."""
        self.shared_by = get_ident()

    def end_shared(self) -> None:
        """Undo `begin_shared`."""
        self.shared_by = 0

    def end(self) -> None:
        """Mark the end of a change, after which the state is consistent."""
        self.unfinished = False


MAX_TURN_S = 1.0
"""How long a thread waits at a turnstile for the thread that has taken it."""


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
        """Wait until the thread that has taken the turnstile leaves it."""
        self._lock.acquire(timeout=MAX_TURN_S)
        self.leave()


class Guarded(Protocol):
    """The components of a client that a section uses."""

    step: Step
    clock: Clock
    changes: ChangeLog[PartitionState]
    end_wait: Callable[[], None]
    user_calls: DeferredCalls

    @property
    def lock(self) -> ReentrantLock:
        """The engine's lock."""


class Section:
    """A context manager that holds the engine's lock and defers signal handlers. Sections may be nested.

    If the body raises an exception that is not in EXPECTED, the change may be incomplete. `Step.unfinished` then stays
    set, and every later call except close() raises StateError.
    """

    __slots__ = ("_holds", "_nested", "_parts")

    def __init__(self, parts: Guarded) -> None:
        self._parts = parts

    def __enter__(self) -> None:
        parts = self._parts
        self._holds = SIGNALS.hold_all(parts.end_wait)
        # Set before the lock is acquired. If an asynchronous exception hits between the acquisition and the body,
        # the lock stays acquired. Later calls then raise StateError, and close() releases the lock.
        # A shared call holds the lock already. The thread that polls may have set the flag, and wait for the lock: then
        # the flag belongs to that thread, and is not changed here.
        step = parts.step
        self._nested = step.unfinished or (step.shared_by != 0 and step.shared_by == get_ident())
        if not self._nested:
            step.unfinished = True
        parts.lock.acquire()
        parts.changes.set_now(parts.clock.now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parts = self._parts
        if not self._nested and (kind is None or issubclass(kind, EXPECTED)):
            parts.step.unfinished = False
        parts.lock.release()
        if parts.user_calls.waiting:
            parts.user_calls.run()
        if self._holds:
            SIGNALS.release()


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
        parts.step.unfinished = False
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
        unfinished = False  # the state is consistent if an exception ends the body, or that of a signal handler this
        try:
            self._handlers.__exit__(kind, error, trace)
            unfinished = kind is None
        finally:
            parts.lock.acquire()
            parts.step.unfinished = unfinished
