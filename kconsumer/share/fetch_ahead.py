"""FetchAhead: whether a share consumer acquires the next records while the caller processes the last ones.

Records that wait for the caller are locked, and no other member of the group can have them. So only a consumer fetches
ahead that has processed its last batches quickly, in a small part of the time for which records are locked. One slow
batch ends it, and so does a small one, after which there may be no more records. What is fetched ahead is at most one
response of each broker, for a few polls.
"""

from __future__ import annotations

MIN_QUICK_BATCHES = 4  # this many batches in a row must have been processed quickly
MIN_BATCH_SHARE = 2  # a batch is small if it has less than this part of max_poll_records
MAX_BUSY_SHARE = 100  # a batch is quick if it takes at most this part of the lock timeout: 300 ms of 30 s
POLLS_AHEAD = 4  # a fetch acquires the records of this many polls: a broker takes long for a response of any size
MAX_POLLS_BUFFERED = 2  # nothing is fetched if the buffer contains the records of this many polls


class FetchAhead:
    """Measures how long the caller takes for the records of a poll."""

    def __init__(self) -> None:
        self._returned_at: float | None = None  # ms; None: the last poll has returned no records
        self._quick_batches = 0  # in a row, until now

    def poll_began(self, now: float, lock_timeout_ms: int | None) -> bool:
        """Record that the caller polls again. Returns True if the consumer may fetch ahead."""
        if self._returned_at is not None and lock_timeout_ms is not None:
            quick = now - self._returned_at <= lock_timeout_ms / MAX_BUSY_SHARE
            self._quick_batches = self._quick_batches + 1 if quick else 0
            self._returned_at = None
        return self._quick_batches >= MIN_QUICK_BATCHES

    def records_returned(self, count: int, max_poll_records: int, now: float) -> None:
        """Record that a poll returns this many records."""
        self._returned_at = now
        if count < max_poll_records / MIN_BATCH_SHARE:
            self.reset()

    def reset(self) -> None:
        """Begin again."""
        self._returned_at, self._quick_batches = None, 0
