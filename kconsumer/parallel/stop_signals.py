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

    Handlers of the application stay. The first signal calls `stop` with its name. A second one does what it does by
    default, which ends the program at once. The handlers themselves are restored only at the end, because a call of a
    consumer that defers signals would bring back the one that it has found.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._replaced: dict[int, Any] = {}
        self._seen: set[int] = set()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler in DEFAULTS:
                    self._replaced[number] = handler
                    signal.signal(number, self._on_signal)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._replaced.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number not in self._seen:
            self._seen.add(number)
            self._stop(signal.Signals(number).name)
            return
        handler = self._replaced[number]
        if callable(handler):
            handler(number, frame)
        else:  # the default action of SIGTERM, which ends the process
            signal.signal(number, handler)
            signal.raise_signal(number)
