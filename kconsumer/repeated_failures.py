"""Limits the warnings about a repeated failure: the first ones at once, others after pauses of up to a minute."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_PAUSE_MS = 60_000.0
FIRST_PAUSE_MS = 1_000.0
WARNINGS_AT_ONCE = 3
MAX_CAUSES = 8
"""After this many causes, another one is not logged at once, because it may be a text that differs each time."""


class RepeatedFailures:
    """Counts the failed attempts at one action, such as connecting to a broker, since its last success."""

    __slots__ = ("_at_once", "_causes", "_first_pause_ms", "_quiet_until", "_suppressed", "_warnings", "failed_at")

    def __init__(self, at_once: int = WARNINGS_AT_ONCE, first_pause_ms: float = FIRST_PAUSE_MS) -> None:
        """Log `at_once` warnings without a pause. The pause after them is `first_pause_ms`; it then doubles."""
        self._at_once = at_once
        self._first_pause_ms = first_pause_ms
        self.reset()

    @classmethod
    def once_a_minute(cls) -> RepeatedFailures:
        """Create a limit of one warning a minute for each cause."""
        return cls(1, MAX_PAUSE_MS)

    def reset(self) -> None:
        """Forget all failures, because the action succeeded. A warning about the next failure is due at once."""
        self._causes: set[frozenset[str]] = set()
        self._warnings = 0
        self._suppressed = 0
        self._quiet_until = 0.0
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
        if now < self._quiet_until and not is_new:
            self._suppressed += 1
            return None
        self._causes.add(cause)
        suppressed, self._suppressed = self._suppressed, 0
        self._warnings += 1
        if self._warnings >= self._at_once:
            pause_ms = self._first_pause_ms * 2.0 ** min(self._warnings - self._at_once, 16)
            self._quiet_until = now + min(pause_ms, MAX_PAUSE_MS)
        return suppressed
