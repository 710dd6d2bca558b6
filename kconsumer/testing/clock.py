"""A clock that tests advance themselves, for any code that receives a `Clock`. It never sleeps."""

from __future__ import annotations

from kconsumer.clock import Clock


class VirtualClock(Clock):
    """Time stands still until `advance(ms)`; monotonic and wall-clock time advance together.

    >>> clock = VirtualClock()
    >>> clock.advance(250)
    >>> clock.now()
    250.0
    """

    def __init__(self, now: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now = float(now)
        self._wall_offset_ms = wall_ms - self._now

    def now(self) -> float:
        """Returns the milliseconds set by the constructor plus those of `advance`."""
        return self._now

    def wall_ms(self) -> int:
        """Returns the milliseconds since the Unix epoch, which advance with `now`."""
        return int(self._wall_offset_ms + self._now)

    def advance(self, ms: float) -> None:
        """Advance the time. Raises ValueError if `ms` is negative, because a monotonic clock does not go back."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back: {ms} ms")
        self._now += ms

    def __repr__(self) -> str:
        return f"VirtualClock(now={self._now})"
