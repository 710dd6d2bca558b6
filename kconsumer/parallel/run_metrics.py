"""The metrics of a run, among those of its consumer, and a warning about a record that remains unfinished for long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Clock
from kconsumer.metrics.registry import Metrics, Row, Stat
from kconsumer.parallel.commits import Commits
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.source import Source
from kconsumer.parallel.work_queue import WorkQueue
from kconsumer.types import MetricName, TopicPartition

log = get_logger(__name__)

GROUP = "parallel-metrics"
WARNING_MS = 30_000.0  # a record that is unfinished this long is reported, and again after twice the time

COUNTS: dict[str, list[Row]] = {
    "processed": [
        ("records-processed-rate", Stat.RATE, "Records processed per second"),
        ("records-processed-total", Stat.TOTAL, "Records whose handler has returned"),
    ],
    "failed": [("records-failed-total", Stat.TOTAL, "Records that were skipped, or passed to on_failure")],
    "retries": [("retries-total", Stat.TOTAL, "Attempts that failed and were followed by another one")],
}
MEAN: list[Row] = [("handler-time-avg", Stat.AVG, "Mean time of a handler in ms")]
LONGEST: list[Row] = [("handler-time-max", Stat.MAX, "Longest time of a handler in ms")]


def _read(read: Callable[[], float], _now: float) -> float:
    return float(read())


class RunMetrics:
    """Publishes the metrics of a run. They stay until another run of the consumer replaces them."""

    def __init__(
        self,
        registry: Metrics,
        clock: Clock,
        queue: WorkQueue,
        source: Source,
        commits: Commits,
        trackers: Mapping[TopicPartition, OffsetTracker],
    ) -> None:
        """Add the metrics to those of the consumer."""
        self._registry, self._clock, self._queue, self._trackers = registry, clock, queue, trackers
        self._oldest: dict[TopicPartition, tuple[int, float, float]] = {}  # offset, since, when to warn (ms)
        self._counts = dict.fromkeys(COUNTS, 0)  # what was recorded
        self._sensors = {name: registry.sensor(GROUP, rows) for name, rows in COUNTS.items()}
        self._mean, self._longest = registry.sensor(GROUP, MEAN), registry.sensor(GROUP, LONGEST)
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "records-in-flight": ("Records that were taken and are not finished", lambda: queue.in_flight),
            "records-runnable": ("Those of them that run or can run", lambda: queue.runnable),
            "records-waiting-for-retry": (
                "Those of them that wait for another attempt, also in delay topics",
                lambda: queue.delayed,
            ),
            "records-waiting-for-order": (
                "Those of them that wait behind an earlier record",
                lambda: max(0, queue.in_flight - queue.runnable - queue.delayed),
            ),
            "partitions-blocked": ("Partitions of which no more records are taken", lambda: source.blocked),
            "suspended": (
                "1 while the run is paused, its circuit breaker is open, or its processes start",
                lambda: float(queue.suspended),
            ),
            "oldest-unfinished-age": ("Seconds for which a record has been the first unfinished one", self._oldest_s),
            "commit-metadata-size-max": ("Characters of metadata in the last commit", lambda: commits.longest),
        }
        for name, (description, read) in gauges.items():
            registry.gauge(registry.name(name, GROUP, description), partial(_read, read))

    def values(self) -> dict[MetricName, float]:
        """Returns the present values. Any thread may call this."""
        now = self._clock.now()
        return {name: read(now) for name, read in self._registry.measures() if name.group == GROUP}

    def update(self) -> None:
        """Record what has happened since the last call, and report records that remain unfinished."""
        now, queue = self._clock.now(), self._queue
        for name, sensor in self._sensors.items():
            count = getattr(queue, name)
            if count > self._counts[name]:
                sensor.record(count - self._counts[name], now)
                self._counts[name] = count
        for worker in list(queue.workers):
            if worker.handled:
                mean_ms, longest_ms = worker.take_times()
                self._mean.record(mean_ms, now)
                self._longest.record(longest_ms, now)
        self._watch(now)

    def _oldest_s(self) -> float:
        now = self._clock.now()
        return max(((now - since) / 1000 for _, since, _ in list(self._oldest.values())), default=0.0)

    def _watch(self, now: float) -> None:
        found = {}
        for tp, tracker in list(self._trackers.items()):
            first = tracker.first_unfinished()
            if first is None or first[0] in tracker.due:
                continue
            offset, since, warn_at = self._oldest.get(tp, (-1, now, now))
            if offset != first[0]:
                offset, since, warn_at = first[0], now, now + WARNING_MS
            elif now >= warn_at:
                self._warn(tracker, offset, (now - since) / 1000)
                warn_at = now + 2 * (now - since)
            found[tp] = offset, since, warn_at
        self._oldest = found

    def _warn(self, tracker: OffsetTracker, offset: int, age_s: float) -> None:
        key, what = self._queue.find(tracker, offset)
        tp = tracker.topic_partition
        log.warning("%s offset %d (key %.100r) has been unfinished for %.0f s: %s", tp, offset, key, age_s, what)
