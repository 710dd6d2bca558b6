"""The only module that reads time.

All other modules receive the time as `now`: milliseconds of a monotonic clock, as a float. Durations are called `…_ms`.
Wall-clock time has a method of its own. Metrics and the reset policy `by_duration` need it.
"""

from __future__ import annotations

import time


class Clock:
    """Monotonic and wall-clock time in milliseconds. Tests use a clock that they advance themselves."""

    def now(self) -> float:
        """Returns the milliseconds of a monotonic clock."""
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        """Returns the milliseconds since the Unix epoch."""
        return int(time.time() * 1000)


class Timer:
    """The deadline of a public call."""

    __slots__ = ("_clock", "deadline")

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self.deadline = clock.now() + timeout_ms

    def remaining_ms(self) -> float:
        """Returns the milliseconds left, at least 0."""
        return max(0.0, self.deadline - self._clock.now())

    @property
    def expired(self) -> bool:
        """True if the deadline has passed."""
        return self._clock.now() >= self.deadline

    def __repr__(self) -> str:
        return f"Timer({self.remaining_ms():.0f} ms left)"
