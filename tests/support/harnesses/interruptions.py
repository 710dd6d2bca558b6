"""Running something in the middle of a call: a signal, or an exception that comes from nowhere."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MOMENTS = ("call", "c_return")
"""The events of `sys.setprofile` after which Python looks for signals: a function begins, a built-in one has ended."""


class Counter:
    """Counts the moments of a call in library code, and acts at the one that is asked for."""

    def __init__(self, point: int, act: Callable[[], object]) -> None:
        self.point, self._act = point, act
        self.seen = 0

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if event in MOMENTS and "kconsumer" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            self.seen += 1
            if self.seen == self.point:
                sys.setprofile(None)
                self._act()


def at_point(call: Callable[[], Any], point: int, act: Callable[[], object]) -> tuple[int, Any]:
    """Make a call and act at its n-th moment; return how many moments there were until then, and the result."""
    counter = Counter(point, act)
    try:
        sys.setprofile(counter)
        result = call()
    finally:
        sys.setprofile(None)
    return counter.seen, result


@contextmanager
def handler(number: int, function: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Install a signal handler while the block runs."""
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def signal_after(delay_s: float, number: int) -> Iterator[None]:
    """Send a signal to the main thread after a while."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(delay_s, signal.pthread_kill, (main, number))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def no_thread_left(prefix: str = "kconsumer-") -> bool:
    """Return whether the library's threads end soon. One whose `start` was interrupted is listed and never alive."""
    deadline = time.monotonic() + 5
    while any(thread.name.startswith(prefix) and thread.is_alive() for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
