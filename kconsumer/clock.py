"""The only module that reads time.

Everywhere inside kconsumer a moment is `now`: float milliseconds on a monotonic clock; a duration is `…_ms`.
Wall-clock time (for `by_duration` resets and metrics) is asked for by name.
"""

from __future__ import annotations

import time


class Clock:
    """Monotonic and wall-clock time in milliseconds; tests pass one that they move by hand."""

    def now(self) -> float:
        """Milliseconds on a monotonic clock."""
        return time.monotonic() * 1000.0

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return int(time.time() * 1000)


class Timer:
    """A deadline on a clock: how long a public call may still take."""

    __slots__ = ("_clock", "deadline")

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self.deadline = clock.now() + timeout_ms

    def remaining_ms(self) -> float:
        """Milliseconds left, never negative."""
        return max(0.0, self.deadline - self._clock.now())

    @property
    def expired(self) -> bool:
        """True once the deadline has passed."""
        return self._clock.now() >= self.deadline

    def __repr__(self) -> str:
        return f"Timer({self.remaining_ms():.0f} ms left)"
