"""Compaction of a log: of the records with the same key, only the last one is kept.

As in Kafka, the last segment and segments that end above the last stable offset are not compacted. A batch that keeps
some of its records also keeps its first and last offset. A batch that loses all records is removed, unless it is the
last batch of its producer in the log: that batch stays, empty, and preserves the producer's last sequence number.

Two kinds of batches and records are removed with a delay: records without a value, and markers of transactions whose
batches were removed. The first compaction that finds one of them stores its delete horizon, which is
`delete.retention.ms` later. A compaction after the delete horizon removes the record or marker. Kafka stores the delete
horizon in the batch; the model stores it in `Log.delete_horizons`.
"""

from __future__ import annotations

from kconsumer._core.decode import ConsumerRecord
from kconsumer.testing.batches import build_batch, build_message_set
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.segment import Segment
from kconsumer.testing.cluster.stored_batch import CODEC_NAMES, LOG_APPEND_TIME, StoredBatch, update_crc
from kconsumer.testing.records import Rec


def compact(log: Log, wall_ms: int) -> None:
    """Compact the closed segments of a log. `wall_ms`: the wall-clock time in ms."""
    closed = closed_segments(log)
    compaction = _Compaction(log, closed, wall_ms)
    log.replace_batches({segment.base_offset: compaction.clean(segment) for segment in closed})
    log.transactions.forget(compaction.removed_markers)


def closed_segments(log: Log) -> list[Segment]:
    """Returns the segments that may be compacted: those that end at or below the last stable offset.

    The last segment of the log is not closed, so it is never among them.
    """
    ends = [segment.base_offset for segment in log.segments[1:]]
    return [segment for segment, end in zip(log.segments, ends, strict=False) if end <= log.last_stable_offset]


class _Compaction:
    """One run of the compaction of a log."""

    def __init__(self, log: Log, closed: list[Segment], wall_ms: int) -> None:
        self._log, self._wall_ms = log, wall_ms
        self._retention_ms = int(log.configs["delete.retention.ms"])
        self._last_batches = {
            batch.producer_id: batch.last_offset
            for batch in log.batches()
            if batch.producer_id >= 0 and not batch.control
        }
        self._aborted = log.aborted_between(0, log.end)
        self._latest = {
            record.key: record.offset
            for segment in closed
            for batch in segment.batches
            if not batch.control and not self._is_aborted(batch)
            for record in batch.records()
        }
        self.removed_markers: set[int] = set()  # their offsets
        self._horizons = dict(log.delete_horizons)  # as they were before this run
        self._open: set[int] = set()  # the producer ids with a batch since their last marker

    def clean(self, segment: Segment) -> list[StoredBatch]:
        """Returns the batches of a segment that remain, each with the records that remain."""
        return [kept for batch in segment.batches if (kept := self._clean_batch(batch)) is not None]

    def _clean_batch(self, batch: StoredBatch) -> StoredBatch | None:
        """Returns a batch with the records that remain, or None if the batch is removed."""
        if batch.control:
            if self._keeps_marker(batch):
                return batch
            self.removed_markers.add(batch.base_offset)
            return None
        if batch.transactional:
            self._open.add(batch.producer_id)
        records = list(batch.records())
        kept = [] if self._is_aborted(batch) else [record for record in records if self._keeps(record, batch)]
        if kept:
            return batch if len(kept) == len(records) else _with_records(batch, kept)
        if self._last_batches.get(batch.producer_id) == batch.last_offset:
            return _with_records(batch, [])
        return None

    def _keeps(self, record: ConsumerRecord, batch: StoredBatch) -> bool:
        """Returns whether a record remains.

        Only the last record with its key remains. If this record has no value, it remains only until its batch is
        overdue. Records without a key do not remain.
        """
        if record.key is None or self._latest[record.key] != record.offset:
            return False
        return record.value is not None or not self._is_overdue(batch)

    def _keeps_marker(self, batch: StoredBatch) -> bool:
        """Returns whether a marker remains.

        It remains if this compaction has read batches of its transaction, or if it is not overdue.
        """
        if batch.producer_id in self._open:
            self._open.discard(batch.producer_id)
            return True
        return not self._is_overdue(batch)

    def _is_overdue(self, batch: StoredBatch) -> bool:
        """Returns whether an earlier compaction has set the delete horizon of a batch, and this horizon has passed.

        If the batch has no delete horizon, sets it to the present time plus `delete.retention.ms`, and returns False.
        """
        self._log.delete_horizons.setdefault(batch.base_offset, self._wall_ms + self._retention_ms)
        return self._wall_ms >= self._horizons.get(batch.base_offset, self._wall_ms + 1)

    def _is_aborted(self, batch: StoredBatch) -> bool:
        """Returns whether the records of a batch belong to an aborted transaction."""
        return batch.transactional and any(
            ended.producer_id == batch.producer_id and ended.first_offset <= batch.base_offset < ended.last_offset
            for ended in self._aborted
        )


def _with_records(batch: StoredBatch, records: list[ConsumerRecord]) -> StoredBatch:
    """Returns a copy of a batch that contains only `records`, and has the same first and last offset."""
    listed = [
        Rec(record.value, record.key, record.headers, timestamp=record.timestamp, offset=record.offset)
        for record in records
    ]
    codec = CODEC_NAMES[batch.codec]
    if batch.magic < 2:
        data = build_message_set(listed, magic=batch.magic, base_offset=batch.base_offset, codec=codec)
        return StoredBatch(data)
    encoded = bytearray(
        build_batch(
            listed,
            base_offset=batch.base_offset,
            codec=codec if listed else "none",
            timestamp=listed[0].timestamp or 0 if listed else batch.max_timestamp,
            max_timestamp=batch.max_timestamp if batch.attributes & LOG_APPEND_TIME or not listed else None,
            log_append_time=bool(batch.attributes & LOG_APPEND_TIME),
            leader_epoch=batch.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.transactional,
            last_offset_delta=batch.last_offset - batch.base_offset,
            crc=0,
        )
    )
    update_crc(encoded)
    return StoredBatch(bytes(encoded))
