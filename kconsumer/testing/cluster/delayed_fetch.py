"""A Fetch request that waits until `min_bytes` can be read or `max_wait_ms` has passed.

As in Kafka, some changes also complete it at once, because waiting is useless then: another leader or leader epoch, a
deleted topic, a truncated log, or a new segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kconsumer.testing.cluster.fetch_reads import PartitionError, PartitionReader
from kconsumer.testing.cluster.fetch_sessions import FetchRow
from kconsumer.testing.cluster.requests import Pending
from kconsumer.testing.cluster.timers import Timer
from kconsumer.testing.cluster.topic import Partition

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster


class DelayedFetch:
    """A Fetch request that waits. The logs of its partitions notify it of changes.

    `rows`: the partitions that the request reads. `complete(now)`: reads them again and sends the response.
    """

    def __init__(
        self,
        cluster: Cluster,
        pending: Pending,
        reader: PartitionReader,
        rows: list[FetchRow],
        complete: Callable[[float], None],
    ) -> None:
        self._cluster, self._pending, self._reader, self._complete = cluster, pending, reader, complete
        self._partitions = [(row, reader.find(row)) for row in rows]
        self._timeout: Timer | None = None
        self._check_timer: Timer | None = None

    def start(self, now: float, max_wait_ms: float) -> None:
        """Complete the request now if `_can_complete` allows it. Otherwise wait for changes, at most `max_wait_ms`."""
        if self._can_complete():
            self._complete(now)
            return
        self._timeout = self._cluster.timers.add(now + max_wait_ms, self._finish)
        for _, partition in self._partitions:
            partition.log.add_listener(self._on_change)

    def _on_change(self) -> None:
        """Set a timer that checks, when the timers run next, whether the request can be completed.

        Does nothing if this timer is set already. So there is one check for all changes until then.
        """
        if self._check_timer is None or not self._check_timer.active:
            self._check_timer = self._cluster.timers.soon(self._check)

    def _check(self, now: float) -> None:
        if self._pending.done or self._can_complete():
            self._finish(now)

    def _finish(self, now: float) -> None:
        """Stop waiting: cancel the timers, and stop listening to changes.

        If the request has no response yet, responds with what can be read now.
        """
        for timer in (self._timeout, self._check_timer):
            if timer is not None:
                timer.cancel()
        for _, partition in self._partitions:
            partition.log.remove_listener(self._on_change)
        if not self._pending.done:
            self._complete(now)

    def _can_complete(self) -> bool:
        """Returns whether the request can be completed before its timeout.

        This is so if `min_bytes` can be read, if a partition has an error, or if waiting for a partition is useless.
        """
        total = 0
        for row, partition in self._partitions:
            try:
                available = self._available(row, partition)
            except PartitionError:
                return True
            if available is None:
                return True
            total += available
        return total >= self._reader.min_bytes

    def _available(self, row: FetchRow, partition: Partition) -> int | None:
        """Returns how many bytes can be read from a partition, or None if waiting for this partition is useless.

        Raises PartitionError if the partition cannot be read.
        """
        reader, log, offset = self._reader, partition.log, row.asked.fetch_offset
        if reader.find(row) is not partition:
            return None
        reader.check_replica(partition, row)
        end = reader.end_offset(partition)
        available = 0
        if offset > end:
            return None
        if offset < end:
            (segment, start), (last_segment, stop) = log.position(offset), log.position(end)
            if segment != last_segment:
                return None
            available = min(stop - start, row.asked.partition_max_bytes)
        return None if reader.diverging_epoch(partition, row) is not None else available
