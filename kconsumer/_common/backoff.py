"""Exponential backoff: how long to wait before a retry, for brokers, partitions, requests and token endpoints.

Decides only the length of a pause, as Java's `ExponentialBackoff` does. Managers and connections count their failures,
and decide what is retried.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

MULTIPLIER = 2.0
JITTER = 0.2


class ExponentialBackoff:
    """Computes delays (ms): `initial_ms` before the first retry, and twice as long before each further one.

    Each delay is multiplied by a random factor of 0.8 to 1.2, so that the clients of a failed broker do not all retry
    at the same moment. A product above `max_ms` is reduced to `max_ms`. If `max_ms` is not greater than `initial_ms`,
    every delay is `max_ms`, without a random factor (as in Java).
    """

    __slots__ = ("_initial_ms", "_max_exponent", "_max_ms", "_rng")

    def __init__(self, initial_ms: float, max_ms: float, rng: random.Random | None = None) -> None:
        self._initial_ms = float(min(initial_ms, max_ms))
        self._max_ms = float(max_ms)
        self._max_exponent = math.log(max_ms / max(initial_ms, 1), MULTIPLIER) if max_ms > initial_ms else 0.0
        self._rng = rng or random.Random()

    def delay_ms(self, attempt: int) -> float:
        """Returns the delay (ms) before retry number `attempt`, counted from 0."""
        return self._delay_ms(attempt, self._factor())

    def shared_delay(self) -> Callable[[int], float]:
        """Returns a function like `delay_ms` that uses the same random factor in all calls.

        Use this for partitions that failed in one response. With different factors, their retries would be due at
        different times, and each of them would need its own request.
        """
        factor = self._factor()
        return lambda attempt: self._delay_ms(attempt, factor)

    def _factor(self) -> float:
        return self._rng.uniform(1 - JITTER, 1 + JITTER) if self._max_exponent else 1.0

    def _delay_ms(self, attempt: int, factor: float) -> float:
        term = self._initial_ms * math.pow(MULTIPLIER, min(attempt, self._max_exponent))
        return min(self._max_ms, term * factor)


class RetryTimer:
    """Counts the failures in a row of one request or lookup, and computes when the next attempt is due."""

    __slots__ = ("_backoff", "attempts", "until")

    def __init__(self, backoff: ExponentialBackoff) -> None:
        self._backoff = backoff
        self.attempts = 0  # failures since the last reset
        self.until = 0.0  # when the backoff ends (ms)

    def failed(self, now: float) -> None:
        """Count a failure at `now` and start the backoff before the next attempt."""
        self.until = now + self._backoff.delay_ms(self.attempts)
        self.attempts += 1

    def reset(self) -> None:
        """Forget the failures and end the backoff."""
        self.attempts = 0
        self.until = 0.0

    def remaining_ms(self, now: float) -> float:
        """Returns the time (ms) until the backoff ends; 0 if the next attempt is due."""
        return max(0.0, self.until - now)
