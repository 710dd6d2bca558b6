"""The log of a partition: its batches, the offsets that limit what a consumer may read, and its leader epochs.

The log assigns offsets to produced batches and stores them. It finds the transactions in the batches that it stores. It
does not check sequences and producer epochs: the caller must have checked them before `append`. The partition decides
the high watermark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kconsumer.testing.cluster.log_transactions import EndedTransaction, LogTransactions
from kconsumer.testing.cluster.segment import Segment
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS
from kconsumer.testing.cluster.stored_batch import StoredBatch, place, split_batches

UNDEFINED_EPOCH = -1


class LeaderEpochs:
    """The leader epochs in a log and their start offsets, both in ascending order."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def entries(self) -> list[tuple[int, int]]:
        """Returns pairs of leader epoch and start offset."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int | None:
        """The epoch of the last entry, or None if there is no entry."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start: int) -> None:
        """Add an epoch that begins with offset `start`. Does nothing if it is the latest epoch, or negative.

        First removes the entries whose epoch is not smaller than `epoch`, or whose start offset is not smaller than
        `start`.
        """
        if epoch < 0 or (self._epochs and self._epochs[-1] == epoch):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """Returns the largest stored epoch that is not larger than `epoch`, and the end offset of that epoch.

        An epoch ends with the start offset of the next one; the latest epoch ends with `log_end`. If all stored epochs
        are larger than `epoch`, returns `epoch` and the start offset of the first entry. Returns None if `epoch` is -1
        or larger than the latest epoch, or if there are no entries.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return epoch, log_end
        at = bisect_right(self._epochs, epoch)
        return (self._epochs[at - 1] if at else epoch), self._starts[at]

    def truncate(self, end: int) -> None:
        """Remove the entries of epochs that begin at or after offset `end`."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()

    def delete_before(self, start: int) -> None:
        """Remove the epochs that end at or before offset `start`.

        The epoch that contains `start` begins with `start` afterwards.
        """
        at = bisect_right(self._starts, start)
        if at:
            del self._epochs[: at - 1], self._starts[: at - 1]
            self._starts[0] = max(self._starts[0], start)


class AppendResult(NamedTuple):
    """The result of an append, as a Produce response contains it."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1: the records have the timestamps of the producer
    log_start_offset: int
    batches: list[StoredBatch]  # as they were stored


class ReadResult(NamedTuple):
    """Bytes that were read from a log."""

    data: bytes
    first_batch_incomplete: bool  # True if `max_bytes` is smaller than the first batch
    upper_bound: int  # an offset after all records of `data`; not always the nearest one


class Log:
    """The batches of a partition in the order of their offsets.

    `configs`: the settings of the topic; the log reads them when it needs them.
    """

    def __init__(self, configs: Mapping[str, str] = TOPIC_DEFAULTS) -> None:
        self.start = 0  # the first offset that can be read
        self.end = 0  # the offset of the next record
        self.high_watermark = 0
        self.epochs = LeaderEpochs()
        self.transactions = LogTransactions()
        self.segments: list[Segment] = [Segment(0, 0)]
        self.configs = configs
        #: When compaction may remove the deletions and the marker in a batch (wall-clock ms), by its base offset.
        self.delete_horizons: dict[int, int] = {}
        self._listeners: dict[Callable[[], None], None] = {}

    # --- offsets ---

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: consumers with read_committed may read the records before it."""
        unstable = self.transactions.first_unstable_offset
        return self.high_watermark if unstable is None else min(max(unstable, self.start), self.high_watermark)

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.size for segment in self.segments)

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, limited to the log's first and end offset. Notifies the listeners if it changed."""
        offset = max(self.start, min(offset, self.end))
        if offset != self.high_watermark:
            self.high_watermark = offset
            self.transactions.replicated_to(offset)
            self.notify()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener()` after each change of the start offset, the high watermark or the last stable offset."""
        self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling a listener. Does nothing if it was not added."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Call all listeners."""
        for listener in list(self._listeners):
            listener()

    # --- appending ---

    def append(self, data: bytes, leader_epoch: int, wall_ms: int, log_append_time: bool = False) -> AppendResult:
        """Store produced batches at the end of the log, with new offsets and `leader_epoch`.

        `log_append_time`: replace the timestamps by `wall_ms`. Raises ValueError if the bytes are not whole batches.
        The high watermark does not change.
        """
        base = self.end
        stored = []
        for batch in split_batches(data):
            stored.append(place(batch, self.end, leader_epoch, wall_ms if log_append_time else None))
            self._store(stored[-1], leader_epoch, wall_ms)
        return AppendResult(base, self.end - 1, wall_ms if log_append_time else -1, self.start, stored)

    def append_stored(self, data: bytes, wall_ms: int = 0) -> list[StoredBatch]:
        """Store batches with the offsets and leader epochs that they already have. Returns these batches.

        There may be gaps between the offsets. Raises ValueError if an offset is below the end of the log, or if the
        bytes are not whole batches.
        """
        stored = split_batches(data)
        for batch in stored:
            if batch.base_offset < self.end:
                raise ValueError(f"a batch begins with offset {batch.base_offset}; the log ends at {self.end}")
            self._store(batch, batch.leader_epoch, wall_ms)
        return stored

    def _store(self, batch: StoredBatch, leader_epoch: int, wall_ms: int) -> None:
        """Add a batch to the last segment. If that is full or old, begins a new segment first."""
        if self._must_roll(batch, wall_ms):
            self.roll(batch.base_offset, wall_ms)
        segment = self.segments[-1]
        if not segment.batches:
            segment.created_ms = wall_ms
        segment.append(batch, int(self.configs["index.interval.bytes"]))
        self.epochs.assign(leader_epoch, batch.base_offset)
        self.end = batch.last_offset + 1
        self.transactions.add(batch)

    def _must_roll(self, batch: StoredBatch, wall_ms: int) -> bool:
        """Returns whether a batch must begin a new segment: `segment.bytes` or `segment.ms` would be exceeded."""
        segment = self.segments[-1]
        if not segment.batches:
            return False
        first = segment.batches[0].max_timestamp
        age = batch.max_timestamp - first if first >= 0 else wall_ms - segment.created_ms
        max_bytes = int(self.configs.get("internal.segment.bytes") or self.configs["segment.bytes"])
        full = segment.size + batch.size > max_bytes
        return full or age > int(self.configs["segment.ms"])

    def roll(self, base_offset: int | None = None, wall_ms: int = 0) -> None:
        """Begin a new segment at `base_offset` (None: at the end of the log). Does nothing if the last segment is
        empty.

        The previous segment can be compacted and deleted then.
        """
        if self.segments[-1].batches:
            self.segments.append(Segment(self.end if base_offset is None else base_offset, wall_ms))

    # --- reading ---

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        """Yields the batches whose last offset is `start` or larger."""
        for segment in self.segments[self._segment_of(start) :]:
            yield from segment.batches[segment.find(start) :]

    def read(self, offset: int, max_bytes: int, up_to: int, *, min_one: bool = True) -> ReadResult:
        """Returns the batches of one segment that end at or after `offset` and before `up_to`.

        The segment is the first one with a batch that ends at or after `offset`. As on a broker, the bytes are cut off
        at `max_bytes`, even in the middle of a batch. With `min_one`, the first batch is complete even if it is larger.
        """
        for at in range(self._segment_of(offset), len(self.segments)):
            segment = self.segments[at]
            first = segment.find(offset)
            if first < len(segment.batches):
                following = self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.end
                return _read(segment, first, max_bytes, up_to, following, min_one)
        return ReadResult(b"", False, self.end)

    def position(self, offset: int) -> tuple[int, int]:
        """Returns where reading from `offset` begins: the base offset of a segment, and a position in bytes in it.

        This is the position of the first batch in the segment that ends at or after `offset`, or the end of the segment
        if there is no such batch.
        """
        segment = self.segments[self._segment_of(offset)]
        at = segment.find(offset)
        return segment.base_offset, segment.positions[at] if at < len(segment.positions) else segment.size

    def _segment_of(self, offset: int) -> int:
        """Returns the index in `segments` of the last segment that begins at or before `offset`.

        Returns 0 if all segments begin after `offset`.
        """
        return max(0, bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1)

    def aborted_between(self, start: int, end: int) -> list[EndedTransaction]:
        """Returns the aborted transactions with records from offset `start` to `end` (exclusive)."""
        return self.transactions.aborted_between(start, end)

    # --- lookups by time ---

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """Returns timestamp, offset and leader epoch of the first record with this timestamp or a later one.

        As in Kafka, searches only one segment: the first one whose largest timestamp is not below `timestamp`. Returns
        None if there is no such record.
        """
        for segment in self.segments:
            if segment.batches and segment.largest_timestamp >= timestamp:
                batches = segment.batches[segment.find(self.start) :]
                found = (_first_at(batch, timestamp, self.start) for batch in batches)
                return next((record for record in found if record is not None), None)
        return None

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """Returns timestamp, offset and leader epoch of the first record with the largest timestamp.

        As in Kafka, this may be a deleted record of a segment that still exists. Returns None if no record has a
        timestamp.
        """
        newest = max(self.segments, key=lambda segment: segment.max_timestamp)
        found = (_first_at(batch, newest.max_timestamp, 0) for batch in newest.batches)
        return None if newest.max_timestamp < 0 else next((record for record in found if record is not None), None)

    def end_offset_for(self, epoch: int, end: int | None = None) -> tuple[int, int] | None:
        """Returns what `LeaderEpochs.end_offset_for` returns for a log that ends at `end` (None: at `Log.end`)."""
        return self.epochs.end_offset_for(epoch, self.end if end is None else end)

    # --- removing ---

    def truncate(self, end: int) -> None:
        """Remove the records from offset `end` on. A batch that contains this offset is removed whole, as in Kafka."""
        if end >= self.end:
            return
        interval = int(self.configs["index.interval.bytes"])
        del self.segments[self._segment_of(end) + 1 :]
        last = self.segments[-1]
        self.segments[-1] = last.with_batches(last.batches[: last.find(end)], interval)
        self.end = end
        self.start = min(self.start, end)
        self.epochs.truncate(end)
        self.transactions.truncate(end)
        self.high_watermark = min(self.high_watermark, end)
        self.notify()

    def delete_before(self, offset: int) -> None:
        """Let the log begin with an offset, for DeleteRecords and retention.

        Removes the segments that end at or before the offset. Does nothing if the log begins at or after the offset.
        """
        if offset <= self.start:
            return
        self.start = min(offset, self.end)
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.start:
            del self.segments[0]
        self.high_watermark = max(self.high_watermark, self.start)
        self.epochs.delete_before(self.start)
        self.transactions.delete_before(self.start)
        self.notify()

    def apply_retention(self, wall_ms: int) -> None:
        """Delete the oldest segments that exceed `retention.ms` or `retention.bytes`.

        Keeps segments that end above the high watermark. Does nothing if `cleanup.policy` does not contain `delete`.
        """
        retention_ms, retention_bytes = (int(self.configs[name]) for name in ("retention.ms", "retention.bytes"))
        if "delete" not in self.configs["cleanup.policy"]:
            return
        excess = self.size - retention_bytes if retention_bytes >= 0 else -1
        keep = self.start
        for at, segment in enumerate(self.segments):
            following = self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.end
            old = 0 <= retention_ms < wall_ms - segment.largest_timestamp
            excess -= segment.size
            if not segment.batches or following > self.high_watermark or not (old or excess >= 0):
                break
            keep = following
        if keep == self.end:
            self.roll(wall_ms=wall_ms)
        self.delete_before(keep)

    def replace_batches(self, batches: Mapping[int, list[StoredBatch]]) -> None:
        """Replace the batches of some segments, for compaction. `batches`: base offset of a segment -> its batches."""
        interval = int(self.configs["index.interval.bytes"])
        self.segments = [
            segment.with_batches(batches[segment.base_offset], interval) if segment.base_offset in batches else segment
            for segment in self.segments
        ]


def _read(segment: Segment, first: int, max_bytes: int, up_to: int, following: int, min_one: bool) -> ReadResult:
    """Returns the batches of a segment from the index `first` on, as `Log.read` describes.

    `following`: the first offset after the segment.
    """
    last, size = first, 0
    first_size = segment.batches[first].size
    limit = max(max_bytes, first_size) if min_one else max_bytes
    while last < len(segment.batches) and size < limit and segment.batches[last].last_offset < up_to:
        size += segment.batches[last].size
        last += 1
    data = b"".join(batch.data for batch in segment.batches[first:last])[:limit]
    bound = segment.upper_bound(segment.positions[first] + len(data))
    return ReadResult(data, limit < first_size, following if bound is None else bound)


def _first_at(batch: StoredBatch, timestamp: int, start: int) -> tuple[int, int, int] | None:
    """Returns timestamp, offset and leader epoch of the first record of a batch with this timestamp or a later one.

    Ignores records before offset `start`. Returns None if there is no such record.
    """
    if batch.max_timestamp < timestamp:
        return None
    if batch.control:
        return batch.max_timestamp, batch.base_offset, batch.leader_epoch
    for record in batch.records():
        if record.timestamp >= timestamp and record.offset >= start:
            return record.timestamp, record.offset, batch.leader_epoch
    return None
