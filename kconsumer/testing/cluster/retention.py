"""Retention: at a fixed interval, old segments of all logs are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.testing.cluster.timers import Timer
from kconsumer.testing.cluster.topic import Partition

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster


class Retention:
    """Applies retention every `log.retention.check.interval.ms`, as long as a log has records that may expire."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timer: Timer | None = None

    def watch(self, partition: Partition) -> None:
        """Listen to changes of a partition's log. A change starts the timer if the log has records that may expire."""
        partition.log.add_listener(lambda: self._start(partition))

    def _start(self, partition: Partition) -> None:
        """Start the timer if the partition has records that may expire. Does nothing if the timer is running."""
        if (self._timer is None or not self._timer.active) and _may_expire(partition):
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
