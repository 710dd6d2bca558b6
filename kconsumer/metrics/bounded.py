"""BoundedMetrics: the metrics of one consumer, for exporters. Bounds how many topics, partitions and brokers have any.

A consumer may have thousands of partitions, each with metrics of its own, and systems that store metrics suffer from as
many series. Decides which metrics are exported, and under which names: those of the consumer and those of its topics
have different names, so that the sum over all series of a name counts nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer.errors import ConfigError
from kconsumer.metrics.reporters import Metric, MetricsReporter
from kconsumer.types import MetricName

log = get_logger(__name__)

#: The tags that make series, in order of precedence, and the limit of each.
LIMITED = (("partition", "max_partitions"), ("topic", "max_topics"), ("node-id", "max_nodes"))

Key = tuple[tuple[str, str], ...]


class BoundedMetrics(MetricsReporter):
    """Keeps the metrics of one consumer that the limits admit. Those that come first are kept.

    The methods may be called on any thread. Subclasses override `_begin` and `_end`.
    """

    def __init__(self, *, max_topics: int, max_partitions: int, max_nodes: int) -> None:
        self._limits = {"max_topics": max_topics, "max_partitions": max_partitions, "max_nodes": max_nodes}
        for name, limit in self._limits.items():
            if limit < 0:
                raise ConfigError(f"{name} cannot be negative: {limit}")
        self._lock = SignalSafeLock()  # guards the five below
        self._metrics: dict[MetricName, Metric] = {}
        self._counts: dict[str, Counter[Key]] = {limit: Counter() for _, limit in LIMITED}
        self._dropped: set[MetricName] = set()
        self._tags: dict[tuple[str, str], int] = {}  # group and name -> the smallest number of tags
        self._renamed: set[str] = set()  # names of topics that have another name, with dots, in metrics of their own
        self._begun = self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._metrics)} metrics, {len(self._dropped)} beyond the limits>"

    def init(self, metrics: Sequence[Metric]) -> None:
        """Begin with the metrics of a new consumer."""
        if self._begun:
            log.error("a %s serves one consumer only: make one for each consumer", type(self).__name__)
            return
        self._begun = True
        for metric in metrics:
            self.metric_change(metric)
        self._begin()

    def metric_change(self, metric: Metric) -> None:
        """Keep a metric that is new, or that replaces another one."""
        name, count = metric.name, len(metric.name.tags)
        with self._lock:
            self._tags[name.group, name.name] = min(count, self._tags.get((name.group, name.name), count))
            topic = dict(name.tags).get("topic", "")
            if "." in topic:
                self._renamed.add(topic.replace(".", "_"))
            elif topic in self._renamed:
                return
            if metric.name in self._metrics or self._admit(metric.name):
                self._metrics[metric.name] = metric
            else:
                self._dropped.add(metric.name)

    def metric_removal(self, metric: Metric) -> None:
        """Remove a metric. This may make room for another one."""
        with self._lock:
            self._dropped.discard(metric.name)
            limited = _limit_of(metric.name)
            if self._metrics.pop(metric.name, None) is None or limited is None:
                return
            limit, key = limited
            self._counts[limit][key] -= 1
            if not self._counts[limit][key]:
                del self._counts[limit][key]

    def close(self) -> None:
        """End. The consumer calls this when it is closed."""
        if self._begun and not self._closed:
            self._closed = True
            self._end()

    def snapshot(self) -> tuple[list[Metric], int]:
        """Returns the metrics, and the number of those that the limits have kept out."""
        with self._lock:
            return list(self._metrics.values()), len(self._dropped)

    def exported(self, name: MetricName) -> MetricName:
        """Returns a metric's name for other systems.

        If the consumer has `records-consumed-total`, too, that of a topic is `records-consumed-by-topic-total`.
        """
        if len(name.tags) <= self._tags.get((name.group, name.name), len(name.tags)):
            return name
        tags = dict(name.tags)
        level = next((tag for tag, _ in LIMITED if tag in tags), "tag")
        stem = name.name.removesuffix("-total")
        return replace(name, name=f"{stem}-by-{level}{name.name[len(stem) :]}")

    def _begin(self) -> None:
        """Begin to export. Called once."""

    def _end(self) -> None:
        """End the export. Called once, if `_begin` was called."""

    def _admit(self, name: MetricName) -> bool:
        """Returns whether the limits admit a metric, and counts it if they do."""
        limited = _limit_of(name)
        if limited is None:
            return True
        limit, key = limited
        counts = self._counts[limit]
        if key not in counts and len(counts) >= self._limits[limit]:
            return False
        counts[key] += 1
        return True


def _limit_of(name: MetricName) -> tuple[str, Key] | None:
    """Returns the limit that a metric is subject to, and what the limit counts: a topic, a partition or a broker."""
    tags = dict(name.tags)
    for tag, limit in LIMITED:
        if tag in tags:
            return limit, tuple(sorted((key, value) for key, value in tags.items() if key in ("topic", tag)))
    return None
