"""A timeout after which a manager concludes that brokers are silent, of which time without polls counts little.

An application may make no call for minutes, and a process may be suspended. What the brokers send meanwhile is unread,
and managers are polled before the network is read. So the time since the last poll is no evidence against the brokers.
"""

from __future__ import annotations


class PolledTimer:
    """Counts the time since `start`. A gap between two polls counts for at most two intervals."""

    __slots__ = ("_interval_ms", "_left_ms", "_polled_at", "_timeout_ms")

    def __init__(self, timeout_ms: float, interval_ms: float) -> None:
        """Create a stopped timer. While it runs, the client polls it once in `interval_ms`, if it can."""
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._left_ms = float("inf")
        self._polled_at = 0.0

    def start(self, now: float) -> None:
        """Start the timeout at `now` (ms), again if it is running."""
        self._left_ms, self._polled_at = self._timeout_ms, now

    def stop(self) -> None:
        """Stop the timeout, so that it does not pass."""
        self._left_ms = float("inf")

    @property
    def running(self) -> bool:
        """True if the timeout was started and not stopped."""
        return self._left_ms < float("inf")

    def poll(self, now: float) -> bool:
        """Count the time since the last poll. Returns True if the timeout has passed."""
        self._left_ms -= min(now - self._polled_at, 2 * self._interval_ms)
        self._polled_at = now
        return self._left_ms <= 0

    def due_ms(self, now: float) -> float:
        """Returns the time (ms) until the next poll is due, or infinity if the timer is stopped."""
        if not self.running:
            return self._left_ms
        return max(0.0, min(self._left_ms, self._interval_ms) - (now - self._polled_at))
