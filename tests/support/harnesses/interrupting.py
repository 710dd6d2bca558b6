"""Raises after one chosen call, as the handler of a signal does.

Python runs handlers when a function of Python is entered and when one of C has returned, in the main thread.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNAL = signal.SIGUSR1


class Interruption(BaseException):
    """What the handler raises; like KeyboardInterrupt no `Exception`."""


@contextmanager
def handler_installed() -> Iterator[None]:
    """Raise Interruption on SIGNAL in the `with` block."""
    before = signal.signal(SIGNAL, _interrupt)
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Interruption


class Calls:
    """Counts the calls between `begin` and `sys.setprofile(None)`, and has the signal arrive after the `number`-th."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self._arrived: list[Any] = []
        self._arrive: Iterator[Any] = map(ctypes.pythonapi.PyErr_SetInterruptEx, [SIGNAL])

    def begin(self) -> None:
        """Count from here on."""
        sys.setprofile(self._event)

    def _event(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_return"):
            self.count += 1
            if self.count == self.number:
                # An iterator that is unpacked, for after a plain call the handler would run here. This way it runs
                # where the interpreter next looks for signals, in the code that is being tested.
                self._arrived = [*self._arrive]
