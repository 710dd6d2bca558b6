"""Defers Python signal handlers while a public call works on the main thread.

Python runs signal handlers on the main thread, between any two bytecodes. In the middle of a manager, a handler that
raises (Ctrl-C, a SIGALRM timeout) would leave the manager's state half changed, and a handler that calls the consumer
would find it half changed. So a public call replaces the handlers by one that notes the signal and ends the wait for
the network. The original handlers run at the points where the consumer is in a consistent state: after each wait, while
user code runs, and when the call returns.

A section begins with `hold` and ends with `release`. In nested sections only the outermost one replaces and restores
handlers. Between public calls the handlers are always the user's own: `asyncio.run`, for example, handles Ctrl-C only
if `signal.getsignal` returns Python's handler, and a handler that calls the one it has replaced must not call ours.

A section begins by replacing the handlers that earlier ones have found, usually that of Ctrl-C alone. Then it compares
the handlers of all signals with those that it saw last, because the user may have installed one since, and does more
only if one of them is another object. Callbacks run between sections, so a nested section need not look again, unless
it has run log handlers or reporters. All this is compiled code (`kconsumer._core.lock`), 0.6 µs for a section. What
happens to a signal that arrives is decided here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib import import_module
from threading import get_ident
from types import FrameType, TracebackType

from kconsumer._core.lock import HeldHandlers

# The C module that `signal` wraps. The wrapper converts arguments and results to enums, which takes four times as long.
_signal = import_module("_signal")

ENTRIES = "kconsumer.engine.access_guard", "kconsumer.engine.shared_calls"
ALL = tuple(sorted(map(int, signal.valid_signals())))


class DeferredSignals(HeldHandlers):
    """Replaces and restores the signal handlers of this process. There is one instance, `SIGNALS`, because only one
    thread runs handlers."""

    __slots__ = ()

    def recover(self) -> None:
        """Restore the handlers if an earlier call did not, because an asynchronous exception ended it."""
        if self.held and not _holder_on_stack():
            self.release()

    def run_handlers(self) -> None:
        """Call the original handlers for the signals in `noted`, and remove these. Raises their exceptions."""
        number = next(iter(self.noted))
        frame = self.noted.pop(number)
        try:
            self._run(number, frame)
        finally:
            if self.noted:
                self.run_handlers()

    def _run(self, number: int, frame: FrameType | None) -> None:
        handler = self.handlers[number]
        if callable(handler):
            handler(number, frame)
        else:  # the default action, or none: user code has reset the handler since it was replaced
            _signal.raise_signal(number)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Store a signal for later. If handlers are not deferred now, call the original handler instead.

        This handler is installed in place of the original handlers.
        """
        if self.active and not _in_our_code(frame):
            self.active = False  # an exception ended the call that should have called `release`
        if not self.active:
            if self.get_handler(number) is self.note:
                self.set_handler(number, self.handlers[number])
            self._run(number, frame)
            return
        self.noted.setdefault(number, frame)
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

    Frames of the modules in ENTRIES do not count, because the call that begins now has one, too.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        in_engine = module.startswith("kconsumer.engine.") and module not in ENTRIES
        if in_engine or frame.f_code.co_name == "_next_batch":
            return True
        frame = frame.f_back
    return False


SIGNALS = DeferredSignals(_signal.getsignal, _signal.signal, ALL, threading.main_thread().ident or 0)
SIGNALS.note = SIGNALS.on_signal  # created once: handlers are compared by identity


def _forked() -> None:
    SIGNALS.main = get_ident()  # fork() leaves one thread, which is the main thread of the child


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forked)


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
