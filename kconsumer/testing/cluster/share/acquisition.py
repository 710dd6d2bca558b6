"""Acquires the records that a ShareFetch request has read: which of them the member gets, and how often each was
delivered.

Follows Kafka's `SharePartition.acquire`. Records that were not acquired before are acquired in whole batches of the
log, so `max_records` is a soft limit, unless the request has the acquire mode RECORD_LIMIT (KIP-1206).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kconsumer.testing.cluster.share.in_flight import ACQUIRED, AVAILABLE, InFlightBatch, RecordState
from kconsumer.testing.cluster.share.partition import SharePartition
from kconsumer.testing.cluster.stored_batch import ABORT, StoredBatch

MIN_THROTTLE_COUNT = 2  # records that were delivered less often are always delivered together


class Acquired(NamedTuple):
    """Consecutive records that were acquired, and that were delivered equally often."""

    first: int
    last: int
    deliveries: int


class Limits(NamedTuple):
    """How many records a request acquires."""

    max_records: int
    batch_size: int  # acquired ranges end after this many records, at the end of a batch of the log
    exact: bool  # True: never more than `max_records` (the mode RECORD_LIMIT)


class Acquisition:
    """Acquires records of one share partition for a member.

    `batches`: the batches that were read from the log. `offset`: from where they were read.
    """

    def __init__(
        self, share: SharePartition, member_id: str, limits: Limits, batches: list[StoredBatch], offset: int, now: float
    ) -> None:
        self._share, self._member_id, self._batches, self._offset = share, member_id, batches, offset
        self._limits = limits
        self._now = now
        self._delivery_limit = share.setting("delivery.count.limit")
        self._throttle_count = max(MIN_THROTTLE_COUNT, math.ceil(self._delivery_limit / 2))
        self._left = 0  # how many more records may be acquired
        self._last = -1  # the last offset that may be acquired
        self._result: list[Acquired] = []

    def run(self, aborted: Iterable[tuple[int, int]] = ()) -> list[Acquired]:
        """Acquire records. Returns their ranges.

        `aborted`: producer id and first offset of the aborted transactions in the batches. Their records are archived.
        """
        if not self._batches:
            return []
        self._set_limits()
        if self._left <= 0:
            return []
        self._acquire()
        return self._without_aborted(aborted) if aborted and self._result else self._result

    def _set_limits(self) -> None:
        """Limit the number of records to those that may be in flight.

        If this limit is reached, only records up to the end offset can be acquired.
        """
        share = self._share
        free = share.setting("partition.max.record.locks") - share.in_flight
        self._left, self._last = min(self._limits.max_records, free), self._batches[-1].last_offset
        if self._left <= 0 and self._offset <= share.end:
            self._left = min(self._limits.max_records, share.end - self._offset + 1)
            self._last = min(self._last, share.end)

    def _acquire(self) -> None:
        """Acquire records: first those in batches in flight that are available, then those after them."""
        share, first = self._share, self._batches[0].base_offset
        if first > self._offset:  # what was in flight from the fetch offset on was removed by compaction
            share.archive(self._offset, first - 1, share.between(self._offset, first - 1), AVAILABLE)
        base = first
        floor = share.floor(base)
        if floor is None:
            base = max(base, share.start)
        elif floor.last >= base:
            base = floor.first
        known = share.between(base, self._last)
        following = base
        for batch in known:
            if share.gap_start() is not None and following < batch.first and self._left > 0:
                self._acquire_new(following, batch.first - 1)
            following = batch.last + 1
            if self._left <= 0 or not self._acquire_known(batch, first):
                break
        else:
            if self._left > 0 and following <= self._last:
                self._acquire_new(first if not known else following, self._last)
        if self._result:
            share.advance_gap(self._result[-1].last + 1)

    # --- records that are in flight ---

    def _acquire_known(self, batch: InFlightBatch, first: int) -> bool:
        """Acquire available records of a batch that is in flight. Returns False if no more may be acquired."""
        throttled = self._is_throttled(batch, first)
        if throttled and self._result:
            return False
        size = batch.last - batch.first + 1
        whole = batch.is_within(first, self._last) and batch.offsets is None
        if batch.offsets is None and batch.state.state != AVAILABLE:
            return True
        if whole and not throttled and not (self._limits.exact and size > self._left):
            batch.state.acquire(self._member_id, self._share.lock_until(self._now))
            self._result.append(Acquired(batch.first, batch.last, batch.state.count))
            self._left -= size
            return True
        count = self._acquire_parts(batch, first)
        self._left -= count
        return not (throttled and count)

    def _is_throttled(self, batch: InFlightBatch, first: int) -> bool:
        """Returns whether records were delivered so often that fewer of them must be delivered together."""
        if batch.offsets is None:
            return batch.state.count >= self._throttle_count
        counts = (
            state.count
            for offset, state in batch.offsets.items()
            if first <= offset <= self._last and state.state == AVAILABLE
        )
        return max(counts, default=0) >= self._throttle_count

    def _acquire_parts(self, batch: InFlightBatch, first: int) -> int:
        """Acquire single records of a batch. Returns how many.

        A record that is delivered for the last time is delivered alone. The more often records were delivered, the
        fewer are delivered together.
        """
        limit = self._delivery_limit
        states = batch.split()
        count, most = 0, None
        for offset, state in states.items():
            if not first <= offset <= self._last or state.state != AVAILABLE:
                continue
            if limit > MIN_THROTTLE_COUNT and state.count == limit - 1 and count:
                break
            if state.count >= self._throttle_count and most is None:
                most = max(1, len(states) >> (state.count - self._throttle_count + 1))
            state.acquire(self._member_id, self._share.lock_until(self._now))
            self._add(offset, state.count)
            count += 1
            alone = state.count == limit and limit > MIN_THROTTLE_COUNT
            if alone or (self._limits.exact and count == self._left) or count == most:
                break
        return count

    def _add(self, offset: int, count: int) -> None:
        """Add one record to the result, and to the last range if it continues that."""
        last = self._result[-1] if self._result else None
        if last is not None and (last.last + 1, last.deliveries) == (offset, count):
            self._result[-1] = last._replace(last=offset)
        else:
            self._result.append(Acquired(offset, offset, count))

    # --- records that were not acquired before ---

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire records from `first` to `last`, up to the end of the batch of the log that reaches the limit."""
        share = self._share
        if not share.batches and share.end > first:
            first = share.end
        whole = last
        if self._left < last - first + 1:
            whole = self._end_of_batch(first + self._left - 1)
            if share.gap_start() is not None:
                whole = min(whole, last)
        ranges = self._ranges(first, whole)
        if self._limits.exact and whole - first + 1 > self._left:
            ranges = [self._acquire_exactly(first, whole)]
        else:
            for range_ in ranges:
                state = RecordState(ACQUIRED, 1, self._member_id, share.lock_until(self._now))
                share.add(InFlightBatch(range_.first, range_.last, state))
        if share.batches[0].first == first:
            share.start = first
        share.end = max(share.end, whole)
        self._left -= ranges[-1].last - first + 1
        self._result += ranges
        share.advance_gap(ranges[-1].last + 1)

    def _acquire_exactly(self, first: int, last: int) -> Acquired:
        """Add a batch from `first` to `last`, and acquire as many of its records as the limit allows."""
        reached = first + self._left - 1
        state = RecordState(ACQUIRED, 1, self._member_id, self._share.lock_until(self._now))
        batch = InFlightBatch(first, last, state)
        for offset, single in batch.split().items():
            if offset > reached:
                single.restore(RecordState(AVAILABLE, 0))
        self._share.add(batch)
        return Acquired(first, reached, 1)

    def _ranges(self, first: int, last: int) -> list[Acquired]:
        """Returns ranges from `first` to `last`. All but the last one have `batch_size` records or more.

        A range ends where a batch of the log ends.
        """
        found = []
        if not self._limits.exact and last - first + 1 > self._limits.batch_size:
            for batch in self._batches:
                if batch.base_offset > last:
                    break
                if batch.base_offset - first >= self._limits.batch_size:
                    found.append(Acquired(first, batch.base_offset - 1, 1))
                    first = batch.base_offset
        return [*found, Acquired(first, last, 1)]

    def _end_of_batch(self, offset: int) -> int:
        """Returns the last offset of the batch of the log that contains an offset, or the offset if none does."""
        for batch in self._batches:
            if batch.base_offset <= offset <= batch.last_offset:
                return batch.last_offset
        return offset

    # --- aborted transactions ---

    def _without_aborted(self, aborted: Iterable[tuple[int, int]]) -> list[Acquired]:
        """Archive the records of aborted transactions. Returns the other ranges."""
        result = self._result
        for batch in _aborted_batches(self._batches, aborted):
            first, last = batch.base_offset, batch.last_offset
            self._share.archive(first, last, self._share.between(first, last), ACQUIRED)
            result = [part for range_ in result for part in _without(range_, first, last)]
        return result


def _aborted_batches(batches: list[StoredBatch], aborted: Iterable[tuple[int, int]]) -> list[StoredBatch]:
    """Returns the batches with records of aborted transactions. `aborted`: their producer ids and first offsets."""
    waiting = sorted(aborted, key=lambda row: row[1])
    open_ids: set[int] = set()
    found = []
    for batch in batches:
        if not batch.transactional:
            continue
        while waiting and waiting[0][1] <= batch.last_offset:
            open_ids.add(waiting.pop(0)[0])
        if batch.control:
            if batch.control_type == ABORT:
                open_ids.discard(batch.producer_id)
        elif batch.producer_id in open_ids:
            found.append(batch)
    return found


def _without(range_: Acquired, first: int, last: int) -> list[Acquired]:
    """Returns the parts of a range that are not from `first` to `last`."""
    before = range_._replace(last=min(range_.last, first - 1))
    after = range_._replace(first=max(range_.first, last + 1))
    return [part for part in (before, after) if part.first <= part.last]
