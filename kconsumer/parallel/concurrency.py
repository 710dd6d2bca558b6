"""Concurrency: what a run uses of the operating system, namely time, threads, locks and an event loop.

A run creates these only here. A test can replace it, and so let whole runs happen in virtual time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer._core.lock import Clock
from kconsumer.engine.environment import ReentrantLock, Thread

if TYPE_CHECKING:
    import asyncio


class Condition(Protocol):
    """The methods of `threading.Condition` that a run uses. The calling thread holds the lock of the condition."""

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, at most `timeout` seconds, and acquire the lock again."""
        ...

    def notify(self, n: int = 1) -> None:
        """End the waits of up to `n` threads."""
        ...

    def notify_all(self) -> None:
        """End all waits."""
        ...


class Concurrency:
    """The clock, threads, locks and event loops of the operating system."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()

    def lock(self) -> ReentrantLock:
        return cast("ReentrantLock", SignalSafeLock())

    def condition(self, lock: ReentrantLock) -> Condition:
        return threading.Condition(cast("threading.RLock", lock))

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """Returns a daemon thread that calls `run`. It is not started."""
        return threading.Thread(target=run, name=name, daemon=True)

    def sleep(self, seconds: float) -> None:
        """Let the calling thread wait."""
        threading.Event().wait(seconds)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio  # imported when used

        return asyncio.new_event_loop()
