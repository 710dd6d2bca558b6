"""StoredOffsets: which offsets of a partition the user has stored, with `enable_auto_offset_store=False`.

Decides which offset an automatic commit contains. `Positions` creates one for each partition that is read, and drops it
when the user sets another position. The state of a revoked partition is dropped, and its stored offsets with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kconsumer._core.decode import ConsumerRecord
from kconsumer.types import OffsetAndMetadata


class StoredOffsets:
    """The offsets of one partition that are done: they are stored, or no record that was returned has them."""

    __slots__ = ("_done", "_given")

    def __init__(self, start: int) -> None:
        """Create the offsets of a partition that is read from `start` on. Nothing is stored yet."""
        # (first offset, last offset + 1, leader epoch of the last one), sorted, with an offset that is not done between
        # two of them. The first one contains all offsets before the first record that is not stored.
        self._done: list[tuple[int, int, int | None]] = [(0, start, None)]
        self._given: OffsetAndMetadata | None = None  # what the user has stored last; None if nothing was stored

    def pass_over(self, start: int, records: Iterable[ConsumerRecord], end: int, epoch: int | None) -> None:
        """Mark the offsets from `start` to `end` as done that none of the `records` has. A poll returns these records.

        Markers, aborted records and compacted ones have such offsets. `epoch` is the leader epoch of the last offset.
        """
        for record in records:
            if record.offset > start:
                self._add(start, record.offset, None)
            start = record.offset + 1
        if end > start:
            self._add(start, end, epoch)

    def store_record(self, offset: int, epoch: int | None) -> None:
        """Mark a record as done."""
        self._given = self._given or OffsetAndMetadata(offset)
        self._add(offset, offset + 1, epoch)

    def store_offset(self, given: OffsetAndMetadata) -> None:
        """Set the offset to commit: all offsets before it are done."""
        self._given = given
        if given.offset < self._done[0][1]:
            self._done[0] = (0, given.offset, given.leader_epoch)
        else:
            self._add(0, given.offset, given.leader_epoch)

    def to_commit(self) -> OffsetAndMetadata | None:
        """Returns the offset of the first record that is not stored, or None if nothing was stored."""
        _, offset, epoch = self._done[0]
        if self._given is None or self._given.offset == offset:
            return self._given
        return OffsetAndMetadata(offset, "", epoch)

    def _add(self, start: int, end: int, epoch: int | None) -> None:
        """Add a range, and merge it with the ranges that it touches."""
        first = bisect_left(self._done, start, key=lambda done: done[1])
        after = bisect_right(self._done, end, key=lambda done: done[0])
        if first < after:
            start = min(start, self._done[first][0])
            if self._done[after - 1][1] >= end:
                _, end, epoch = self._done[after - 1]
        self._done[first:after] = [(start, end, epoch)]

    def __repr__(self) -> str:
        return f"<StoredOffsets {self._done}>"
