"""Reads the log for a ShareFetch request, and acquires the records that were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.schema.share_group import AcquiredRecords, ShareFetchPartitionData
from kconsumer.testing.cluster.share.acquisition import Acquired, Acquisition, Limits
from kconsumer.testing.cluster.share.partition import SharePartition
from kconsumer.testing.cluster.stored_batch import StoredBatch, split_batches

if TYPE_CHECKING:
    from kconsumer.testing.cluster.requests import Request

RECORD_LIMIT = 1  # the acquire mode in which `max_records` is exact
_OVERHEAD = 12  # bytes of a batch that its size does not count


class ShareReader:
    """Reads share partitions for one request, in turn, until its limits are reached."""

    def __init__(self, request: Request) -> None:
        message = request.message
        self.min_bytes, self.max_bytes = message.min_bytes, message.max_bytes
        self._member_id = message.member_id
        exact = request.version >= 2 and message.share_acquire_mode == RECORD_LIMIT
        self._limits = Limits(message.max_records, message.batch_size, exact)

    def can_complete(self, shares: list[SharePartition]) -> bool:
        """Returns whether `min_bytes` can be read from share partitions, or one begins before its log."""
        ready = [share for share in shares if share.can_acquire()]
        total = 0
        for share in ready:
            log, offset = share.partition.log, share.next_fetch_offset()
            if offset < log.start:
                return True
            end = _end_offset(share)
            if offset >= end:
                continue
            (segment, start), (last_segment, stop) = log.position(offset), log.position(end)
            total += stop - start if segment == last_segment else self.min_bytes
        return bool(ready) and total >= self.min_bytes

    def read_all(self, shares: list[SharePartition], now: float) -> dict[SharePartition, ShareFetchPartitionData]:
        """Acquire records of those share partitions that have some. Returns their rows in the response.

        Those whose records were read before, and were not acquired, come first. Brokers remember where they are.
        """
        ready = [share for share in shares if share.can_acquire()]
        ready.sort(key=lambda share: share.read_offset != share.next_fetch_offset())
        limit = self.max_bytes // len(ready) if ready else 0
        left, min_one, acquired = self.max_bytes, True, 0
        rows = {}
        for share in ready:
            log, offset = share.partition.log, share.next_fetch_offset()
            share.read_offset = offset
            row = rows[share] = ShareFetchPartitionData(partition_index=share.partition.index, records=b"")
            if offset < log.start:
                share.follow_log_start(log.start)
                continue
            end = _end_offset(share)
            if offset >= end:
                continue
            read = log.read(offset, min(limit, left), end, min_one=min_one)
            left, min_one = max(0, left - len(read.data)), min_one and not read.data
            limits = self._limits._replace(max_records=self._limits.max_records - acquired)
            batches = split_batches(_whole(read.data))
            aborted = [
                (ended.producer_id, ended.first_offset) for ended in log.aborted_between(offset, read.upper_bound)
            ]
            found = Acquisition(share, self._member_id, limits, batches, offset, now).run(
                aborted if share.read_committed else ()
            )
            if found:
                row.records = _slice(read.data, batches, found)
                row.acquired_records = [
                    AcquiredRecords(first_offset=r.first, last_offset=r.last, delivery_count=r.deliveries)
                    for r in found
                ]
                acquired += sum(range_.last - range_.first + 1 for range_ in found)
        return rows


def _end_offset(share: SharePartition) -> int:
    log = share.partition.log
    return log.last_stable_offset if share.read_committed else log.high_watermark


def _whole(data: bytes) -> bytes:
    """Returns the whole batches at the beginning of `data`, without an incomplete one at its end."""
    at = 0
    while at + _OVERHEAD <= len(data):
        size = _OVERHEAD + int.from_bytes(data[at + 8 : at + _OVERHEAD])
        if at + size > len(data):
            break
        at += size
    return data[:at]


def _slice(data: bytes, batches: list[StoredBatch], acquired: list[Acquired]) -> bytes:
    """Returns the bytes of the batches with acquired records.

    As on a broker, the result is all of `data` if it has only one whole batch, even if an incomplete one follows.
    """
    if len(batches) == 1:
        return data
    first, last = acquired[0].first, acquired[-1].last
    return b"".join(batch.data for batch in batches if batch.last_offset >= first and batch.base_offset <= last)
