"""Requests that wait until they can be completed or a timeout has passed: Fetch, ShareFetch, Produce with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kconsumer.testing.cluster.requests import Pending
from kconsumer.testing.cluster.timers import NO_TIMER, Timer, Timers


class Source(Protocol):
    """A log or a share partition, whose changes may complete a request."""

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener()` after each change."""

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling a listener."""


class Delayed:
    """A request that waits. `sources` notify it of changes.

    `can_complete()`: returns whether the request need not wait any more. `complete(now)`: sends the response.
    """

    def __init__(
        self,
        timers: Timers,
        pending: Pending,
        sources: Iterable[Source],
        can_complete: Callable[[], bool],
        complete: Callable[[float], None],
    ) -> None:
        self._timers, self._pending, self._sources = timers, pending, list(sources)
        self._can_complete, self._complete = can_complete, complete
        self._timeout: Timer = NO_TIMER
        self._check_timer: Timer = NO_TIMER

    def start(self, now: float, max_wait_ms: float) -> None:
        """Wait for changes, at most `max_wait_ms`."""
        self._timeout = self._timers.add(now + max_wait_ms, self._finish)
        for source in self._sources:
            source.add_listener(self._on_change)

    def _on_change(self) -> None:
        """Check, when the timers run next, whether the request can be completed. One check is for all changes."""
        if not self._check_timer.active:
            self._check_timer = self._timers.soon(self._check)

    def _check(self, now: float) -> None:
        if self._pending.done or self._can_complete():
            self._finish(now)

    def _finish(self, now: float) -> None:
        """Stop waiting. If the request has no response yet, and its connection is open, responds now."""
        for timer in (self._timeout, self._check_timer):
            timer.cancel()
        for source in self._sources:
            source.remove_listener(self._on_change)
        if not self._pending.done:
            self._complete(now)
