"""SIGTERM and SIGINT end a run as `stop()` does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


class StopSignals:
    """A context manager that replaces the default handlers of SIGTERM and SIGINT on the main thread.

    Handlers of the application stay. The first signal calls `stop` with its name, and restores the default handler. So
    a second one ends the program at once.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._replaced: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler in DEFAULTS:
                    self._replaced[number] = handler
                    signal.signal(number, self._on_signal)

    def __exit__(self, *error: object) -> None:
        for number in list(self._replaced):
            self._restore(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._restore(number)
        self._stop(signal.Signals(number).name)

    def _restore(self, number: int) -> None:
        handler = self._replaced.pop(number, None)
        if handler is not None:
            signal.signal(number, handler)
