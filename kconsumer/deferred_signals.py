"""Defers Python signal handlers while a public call works on the main thread.

Python runs signal handlers on the main thread, between any two bytecodes. In the middle of a manager, a handler that
raises (Ctrl-C, a SIGALRM timeout) would leave the manager's state half changed, and a handler that calls the consumer
would find it half changed. So a public call replaces the handlers by one that notes the signal and ends the wait for
the network. The original handlers run at the points where the consumer is in a consistent state: after each wait, while
user code runs, and when the call returns.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any

# The C module that `signal` wraps. The wrapper converts arguments and results to enums, which takes four times as long.
_signal = import_module("_signal")
_get, _set = _signal.getsignal, _signal.signal

Handler = Callable[[int, FrameType | None], object]

GUARD = "kconsumer.engine.access_guard"
ALL = tuple(sorted(map(int, signal.valid_signals())))

_main: int | None = threading.main_thread().ident


def _forked() -> None:
    global _main
    _main = get_ident()  # fork() leaves one thread, which is the main thread of the child


def _no_main_thread() -> None:
    """Never defer handlers again in this process.

    This is necessary in a sub-interpreter, and if a thread other than the main thread has imported `threading`.
    """
    global _main
    _main = None


os.register_at_fork(after_in_child=_forked)


class DeferredSignals:
    """Replaces and restores the signal handlers of this process. There is one instance, `SIGNALS`, because only one
    thread runs handlers."""

    __slots__ = ("_handlers", "_known", "_note", "_noted", "active", "wake")

    def __init__(self) -> None:
        self.active = False  # handlers are deferred; a plain attribute, because every call reads it
        self._note: Handler = self._on_signal  # created once: handlers are compared by identity
        self._noted: dict[int, FrameType | None] = {}  # signals that arrived while deferred, in order of arrival
        self._handlers: dict[int, Any] = {}  # the original handler of every signal that was ever replaced
        self._known: tuple[int, ...] = ()  # the signals that had Python handlers at the last `refresh`
        self.wake: Callable[[], None] | None = None  # ends the wait of the call that defers handlers

    def hold(self, wake: Callable[[], None] | None = None) -> bool:
        """Begin to defer signal handlers. `wake` is called when a signal arrives.

        Returns True if this call began to defer. The caller must then call `release`. On any thread but the main
        thread, or if handlers are deferred already, does nothing and returns False.
        """
        if self.active or get_ident() != _main:
            return False
        note, handlers = self._note, self._handlers
        self.wake = wake
        self.active = True
        try:
            for number in self._known:
                handler = _set(number, note)
                if handler is not note:  # it is `note` if an earlier `release` was interrupted
                    handlers[number] = handler
        except BaseException as error:  # a handler that is not replaced yet raised
            self.release()
            if isinstance(error, ValueError) and "main thread" in str(error):
                _no_main_thread()
                return False
            raise
        return True

    def refresh(self) -> None:
        """Find the signals that have Python handlers now, and defer those that are not deferred yet.

        `hold` uses the result of the last call, because checking all signals takes longer than replacing a few
        handlers.
        """
        if not self.active or get_ident() != _main:
            return
        note, known = self._note, []
        for number, handler in zip(ALL, map(_get, ALL), strict=True):
            if handler is note:
                if callable(self._handlers[number]):
                    known.append(number)
                else:  # reset by the user since the last `refresh`
                    _set(number, self._handlers[number])
            elif callable(handler):
                known.append(number)
                self._handlers[number] = _set(number, note)
        self._known = tuple(known)

    def release(self) -> None:
        """Restore the original handlers, then call them for the signals that arrived. Raises their exceptions."""
        if not self.active or get_ident() != _main:
            return
        # Set before the loop. A handler that runs between two calls of the loop may raise, and then some signals keep
        # our handler. That does no harm: while `active` is False, our handler calls the original one.
        self.active = False
        self.wake = None
        note, handlers = self._note, self._handlers
        for number in self._known:
            if _get(number) is note:  # else user code has installed another one
                _set(number, handlers[number])
        if self._noted:
            self._run_noted()

    def run_noted(self) -> None:
        """Call the original handlers for the signals that arrived. Raises their exceptions.

        The state must be consistent. Handlers are deferred again afterwards.
        """
        if self._noted and self.held:
            wake = self.wake
            self.release()
            self.hold(wake)

    def recover(self) -> None:
        """Restore the handlers if an earlier call did not, because an asynchronous exception ended it."""
        if self.held and not _holder_on_stack():
            self.release()

    @property
    def held(self) -> bool:
        """True if the calling thread defers handlers."""
        return self.active and get_ident() == _main

    def _run_noted(self) -> None:
        number = next(iter(self._noted))
        frame = self._noted.pop(number)
        try:
            self._run(number, frame)
        finally:
            if self._noted:
                self._run_noted()

    def _run(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers[number]
        if callable(handler):
            handler(number, frame)
        else:  # the default action, or none: user code has reset the handler since `refresh`
            _signal.raise_signal(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Store a signal for later. If handlers are not deferred now, call the original handler instead.

        This handler is installed in place of the original handlers.
        """
        if self.active and not _in_our_code(frame):
            self.active = False  # an exception ended the call that should have called `release`
        if not self.active:
            if _get(number) is self._note:
                _set(number, self._handlers[number])
            self._run(number, frame)
            return
        self._noted.setdefault(number, frame)
        if self.wake is not None:
            self.wake()


def _in_our_code(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("kconsumer."):
            return True
        frame = frame.f_back
    return False


def _holder_on_stack() -> bool:
    """Returns True if a call that defers handlers is on the stack: a call of an engine, or a consumer's `_next_batch`.

    Frames of `access_guard` do not count, because the call that begins now has one, too.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        in_engine = module.startswith("kconsumer.engine.") and module != GUARD
        if in_engine or frame.f_code.co_name == "_next_batch":
            return True
        frame = frame.f_back
    return False


SIGNALS = DeferredSignals()


class HandlersRunning:
    """A context manager for user code: restores the user's signal handlers, and defers them again afterwards."""

    __slots__ = ("_wake", "_was_held")

    def __enter__(self) -> None:
        self._was_held = SIGNALS.held
        if self._was_held:
            self._wake = SIGNALS.wake
            SIGNALS.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_held:
            SIGNALS.hold(self._wake)
