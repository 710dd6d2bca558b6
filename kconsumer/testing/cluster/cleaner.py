"""The log cleaner, which compacts the logs of topics whose `cleanup.policy` contains `compact`, and retention.

A closed segment is clean if the last compaction of its log has read it; otherwise it is dirty. As in Kafka, a log is
compacted if the ratio of dirty bytes in its closed segments is larger than `min.cleanable.dirty.ratio`.
"""

from __future__ import annotations

from kconsumer.testing.cluster.compaction import closed_segments, compact
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.segment import Segment
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.timers import NO_TIMER, Timer
from kconsumer.testing.cluster.topic import Partition


class Cleaner:
    """Compacts the logs that have changed, `log.cleaner.backoff.ms` after the first change.

    While no log changes, no timer is set.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._changed: dict[Log, None] = {}  # since the last run
        self._clean_up_to: dict[Log, int] = {}  # segments that begin before this offset are clean
        self._timer: Timer = NO_TIMER
        cluster.on_partition_created.append(self._watch)

    def _watch(self, partition: Partition) -> None:
        """Listen to changes of a partition's log. A change sets the timer if the log can be compacted."""
        partition.log.add_listener(lambda: self._on_change(partition.log))

    def _on_change(self, log: Log) -> None:
        if "compact" in log.configs["cleanup.policy"] and len(log.segments) > 1:
            self._changed[log] = None
            if not self._timer.active:
                self._timer = self._cluster.timers.soon(self._schedule)

    def _schedule(self, now: float) -> None:
        self._timer = self._cluster.timers.add(now + self._cluster.settings.log_cleaner_backoff_ms, self._run)

    def _run(self, now: float) -> None:
        """Compact the changed logs whose dirty ratio is larger than `min.cleanable.dirty.ratio`."""
        changed, self._changed = list(self._changed), {}
        wall_ms = self._cluster.wall_ms(now)
        for log in changed:
            segments = closed_segments(log)
            if self._dirty_ratio(log, segments) > float(log.configs["min.cleanable.dirty.ratio"]):
                self._clean_up_to[log] = segments[-1].base_offset + 1
                compact(log, wall_ms)

    def _dirty_ratio(self, log: Log, segments: list[Segment]) -> float:
        """Returns the ratio of dirty bytes to all bytes in the closed segments of a log."""
        clean_up_to = self._clean_up_to.get(log, 0)
        dirty = sum(segment.size for segment in segments if segment.base_offset >= clean_up_to)
        return dirty / sum(segment.size for segment in segments) if dirty else 0.0


class Retention:
    """Applies retention every `log.retention.check.interval.ms`, as long as a log has records that may expire."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._timer: Timer = NO_TIMER
        cluster.on_partition_created.append(self._watch)

    def _watch(self, partition: Partition) -> None:
        """Listen to changes of a partition's log. A change starts the timer if the log has records that may expire."""
        partition.log.add_listener(lambda: self._start(partition))

    def _start(self, partition: Partition) -> None:
        """Start the timer if the partition has records that may expire. Does nothing if the timer is running."""
        if not self._timer.active and _may_expire(partition):
            self._timer = self._cluster.timers.soon(self._schedule)

    def _schedule(self, now: float) -> None:
        """Set the timer for the next check of all partitions."""
        interval = self._cluster.settings.log_retention_check_interval_ms
        self._timer = self._cluster.timers.add(now + interval, self._check)

    def _check(self, now: float) -> None:
        """Apply retention to all partitions. Starts the timer again if records that may expire are left."""
        wall_ms = self._cluster.wall_ms(now)
        partitions = list(self._cluster.partitions())
        for partition in partitions:
            partition.log.apply_retention(wall_ms)
        for partition in partitions:
            self._start(partition)


def _may_expire(partition: Partition) -> bool:
    """Returns whether a partition has records that retention may delete."""
    configs = partition.topic.configs
    limited = int(configs["retention.ms"]) >= 0 or int(configs["retention.bytes"]) >= 0
    return limited and "delete" in configs["cleanup.policy"] and partition.log.end > partition.log.start
