"""The fast path of fetching for an AsyncConsumer: polls wait for the leased sockets in the event loop.

On Linux, all consumers of an event loop share an epoll set, which has their sockets while polls wait (`loop_epoll.py`).
With other selectors, each consumer has one of its own, whose descriptor the event loop watches. In both cases any
thread may add and remove sockets, and the event loop knows nothing of them. When sockets are ready, a callback of the
event loop processes the responses. A response without records does not resume the task that polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from kconsumer.aio.driver import AsyncDriver
from kconsumer.aio.loop_epoll import AVAILABLE, LoopEpoll
from kconsumer.clock import Clock
from kconsumer.engine.components import Components
from kconsumer.engine.fast_path import EPOLL, FastPathControl
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.managers import FOREVER
from kconsumer.records import ConsumerRecords

CANNOT_WATCH = (NotImplementedError, ValueError, OSError)
"""What `add_reader` raises if the event loop cannot watch the selector: on Windows, or if the selector has no
descriptor."""


class LoopReader:
    """Lets an event loop call a function while the selector of one consumer is ready.

    Does not keep the object of the method alive.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = weakref.WeakMethod(call)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._selector: Any = None  # the selector that the loop watches; None: it watches none

    def start(self, loop: asyncio.AbstractEventLoop, selector: Any) -> None:
        """Watch a selector, unless it is being watched. Raises an error in CANNOT_WATCH if the loop cannot do this."""
        if self._selector is None:
            loop.add_reader(selector, self._ready)
            self._loop, self._selector = loop, selector

    def stop(self) -> None:
        """Stop watching. Must be called before the selector is closed: its descriptor may become that of a file."""
        selector, self._selector = self._selector, None
        if selector is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(selector)

    def stop_soon(self) -> None:
        """Call `stop` in the event loop. Any thread may call this. Keeps the selector open until then."""
        if self._selector is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.stop)

    def _ready(self) -> None:
        call = self._call()
        if call is None:
            self.stop()
        else:
            call()


class AsyncFastPath(FastPathControl):
    """Arms and settles the fast path of an AsyncConsumer, and waits in its event loop."""

    _driver: AsyncDriver

    def __init__(self, parts: Components, driver: AsyncDriver, metrics: ConsumerMetrics) -> None:
        super().__init__(parts, driver, metrics)
        self._reader = LoopReader(self._ready)  # used if the sockets are not in an epoll set
        self._shared: LoopEpoll | None = None  # used if they are, from the first poll on
        self._waiter: asyncio.Future[ConsumerRecords | None] | None = None  # of the poll that waits
        self._deadline = 0.0  # the end of this poll (ms)
        self._timer: asyncio.TimerHandle | None = None  # until then, or until something is due
        self._limits = 0, 0  # the most records and bytes that this poll may return
        driver.has_idle_fetches = bool(self._unusable)

    def __del__(self) -> None:
        if hasattr(self, "_reader"):  # not set if an exception has ended __init__
            self._reader.stop_soon()

    async def poll(self, timeout_ms: float, max_records: int, max_bytes: int) -> ConsumerRecords | None:
        """Returns records, or an empty batch after the timeout. Suspends the task.

        Returns None if the general path must continue. If it raises, the caller must roll back the last poll.
        """
        path, loop, now = self.path, asyncio.get_running_loop(), self._parts.clock.now()
        if now >= path.until:
            self.postpone(now)
        if self._selector is None or not path.begin_poll():
            return None
        try:
            watching = self._start_watching(loop)
        except CANNOT_WATCH:
            self.refuse("not usable with this event loop, which cannot watch sockets")
            watching = False
        if not watching:
            path.end_poll()
            return None
        self._driver.count_suspension()
        self._limits = max_records, max_bytes
        waiter = self._waiter = loop.create_future()
        self._deadline = now + timeout_ms
        self._start_timer(loop, now)
        try:
            records: ConsumerRecords | None = await waiter
        finally:
            self._waiter = None
            path.end_poll()
            self._unwatch()
            if self._timer is not None:
                self._timer.cancel()
        return records

    def refuse(self, reason: str) -> None:
        """Never arm the fast path again, for this reason."""
        self._unusable = reason
        self._driver.has_idle_fetches = True

    def close(self) -> None:
        """Never arm the fast path again, because the consumer is being closed. A poll that waits returns None."""
        self._reader.stop()
        self._end_wait(None)
        self.disable(end_leases=False)
        self._unwatch()
        self._shared = None

    # --- watching ------------------------------------------------------------------------------------------------

    def _start_watching(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Let the event loop call `_ready` when responses arrive. Returns False if the state was settled meanwhile.

        Raises an error in CANNOT_WATCH if that is not possible.
        """
        if AVAILABLE and type(self._selector) is EPOLL and type(self._parts.clock) is Clock:
            if self._shared is None:
                self._shared = LoopEpoll.of(loop)
            return self._shared.epoll.watch(self.path, self._ready)
        self._reader.start(loop, self._selector)
        return True

    def _unwatch(self) -> None:
        if self._shared is not None:
            self._shared.epoll.unwatch(self.path)

    def _stop_watching(self) -> None:
        super()._stop_watching()
        self._unwatch()

    def _wake(self) -> None:
        if self._shared is None:
            super()._wake()
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed while a task waited
            self._shared.loop.call_soon_threadsafe(self._end_settled)

    def _end_settled(self) -> None:
        """End the wait of a poll whose fast path was settled. Does not call `_ready`: nothing calls this again."""
        if not self.path.is_waiting():
            self._end_wait(None)

    # --- in the event loop ---------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """Process the responses that have arrived. The event loop calls this."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._reader.stop()  # no poll waits: the next one starts it again
            return
        try:
            records = self.path.continue_poll(*self._limits)
        except BaseException as error:  # of a signal handler; `poll` raises it
            waiter.set_exception(error)
            return
        if records is not ConsumerRecords.EMPTY:
            waiter.set_result(records)

    def _start_timer(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """End the wait at the timeout, or earlier when managers or timers are due."""
        wait_ms = min(self._deadline, self.path.until) - now
        self._timer = None if wait_ms >= FOREVER else loop.call_later(wait_ms / 1000, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._parts.clock.now()
        if self._deadline <= self.path.until:
            self._end_wait(self.path.expire_poll())
        elif self.postpone(now):
            self._start_timer(loop, now)
        else:
            self._end_wait(None)

    def _end_wait(self, records: ConsumerRecords | None) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(records)
