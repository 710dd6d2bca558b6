"""Gate: whether handlers may be started now: not while a run is paused, at most at a rate, not while a sink is down."""

from __future__ import annotations

import math

from kconsumer.parallel.settings import CircuitBreaker, Settings

BURST_S = 0.1  # records of this time may be started at once, if none were started before


class Gate:
    """Decides how many records may be started. `now` is in ms."""

    def __init__(self, settings: Settings) -> None:
        self.paused = False
        self.limited = settings.rate_limit is not None or settings.circuit_breaker is not None
        self._rate = _Rate(settings.rate_limit) if settings.rate_limit is not None else None
        self._circuit = _Circuit(settings.circuit_breaker) if settings.circuit_breaker is not None else None

    def allowance(self, now: float) -> float:
        """Returns how many records may be started now."""
        if self.paused:
            return 0
        circuit = math.inf if self._circuit is None else self._circuit.allowance(now)
        return circuit if self._rate is None else min(circuit, self._rate.allowance(now))

    def opens_at(self, now: float) -> float | None:
        """Returns when more records may be started than now, or None if that is not a matter of time."""
        if self.paused:
            return None
        times = [part.opens_at(now) for part in (self._circuit, self._rate) if part is not None]
        return max((time for time in times if time is not None), default=None)

    def suspended(self, now: float) -> bool:
        """Returns True if no more records need to be read: the run is paused, or its sink is down."""
        return self.paused or (self._circuit is not None and self._circuit.opens_at(now) is not None)

    def started(self, count: int) -> None:
        """Note that records were started."""
        for part in (self._circuit, self._rate):
            if part is not None:
                part.started(count)

    def succeeded(self) -> None:
        """Note that a handler has returned."""
        if self._circuit is not None:
            self._circuit.succeeded()

    def failed(self, now: float) -> None:
        """Note that an attempt has failed."""
        if self._circuit is not None:
            self._circuit.failed(now)

    def dropped(self) -> None:
        """Note that a record was not processed after all."""
        if self._circuit is not None:
            self._circuit.trial = False


class _Rate:
    """A token bucket."""

    def __init__(self, per_second: float) -> None:
        self._per_ms = per_second / 1000
        self._burst = max(1.0, per_second * BURST_S)
        self._tokens = self._burst
        self._filled_at: float | None = None

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_ms)
        self._filled_at = now

    def allowance(self, now: float) -> int:
        """Returns the number of tokens."""
        self._fill(now)
        return int(self._tokens + 1e-9)

    def opens_at(self, now: float) -> float | None:
        """Returns when there will be a token, or None if there is one."""
        return None if self.allowance(now) else now + (1.0 - self._tokens) / self._per_ms

    def started(self, count: int) -> None:
        """Take tokens."""
        self._tokens -= count


class _Circuit:
    """Opens after failures in a row. After its pause, one record is tried, and its result closes or opens it again."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._failures = 0  # in a row
        self._open_until: float | None = None  # None: closed
        self.trial = False  # a record is tried

    def allowance(self, now: float) -> float:
        """Returns how many records may be started."""
        if self._open_until is None:
            return math.inf
        return 0 if now < self._open_until or self.trial else 1

    def opens_at(self, now: float) -> float | None:
        """Returns when a record may be tried, or None if one may be started now, or is tried."""
        return self._open_until if self._open_until is not None and now < self._open_until else None

    def started(self, count: int) -> None:
        """Note the trial."""
        self.trial = self._open_until is not None

    def succeeded(self) -> None:
        """Close after a trial. A record that was started before the circuit opened changes nothing."""
        if self._open_until is None or self.trial:
            self._failures, self._open_until, self.trial = 0, None, False

    def failed(self, now: float) -> None:
        """Open after enough failures in a row, or after a trial."""
        self._failures += 1
        if self.trial or (self._open_until is None and self._failures >= self._breaker.failures):
            self._open_until, self.trial = now + self._breaker.pause_s * 1000, False
