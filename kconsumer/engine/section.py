"""Context managers for changes of an engine's state: `Section` holds the lock, `Unlocked` releases it for user code."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from kconsumer.deferred_signals import SIGNALS, HandlersRunning
from kconsumer.errors import KafkaError

if TYPE_CHECKING:
    from kconsumer.engine.components import Components

EXPECTED = (KafkaError, TypeError, ValueError, LookupError)
"""Argument checks and managers raise these errors only before they change any state."""


class Step:
    """Records whether a thread is changing the state of an engine.

    `unfinished` is True during a change. It stays True if an exception ends the change in the middle, because the state
    may then be inconsistent. Examples are a MemoryError, an exception set with PyThreadState_SetAsyncExc, and an
    exception raised by a signal handler that is not deferred.
    """

    __slots__ = ("unfinished",)

    def __init__(self) -> None:
        self.unfinished = False

    def begin(self) -> None:
        """Mark the beginning of a change."""
        self.unfinished = True

    def end(self) -> None:
        """Mark the end of a change, after which the state is consistent."""
        self.unfinished = False


class Section:
    """A context manager that holds the engine's lock and defers signal handlers. Sections may be nested.

    If the body raises an exception that is not in EXPECTED, the change may be incomplete. `Step.unfinished` then stays
    set, and every later call except close() raises StateError.
    """

    __slots__ = ("_holds", "_nested", "_parts")

    def __init__(self, parts: Components) -> None:
        self._parts = parts

    def __enter__(self) -> None:
        parts = self._parts
        self._holds = SIGNALS.hold_all(parts.end_wait)
        # Set before the lock is acquired. If an asynchronous exception hits between the acquisition and the body,
        # the lock stays acquired. Later calls then raise StateError, and close() releases the lock.
        self._nested = parts.step.unfinished
        parts.step.unfinished = True
        parts.lock.acquire()
        parts.subscription.set_now(parts.clock.now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parts = self._parts
        if kind is None or issubclass(kind, EXPECTED):
            parts.step.unfinished = self._nested
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

    def __init__(self, parts: Components) -> None:
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
        try:
            self._handlers.__exit__(kind, error, trace)
        finally:
            parts.lock.acquire()
            parts.step.unfinished = kind is None
