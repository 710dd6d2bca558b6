"""A clock that moves only when told to, for tests of anything that is given a `Clock`. It never sleeps."""

from __future__ import annotations

from kconsumer.clock import Clock


class VirtualClock(Clock):
    """Stands still until `advance(ms)`; monotonic and wall time move together.

    >>> clock = VirtualClock()
    >>> clock.advance(250)
    >>> clock.now()
    250.0
    """

    def __init__(self, now: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now = float(now)
        self._wall_offset_ms = wall_ms - self._now

    def now(self) -> float:
        """Milliseconds as set by the constructor and moved by `advance`."""
        return self._now

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; moves with `now`."""
        return int(self._wall_offset_ms + self._now)

    def advance(self, ms: float) -> None:
        """Move time forward. A monotonic clock does not go back: ValueError if negative."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back: {ms} ms")
        self._now += ms

    def __repr__(self) -> str:
        return f"VirtualClock(now={self._now})"
