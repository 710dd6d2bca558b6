"""Limits the warnings about a repeated failure: the first ones at once, others after pauses of up to a minute."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_PAUSE_MS = 60_000.0
FIRST_PAUSE_MS = 1_000.0
WARNINGS_AT_ONCE = 3


class RepeatedFailures:
    """Counts the failed attempts at one action, such as connecting to a broker, since its last success."""

    __slots__ = ("_cause", "_quiet_until", "_suppressed", "_warnings")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all failures, because the action succeeded. A warning about the next failure is due at once."""
        self._cause: frozenset[str] = frozenset()
        self._warnings = 0
        self._suppressed = 0
        self._quiet_until = 0.0

    def failed(self, reasons: Iterable[str], now: float) -> int | None:
        """Count a failure at `now` (ms). Returns None if no warning about it is due.

        If a warning is due, returns the number of failures since the last warning, not counting this one. A warning is
        due at once if the cause has changed. `reasons` describe the cause. Numbers in a reason, such as the duration of
        an attempt, are not part of the cause.
        """
        cause = frozenset(re.sub(r"\d+", "", reason) for reason in reasons)
        if cause != self._cause:
            self._cause, self._warnings, self._quiet_until = cause, 0, 0.0
        if now < self._quiet_until:
            self._suppressed += 1
            return None
        suppressed, self._suppressed = self._suppressed, 0
        self._warnings += 1
        if self._warnings >= WARNINGS_AT_ONCE:
            pause_ms = FIRST_PAUSE_MS * 2.0 ** min(self._warnings - WARNINGS_AT_ONCE, 16)
            self._quiet_until = now + min(pause_ms, MAX_PAUSE_MS)
        return suppressed
