"""AcquireLimit: how many records a run with a share consumer may have acquired.

Each delivery of a record counts, also if its handler was not started: the group gives the record up after a few of
them. A record that waits here is locked, and no other member can process it. So a run acquires what its workers finish
in about a second, and at least two records for each worker.
"""

from __future__ import annotations

from collections.abc import Iterable

RECORDS_PER_WORKER = 2  # one that is processed, and one that is ready
AHEAD_MS = 1000.0  # the records of this time are acquired
WINDOW_MS = 100.0  # how often the rate is measured
STEP_MS = 1000.0  # a run that begins carefully acquires one more record after each such time


class AcquireLimit:
    """Measures how quickly records are finished. All times are in ms."""

    def __init__(self, workers: int, maximum: int, *, careful: bool) -> None:
        """Create a limit of at most `maximum` records.

        A `careful` run ends if a handler fails. Its first poll acquires a single record. If that was delivered before,
        another run may have failed with it, and may have been restarted since. Until a record is finished, only few are
        acquired then, so that a program that is restarted again and again uses up the deliveries of few records.
        """
        self._workers = workers
        self._minimum = min(RECORDS_PER_WORKER * workers, maximum)
        self._maximum = maximum
        self._ends_on_failure = self._careful = careful
        self._first_at: float | None = None  # when the first record was received
        self._any_finished = False
        self._value = self._minimum
        self._measured_at = 0.0
        self._finished = 0  # at that time

    def value(self, now: float) -> int:
        """Returns how many records may be acquired and unfinished."""
        if not self._careful:
            return self._value
        steps = 0.0 if self._first_at is None else (now - self._first_at) / STEP_MS
        return min(self._minimum, 1 + int(steps))

    def with_retries(self, now: float) -> int:
        """Returns how many records may be acquired, with those that wait for a retry, which workers do not process.

        If a failure ends the run, all of them will have been delivered in vain.
        """
        if not self._ends_on_failure:
            return self._maximum
        return min(self._maximum, (2 if self._any_finished else 1) * self.value(now))

    def low(self, now: float) -> int:
        """Returns the number of unfinished records at which more are acquired, so that no worker waits."""
        value = self.value(now)
        return value // 2 if value >= RECORDS_PER_WORKER * self._workers else value - 1

    def without_renewals(self) -> None:
        """Let no records wait for workers, because the group does not allow to renew their locks."""
        self._minimum = min(self._workers, self._maximum)
        self._value = min(self._value, self._minimum)

    def received(self, delivery_counts: Iterable[int], now: float) -> None:
        """Record how often the records of a poll were delivered."""
        counts = list(delivery_counts)
        if counts and self._first_at is None:
            self._first_at = now
            self._careful = self._careful and max(counts) > 1

    def finished(self, total: int, now: float) -> None:
        """Record that this many records are finished since the run began."""
        if total:
            self._any_finished, self._careful = True, False
        elapsed = now - self._measured_at
        if elapsed >= WINDOW_MS:
            ahead = (total - self._finished) * AHEAD_MS / elapsed
            self._value = max(self._minimum, min(self._maximum, int(ahead)))
            self._measured_at, self._finished = now, total
