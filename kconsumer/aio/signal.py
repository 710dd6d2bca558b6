"""AsyncSignal: notifies tasks of an event loop that the state of an engine has changed."""

from __future__ import annotations

import asyncio
import contextlib

from kconsumer._core.lock import Clock
from kconsumer.engine.environment import Lock
from kconsumer.engine.events import Signal
from kconsumer.metrics.registry import Metrics

CHECK_S = 1.0
"""How often (s) a wait checks the signal. A signal handler that raises in the event loop may end the callback which
would have ended the wait."""


class AsyncSignal(Signal):
    """A signal for which tasks wait without blocking their event loop. `notify` ends the waits of all tasks."""

    def __init__(self, metrics: Metrics, clock: Clock, lock: Lock) -> None:
        super().__init__(metrics, clock, lock)
        self._waiting: dict[asyncio.Future[bool], None] = {}  # in the order in which their waits began
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of the tasks that wait; None if none waits
        self.suspensions = 0  # counts the waits that have suspended a task
        self.scheduled = False  # the loop will call `_end_waits`

    def notify(self) -> None:
        super().notify()
        # After the signal was set: a task adds itself first, and then checks the signal. One of both sees the other.
        loop = self._loop
        if loop is not None and not self.scheduled:
            self.scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop was closed while a task waited
                loop.call_soon_threadsafe(self._end_waits)

    async def wait_async(self, timeout_ms: float) -> bool:
        """Wait until `notify` is called. Returns True then, and False after `timeout_ms`.

        If `notify` was called since the last wait, returns True at once.
        """
        if timeout_ms <= 0:
            return self.wait(0.0)
        left_s, suspended = timeout_ms / 1000, self.suspensions
        while left_s > 0:
            part_s = min(left_s, CHECK_S)
            if await self._wait_once(part_s):
                return True
            left_s -= part_s
            self.suspensions = suspended + 1  # the parts of one wait count as one
            self.scheduled = False  # if `_end_waits` was interrupted before it began, let `notify` schedule it again
        return False

    async def _wait_once(self, timeout_s: float) -> bool:
        """Wait until `notify` is called, or for `timeout_s`. Returns whether it was called."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting[future] = None
        self._loop = loop
        try:
            if self.wait(0.0):
                return True
            self.suspensions += 1
            timer = loop.call_later(timeout_s, _end_wait, future, False)
            try:
                notified = await future
            finally:
                timer.cancel()
            return self.wait(0.0) or notified  # another task may have seen the signal first
        finally:
            del self._waiting[future]
            if not self._waiting:
                self._loop = None

    def _end_waits(self) -> None:
        self.scheduled = False
        for future in self._waiting:
            _end_wait(future, True)


def _end_wait(future: asyncio.Future[bool], notified: bool) -> None:
    if not future.done():
        future.set_result(notified)
