"""Runs something at one chosen point of a call: the handler of a signal, or an exception that no handler raised.

Decides which points there are and which of them a test run tries. What must hold afterwards is each test's own.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from types import FrameType
from typing import Any, TypeVar

import kconsumer
from support.harnesses.stopwatch import Stopwatch

T = TypeVar("T")
Action = Iterator[object]
"""What happens at a point: the iterator is exhausted, which may raise."""

LIBRARY = os.path.dirname(kconsumer.__file__)
EVENTS = ("call", "c_return")
"""The events of `sys.setprofile` after which Python runs signal handlers: a function of Python was entered, or one of C
has returned."""

EVERY_POINT = "KCONSUMER_EVERY_POINT"
FAKE_CLUSTER = "kconsumer-fake-cluster"  # the thread of a cluster, which a test may leave running
DENSE = 40  # the points that every run tries
STRIDE = 9


def points(number: int, stride: int = STRIDE) -> Iterator[int]:
    """Yield the points that a test tries: each of the first ones, then one of `stride`.

    Which one depends on the test's `number` and on the day, so that the tests of a table, and the runs of `stride`
    days, try all of them. With the environment variable KCONSUMER_EVERY_POINT every run does (tox -e interruptions).
    """
    yield from range(1, DENSE + 1)
    every = EVERY_POINT in os.environ
    point = DENSE + 1 + (0 if every else (number + date.today().toordinal()) % stride)
    while True:
        yield point
        point += 1 if every else stride


def one_of(choices: list[T], number: int) -> list[T]:
    """Returns one of the choices, picked by a number and the day; all of them with KCONSUMER_EVERY_POINT."""
    if EVERY_POINT in os.environ:
        return choices
    return [choices[(number + date.today().toordinal()) % len(choices)]]


class Interruption(BaseException):
    """What `raising` handlers raise; like KeyboardInterrupt no `Exception`."""


class Tracer:
    """Counts the points between `start` and `stop` and acts at the one with the number `point`.

    Points lie in the code of the library, with `everywhere` also in the standard library and in the test. No garbage is
    collected meanwhile: a handler that runs in a finalizer of an earlier test would not end the call.
    """

    def __init__(self, point: int, action: Action, *, everywhere: bool = False) -> None:
        self.point, self._action, self._everywhere = point, action, everywhere
        self.seen = 0
        self._results: list[object] = []
        # CPython 3.11 keeps no reference while it calls a profile function. Garbage collection may run finalizers
        # there, and an exception in a nested profile call makes CPython release the function.
        self._profile = self._event

    def start(self) -> None:
        """Count from here on."""
        gc.disable()
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Stop counting."""
        sys.setprofile(None)
        gc.enable()

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        in_library = frame.f_code.co_filename.startswith(LIBRARY)
        if event == "c_return" and not in_library and getattr(argument, "__name__", "") == "__enter__":
            # From 3.14 on, `with lock:` runs signal handlers when the lock is held and the block has not begun. An
            # exception then leaves the lock locked for ever. The library's own code uses SignalSafeLock, but a thread
            # may wait for such a lock of `threading`.
            return
        if event in EVENTS and (self._everywhere or in_library):
            self.seen += 1
            if self.seen == self.point:
                # After a call the interpreter checks for signals, and the handler would run here. Unpacking an iterator
                # of C is no call, so that the handler runs in the code that is traced.
                self._results = [*self._action]


def arrival(number: int) -> Action:
    """Let a signal arrive, whose handler runs where the interpreter next checks for signals."""
    return map(ctypes.pythonapi.PyErr_SetInterruptEx, [number])


def at_point(call: Callable[[], Any], point: int, action: Action) -> tuple[int, Any]:
    """Make a call and act at its n-th point. Returns the number of points and the call's result."""
    tracer = Tracer(point, action)
    try:
        tracer.start()
        result = call()
    finally:
        tracer.stop()
    return tracer.seen, result


@contextmanager
def handler(number: int, function: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Install a signal handler while the block runs."""
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def raising(_number: int, _frame: FrameType | None) -> None:
    """Raise Interruption, as the handler of a signal."""
    raise Interruption


def interrupted(call: Callable[[], object], point: int) -> bool:
    """Make a call, during which the handler of SIGUSR1 is `raising`.

    SIGUSR1 arrives at the n-th point after which Python runs handlers, also in `__enter__` of a lock and in the
    standard library. Returns whether the handler's exception ended the call.
    """
    seen = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event in EVENTS
        if event in EVENTS and seen == point:
            [*arrival(signal.SIGUSR1)]

    with handler(signal.SIGUSR1, raising):
        sys.setprofile(profile)
        try:
            call()
        except Interruption:
            return True
        finally:
            sys.setprofile(None)
    return False


@contextmanager
def signal_after(delay_s: float, number: int, sent: list[Stopwatch] | None = None) -> Iterator[None]:
    """Send a signal to the main thread after a while, unless the block has ended.

    Adds a stopwatch to `sent` when the signal is sent. On a busy machine this may be much later than `delay_s`.
    """
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        if sent is not None:
            sent.append(Stopwatch())
        signal.pthread_kill(main, number)

    timer = threading.Timer(delay_s, send)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def running_threads(prefix: str = "kconsumer-") -> list[str]:
    """Returns the names of the threads of consumers that run.

    A thread whose `start` was interrupted is listed for ever. It is not alive, or waits for a lock of `threading` that
    the interruption left locked, and never reaches `Thread.run`.
    """
    frames = sys._current_frames()
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(prefix) and thread.name != FAKE_CLUSTER and thread.is_alive()
        if not _is_starting(frames.get(thread.ident or 0))
    ]


def _is_starting(frame: FrameType | None) -> bool:
    """Returns whether a thread with this innermost frame has not reached `Thread.run`, or ended it."""
    while frame is not None and frame.f_code.co_filename == threading.__file__ and frame.f_code.co_name != "run":
        frame = frame.f_back
    return frame is None


def no_thread_left(prefix: str = "kconsumer-") -> bool:
    """Returns whether the library's threads end soon."""
    deadline = time.monotonic() + 5
    while running_threads(prefix):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
