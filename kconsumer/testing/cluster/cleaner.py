"""The log cleaner: at a fixed interval, it compacts the logs of topics whose `cleanup.policy` has `compact`.

As in Kafka, a log is compacted when enough of its closed segments is dirty: `min.cleanable.dirty.ratio`. The segments
that the last compaction has read are clean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.testing.cluster.compaction import closed_segments, compact
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.segment import Segment
from kconsumer.testing.cluster.timers import Timer
from kconsumer.testing.cluster.topic import Partition

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster


class Cleaner:
    """Compacts logs every `log.cleaner.backoff.ms`, while there are changed ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changed: dict[Log, None] = {}  # since the last run
        self._clean_up_to: dict[Log, int] = {}  # segments that begin before this offset are clean
        self._timer: Timer | None = None

    def watch(self, partition: Partition) -> None:
        """Compact the log of a partition from its first record on."""
        partition.log.add_listener(lambda: self._on_change(partition.log))

    def _on_change(self, log: Log) -> None:
        if "compact" in log.configs["cleanup.policy"] and len(log.segments) > 1:
            self._changed[log] = None
            if self._timer is None or not self._timer.active:
                self._timer = self._cluster.timers.soon(self._schedule)

    def _schedule(self, now: float) -> None:
        self._timer = self._cluster.timers.add(now + self._cluster.settings.log_cleaner_backoff_ms, self._run)

    def _run(self, now: float) -> None:
        """Compact the changed logs that are dirty enough."""
        changed, self._changed = list(self._changed), {}
        wall_ms = self._cluster.wall_ms(now)
        for log in changed:
            segments = closed_segments(log)
            if self._dirty_ratio(log, segments) > float(log.configs["min.cleanable.dirty.ratio"]):
                self._clean_up_to[log] = segments[-1].base_offset + 1
                compact(log, wall_ms)

    def _dirty_ratio(self, log: Log, segments: list[Segment]) -> float:
        """Returns which part of the bytes in closed segments was not compacted yet."""
        clean_up_to = self._clean_up_to.get(log, 0)
        dirty = sum(segment.size for segment in segments if segment.base_offset >= clean_up_to)
        return dirty / sum(segment.size for segment in segments) if dirty else 0.0
