"""The transactions in a log: open ones, and ended ones with their markers (KIP-98)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

from kconsumer.testing.cluster.stored_batch import ABORT, COMMIT, StoredBatch


class EndedTransaction(NamedTuple):
    """A transaction that a marker has committed or aborted."""

    producer_id: int
    first_offset: int
    last_offset: int  # the offset of the marker
    aborted: bool
    stable_offset: int  # the first offset of the oldest open transaction after the marker, or the offset after it


class LogTransactions:
    """The transactions of one log."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # the first offset of the open transaction of each producer id
        self.ended: list[EndedTransaction] = []  # in the order of their markers
        self._unreplicated: list[EndedTransaction] = []  # those whose marker is not below the high watermark

    def add(self, batch: StoredBatch) -> None:
        """Process an appended batch: it may begin a transaction, or its marker may end one."""
        if not batch.transactional:
            return
        if not batch.control:
            self.open.setdefault(batch.producer_id, batch.base_offset)
        elif batch.control_type in (ABORT, COMMIT) and batch.producer_id in self.open:
            first = self.open.pop(batch.producer_id)
            aborted = batch.control_type == ABORT
            stable = min(self.open.values(), default=batch.last_offset + 1)
            ended = EndedTransaction(batch.producer_id, first, batch.last_offset, aborted, stable)
            self.ended.append(ended)
            self._unreplicated.append(ended)

    def replicated_to(self, high_watermark: int) -> None:
        """Set the high watermark. Transactions whose marker is below it no longer limit the last stable offset."""
        self._unreplicated = [ended for ended in self._unreplicated if ended.last_offset >= high_watermark]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker is not replicated.

        None if there is no such transaction.
        """
        if not self.open and not self._unreplicated:  # of most logs
            return None
        return min([*self.open.values(), *(ended.first_offset for ended in self._unreplicated)])

    def aborted_between(self, start: int, end: int) -> list[EndedTransaction]:
        """Returns the aborted transactions with records from offset `start` to `end` (exclusive), in marker order."""
        found = []
        for at in range(bisect_left(self.ended, start, key=lambda ended: ended.last_offset), len(self.ended)):
            ended = self.ended[at]
            if ended.aborted and ended.first_offset < end:
                found.append(ended)
            if ended.stable_offset >= end:  # all later markers belong to transactions that begin there or later
                break
        return found

    def truncate(self, end: int) -> None:
        """Remove transactions that begin at or after offset `end`.

        Transactions that lose only their marker are open again.
        """
        lost = [ended for ended in self.ended if ended.last_offset >= end]
        self.ended = [ended for ended in self.ended if ended.last_offset < end]
        self._unreplicated = [ended for ended in self._unreplicated if ended.last_offset < end]
        open_before = {**self.open}
        for ended in reversed(lost):
            open_before[ended.producer_id] = ended.first_offset
        self.open = {producer: first for producer, first in open_before.items() if first < end}

    def delete_before(self, start: int) -> None:
        """Remove the transactions that ended before offset `start`."""
        self.ended = [ended for ended in self.ended if ended.last_offset >= start]

    def forget(self, markers: Collection[int]) -> None:
        """Remove the transactions whose markers compaction has removed. `markers`: the offsets of these markers."""
        if markers:
            self.ended = [ended for ended in self.ended if ended.last_offset not in markers]
