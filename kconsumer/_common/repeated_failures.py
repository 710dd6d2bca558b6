"""Limits the warnings about a repeated failure: the first one at once, others once a minute."""

from __future__ import annotations

import re
from collections.abc import Iterable

WARNING_INTERVAL_MS = 60_000.0
MAX_CAUSES = 8
"""After this many causes, another one is not logged at once, because it may be a text that differs each time."""


class RepeatedFailures:
    """Counts the failed attempts at one action, such as connecting to a broker, since its last success."""

    __slots__ = ("_causes", "_suppressed", "_warned_at", "failed_at")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all failures, because the action succeeded. A warning about the next failure is due at once."""
        self._causes: set[frozenset[str]] = set()
        self._suppressed = 0
        self._warned_at = float("-inf")  # when the last warning was due (ms)
        self.failed_at = float("-inf")  # the time of the last failure (ms)

    def failed(self, reasons: Iterable[str], now: float) -> int | None:
        """Count a failure at `now` (ms). Returns None if no warning about it is due.

        If a warning is due, returns the number of failures since the last warning, not counting this one. A warning is
        due at once for a cause that is the first of its kind since the last success. Causes that alternate are limited
        together. `reasons` describe the cause. Numbers in a reason, such as the duration of an attempt, are not part of
        the cause.
        """
        self.failed_at = now
        cause = frozenset(re.sub(r"\d+", "", reason) for reason in reasons)
        is_new = cause not in self._causes and len(self._causes) < MAX_CAUSES
        if now < self._warned_at + WARNING_INTERVAL_MS and not is_new:
            self._suppressed += 1
            return None
        self._causes.add(cause)
        self._warned_at = now
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
