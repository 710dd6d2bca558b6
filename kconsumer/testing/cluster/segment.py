"""A segment of a log: consecutive batches that a broker keeps in one file.

Retention deletes whole segments. Compaction does not change the last segment of a log.
"""

from __future__ import annotations

from bisect import bisect_left

from kconsumer.testing.cluster.stored_batch import NO_TIMESTAMP, StoredBatch


class Segment:
    """A segment. Only the last one of a log grows."""

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.batches: list[StoredBatch] = []
        self.positions: list[int] = []  # the bytes before each batch
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self._indexed: list[int] = []  # the positions in `batches` of those that are in the offset index
        self._unindexed_bytes = 0

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the records in ms.

        If no record has a timestamp, this is the time at which the segment was created.
        """
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def append(self, batch: StoredBatch, index_interval_bytes: int) -> None:
        """Add a batch.

        As in Kafka, the batch is added to the offset index if more than `index_interval_bytes` have been appended since
        the last entry of the index.
        """
        if self._unindexed_bytes > index_interval_bytes:
            self._indexed.append(len(self.batches))
            self._unindexed_bytes = 0
        self._unindexed_bytes += batch.size
        self.batches.append(batch)
        self.positions.append(self.size)
        self.size += batch.size
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)

    def find(self, offset: int) -> int:
        """Returns the index of the first batch that ends at or after `offset`.

        If there is no such batch, returns the number of batches.
        """
        return bisect_left(self.batches, offset, key=lambda batch: batch.last_offset)

    def upper_bound(self, position: int) -> int | None:
        """Returns the last offset of the first indexed batch at or after `position` (in bytes).

        Returns None if there is no such batch. A batch is indexed if it has an entry in the offset index (see
        `append`).
        """
        at = bisect_left(self._indexed, position, key=self.positions.__getitem__)
        return self.batches[self._indexed[at]].last_offset if at < len(self._indexed) else None

    def with_batches(self, batches: list[StoredBatch], index_interval_bytes: int) -> Segment:
        """Returns a new segment with the same base offset and other batches."""
        segment = Segment(self.base_offset, self.created_ms)
        for batch in batches:
            segment.append(batch, index_interval_bytes)
        return segment
