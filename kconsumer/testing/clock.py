"""A clock whose time changes only when a test advances it. Tests pass it to code that takes a `Clock`."""

from __future__ import annotations

from kconsumer._core.lock import Clock


class VirtualClock(Clock):
    """A clock whose time changes only by `advance(ms)`, which advances monotonic and wall-clock time equally.

    >>> clock = VirtualClock()
    >>> clock.advance(250)
    >>> clock.now()
    250.0
    """

    def __init__(self, now: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now = float(now)
        self._wall_offset_ms = wall_ms - self._now

    def now(self) -> float:
        """Returns the monotonic time in ms: the constructor's `now` plus the sum of all calls of `advance`."""
        return self._now

    def wall_ms(self) -> int:
        """Returns the wall-clock time in ms since the Unix epoch. It advances together with `now`."""
        return int(self._wall_offset_ms + self._now)

    def advance(self, ms: float) -> None:
        """Advance the time by `ms`. Raises ValueError if it is negative, because a monotonic clock never goes back."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back: {ms} ms")
        self._now += ms

    def __repr__(self) -> str:
        return f"VirtualClock(now={self._now})"
