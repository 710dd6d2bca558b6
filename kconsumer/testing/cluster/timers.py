"""Timers of the model: callbacks that run when time has advanced far enough."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

Callback = Callable[[float], None]


class Timer:
    """A callback that runs once, at its deadline, unless it is cancelled."""

    __slots__ = ("_callback", "deadline")

    def __init__(self, deadline: float, callback: Callback | None) -> None:
        self.deadline = deadline  # ms
        self._callback = callback

    @property
    def active(self) -> bool:
        """True until the timer has run or was cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Prevent the callback from running. Does nothing if it has run."""
        self._callback = None

    def run(self, now: float) -> None:
        """Run the callback, unless it has run or was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(now)


NO_TIMER = Timer(math.inf, None)  # one that never runs, in place of None


class Timers:
    """All timers of a cluster, in the order of their deadlines. Equal deadlines run in the order of their creation."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def add(self, deadline: float, callback: Callback) -> Timer:
        """Returns a new timer that calls `callback(now)` at `deadline` (ms)."""
        timer = Timer(deadline, callback)
        heapq.heappush(self._heap, (deadline, next(self._numbers), timer))
        return timer

    def soon(self, callback: Callback) -> Timer:
        """Returns a new timer that runs at the next call of `run`. Callers that have no current time use it."""
        return self.add(0.0, callback)

    def next_deadline(self) -> float | None:
        """Returns the deadline of the next active timer in ms, or None if there is none."""
        while self._heap and not self._heap[0][2].active:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Run all timers whose deadline is not after `now`, including timers that these timers add."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            heapq.heappop(self._heap)[2].run(now)
