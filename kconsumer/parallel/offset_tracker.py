"""OffsetTracker: which records of one partition are unfinished, and so which offset can be committed.

It needs no locks: `finish` is one atomic change of a dict, which any thread may make. The thread that polls calls all
other methods.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Hashable, Sequence

from kconsumer._core.decode import ConsumerRecord
from kconsumer.parallel.finished_offsets import MAX_METADATA_BYTES, encode, max_span, runs_fit
from kconsumer.types import OffsetAndMetadata, TopicPartition

RECORD_BYTES = 200  # memory of a record, without its key and value


class OffsetTracker:
    """The records of one assigned partition that were taken from the consumer.

    Another tracker replaces it when the partition is assigned again.
    """

    __slots__ = (
        "_bytes",
        "_count",
        "_epochs",
        "_restored",
        "closed",
        "due",
        "end",
        "failures",
        "long_shards",
        "poisoned",
        "shards",
        "topic_partition",
        "unfinished",
    )

    def __init__(self, topic_partition: TopicPartition, restored: Sequence[tuple[int, int]] = ()) -> None:
        """Create a tracker. `restored` are the ranges of offsets that the metadata of the last commit contain."""
        self.topic_partition = topic_partition
        self.unfinished: dict[int, int] = {}  # offset -> the number of the record, in the order of offsets
        self.end = -1  # the offset after the last record that was taken; -1: none was
        self.closed = False  # True: no more records are started, because the partition was revoked or the run ends
        self.shards: dict[Hashable, deque[ConsumerRecord] | None] = {}  # see `Scheduler`
        self.long_shards: set[Hashable] = set()  # those in which the scheduler has found many records; see `crowded`
        self.failures: dict[int, int] = {}  # offset of an unfinished record -> failed attempts
        self.poisoned: dict[int, BaseException] = {}  # offset -> the error of its deserializer
        self.due: dict[int, float] = {}  # offset of a record of a delay topic that is not ready yet -> when it is (ms)
        self._restored = list(restored)
        self._count = self._bytes = 0  # of all records that were taken
        self._epochs: deque[tuple[int, int | None]] = deque()  # (end offset, leader epoch) of what each poll returned

    def follows(self, records: Sequence[ConsumerRecord], next_offset: int) -> bool:
        """Returns False if these records, or the position, are before the end: a seek or a reset has moved it back."""
        return (records[0].offset if records else next_offset) >= self.end

    def take(self, records: Sequence[ConsumerRecord], next_offset: int, epoch: int | None) -> Sequence[ConsumerRecord]:
        """Add the records of a poll. Returns those that no earlier run has finished.

        `next_offset` is the position after them, and `epoch` its leader epoch.
        """
        self._bytes += sum([record.serialized_key_size + record.serialized_value_size for record in records])
        offsets = [record.offset for record in records]
        numbers = range(self._count, self._count + len(records))
        self._count += len(records)
        if self._restored and records:
            chosen = [index for index, offset in enumerate(offsets) if not self._is_restored(offset)]
            records = [records[index] for index in chosen]
            self.unfinished.update((offsets[index], numbers[index]) for index in chosen)
        else:
            self.unfinished.update(zip(offsets, numbers, strict=True))
        self.end = next_offset
        if self._restored:  # also when an aborted transaction or compaction has left no records
            self._restored = [(start, end) for start, end in self._restored if end > next_offset]
        if self._epochs and self._epochs[-1][1] == epoch:
            self._epochs.pop()
        self._epochs.append((next_offset, epoch))
        return records

    def _is_restored(self, offset: int) -> bool:
        at = bisect_right(self._restored, (offset, 2**64))
        return at > 0 and offset < self._restored[at - 1][1]

    def finish(self, offset: int) -> None:
        """Mark a record as finished. Any thread may call this."""
        del self.unfinished[offset]

    def skip(self, offset: int) -> None:
        """Mark a record as finished whose last attempt failed. Any thread may call this."""
        self.finish(offset)

    def to_commit(
        self, limit: int = MAX_METADATA_BYTES, also_finished: Collection[int] = ()
    ) -> OffsetAndMetadata | None:
        """Returns the lowest unfinished offset, with the finished ranges beyond it as metadata.

        The offsets `also_finished` count as finished. Returns None if nothing was taken.
        """
        if self.end < 0:
            return None
        unfinished = [item for item in self._still_unfinished() if item[0] not in also_finished]
        offset = unfinished[0][0] if unfinished else self.end
        metadata, _ = encode(offset, self._finished_beyond(unfinished), limit)
        while len(self._epochs) > 1 and self._epochs[0][0] < offset:
            self._epochs.popleft()
        return OffsetAndMetadata(offset, metadata, self._epochs[0][1])

    def fits(self, more: int, limit: int = MAX_METADATA_BYTES) -> bool:
        """Returns True if the metadata will have room for all finished records after `more` records are taken.

        So it is whatever the order in which they finish. The further records are expected to be as dense as these. A
        partition without unfinished records always fits.
        """
        first = self.first_unfinished()
        if first is None:
            return True
        offset, number = first
        density = max(1.0, (self.end - offset) / (self._count - number))
        last = self._restored[-1][1] if self._restored else 0
        span = max(self.end + math.ceil(more * density), last) - offset
        return span <= max_span(limit) or runs_fit(span, self._max_ranges() + (more + 1) // 2, limit)

    def _max_ranges(self) -> int:
        """Returns how many finished ranges there can be when some of the unfinished records finish.

        Most ranges are left if every other record of a run of unfinished records finishes.
        """
        ranges, length, following = len(self._restored), 0, -1
        for _, number in self._still_unfinished():
            if number != following:
                ranges, length = ranges + (length + 1) // 2, 0
            length, following = length + 1, number + 1
        return ranges + (length + 1) // 2

    def first_unfinished(self) -> tuple[int, int] | None:
        """Returns the offset and the number of the first unfinished record, or None."""
        while True:
            try:
                offset = next(iter(self.unfinished), None)
            except RuntimeError:  # another thread finished a record after the iterator was created
                continue
            if offset is None:
                return None
            number = self.unfinished.get(offset)
            if number is not None:
                return offset, number

    def crowded(self, max_waiting: int, max_bytes: float) -> bool:
        """Returns True if more records wait than allowed: in a shard, for a retry, or by their size in all."""
        waiting = len(self.unfinished) - len(self.shards) if self.shards else len(self.failures) + len(self.due)
        if waiting * (RECORD_BYTES + self._bytes / max(1, self._count)) > max_bytes:
            return True
        lengths = {shard: len(self.shards.get(shard) or ()) for shard in self.long_shards}
        self.long_shards = {shard for shard, length in lengths.items() if length >= max_waiting}
        return bool(self.long_shards) or len(self.failures) + len(self.due) >= max_waiting

    def _still_unfinished(self) -> list[tuple[int, int]]:
        """Returns the offset and the number of each unfinished record, while other threads finish records.

        Copying the keys is atomic. Copying the items is not: each is a new tuple, so the garbage collector may run, and
        with it other threads (until Python 3.11).
        """
        number_of = self.unfinished.get
        return [(offset, number) for offset in list(self.unfinished) if (number := number_of(offset)) is not None]

    def _finished_beyond(self, unfinished: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Returns the finished ranges beyond the first unfinished record.

        Two unfinished records with consecutive numbers have no record between them, though there may be offsets. Such
        offsets are not finished ranges, which keeps the metadata short.
        """
        ranges = []
        following = [*unfinished[1:], (self.end, self._count)]
        for (offset, number), (next_offset, next_number) in zip(unfinished, following, strict=False):
            if next_number > number + 1:
                ranges.append((offset + 1, next_offset))
        for start, end in self._restored:
            start = max(start, self.end)
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
        return ranges

    def __repr__(self) -> str:
        return f"<OffsetTracker {self.topic_partition} end={self.end}: {len(self.unfinished)} unfinished>"
