"""LoopGuard: lets only tasks of one event loop use an AsyncConsumer."""

from __future__ import annotations

import asyncio
import threading
from asyncio.events import _get_running_loop
from collections.abc import Callable

from kconsumer._core.lock import Step
from kconsumer.engine.access_guard import AccessGuard
from kconsumer.errors import ConcurrentAccessError


class LoopGuard(AccessGuard):
    """Binds a consumer to the event loop in which a method was first called.

    Methods that do not wait may also be called outside an event loop, on the same thread.
    """

    __slots__ = ("_loop", "_thread")

    one_thread = True

    def __init__(self, step: Step | None = None, end_wait: Callable[[], None] | None = None) -> None:
        super().__init__(step, end_wait)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def check_usable(self) -> None:
        """Raise the errors of `enter` that do not depend on which thread has entered.

        Tasks do not enter the guard while they change the state. So on another thread, a change that is not finished
        may be one that the thread of the event loop is making.
        """
        if self._thread in (0, threading.get_ident()) or self.closed or self.forked:
            super().check_usable()

    def check(self, *, closing: bool = False) -> None:
        """Raise the same errors as `enter`. Tasks of one event loop never run at the same time, so none can wait."""
        if _get_running_loop() is not self._loop or self.closed or self.step.unfinished or self.forked:
            self.holder = self.enter(closing=closing)

    def enter(self, *, closing: bool = False) -> int:
        """Enter the guard, see `AccessGuard.enter`.

        Raises ConcurrentAccessError on another thread, and in another event loop.
        """
        if self.forked:
            return super().enter(closing=closing)  # raises
        loop = _get_running_loop()
        if self._loop is None and loop is not None:
            self._loop, self._thread = loop, threading.get_ident()
        elif self._loop is not None and (loop or self._loop, threading.get_ident()) != (self._loop, self._thread):
            raise ConcurrentAccessError(
                "this consumer belongs to the event loop that has used it first; make one consumer for each event"
                " loop, and from another thread use loop.call_soon_threadsafe(consumer.pause, partition), or"
                " asyncio.run_coroutine_threadsafe(consumer.commit(), loop) (only wakeup(), store_offsets() and"
                " health() may be called directly)"
            )
        return super().enter(closing=closing)
