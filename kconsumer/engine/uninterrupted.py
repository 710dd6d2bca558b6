"""Ctrl-C waits while a manager works on the caller's thread.

Python raises KeyboardInterrupt between any two calls. In the middle of a manager that would leave it half done: a fetch
that counts as under way and was never sent would keep its partitions from being read for ever.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType

_signal = import_module("_signal")  # what `signal` wraps, making enums of all that goes in and out: four times the time

Handler = Callable[[int, FrameType | None], object]


class Uninterrupted:
    """While in it SIGINT is only noted; its handler runs on the way out. Only the main thread has signal handlers, so
    on any other this does nothing."""

    __slots__ = ("_handler", "_noted")

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._noted = False

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        handler = _signal.getsignal(signal.SIGINT)
        if callable(handler):
            self._handler = handler
            _signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            _signal.signal(signal.SIGINT, self._handler)
            if self._noted:
                self._handler(signal.SIGINT, None)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._noted = True
