"""Selects the metrics of a push, and computes their values (Java `KafkaMetricsCollector`).

Decides the names, the labels and the kind of each metric. Names are Java's: the group and the name of a metric, with
dots, for example `org.apache.kafka.consumer.fetch.manager.records.consumed.total`. Metrics that only this client has
are not pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from kconsumer.metrics.registry import Metrics, is_cumulative
from kconsumer.telemetry.otlp import CUMULATIVE, DELTA, DataPoint, Metric, encode_metrics
from kconsumer.types import MetricName

PREFIX = "org.apache.kafka."
ALL_METRICS = "*"
EXCLUDED_LABELS = frozenset({"client-id"})  # the broker knows it from the request
#: In Java the values of these metrics are texts, which are not pushed.
TEXTS = frozenset({("app-info", "version"), ("app-info", "commit-id")})
#: Java has no such metrics.
OWN = frozenset({"records-lag-seconds", "records-lag-seconds-max", "records-filtered-rate", "records-filtered-total"})
#: In Java the values of these metrics are integers.
INTEGERS = frozenset({("app-info", "start-time-ms"), ("consumer-fetch-manager-metrics", "preferred-read-replica")})
#: In Java the values of these metrics are gauges, although they are sums.
GAUGES = frozenset({"application-events-expired-count"})
NS_PER_MS = 1_000_000

Measure = Callable[[float], float]


class _Received(NamedTuple):
    """The value of a sum that a broker has received."""

    measure: Measure
    value: float
    time_ns: int


class _Push(NamedTuple):
    """The value of a sum in a push, and the beginning of its interval."""

    temporality: int
    start_ns: int
    value: float


class TelemetryCollector:
    """Collects the metrics of one consumer. Not thread-safe: callers hold the engine's lock."""

    def __init__(self, metrics: Metrics, labels: Callable[[], Mapping[str, str]], wall_ms: Callable[[], int]) -> None:
        """`labels()` returns the attributes of the consumer. Those that are empty are left out."""
        self._metrics = metrics
        self._labels = labels
        self._wall_ms = wall_ms
        self._known_labels: dict[str, str] = {}  # also those that have become empty, such as the id of a former member
        #: When each sum began, at 0. A metric that was removed and added again has another function: it began again.
        self._began: dict[MetricName, tuple[Measure, int]] = {}
        self._collected_ns = wall_ms() * NS_PER_MS  # the time of the last `collect`, at first that of the creation
        self._received: dict[MetricName, _Received] = {}
        self._unconfirmed: dict[MetricName, _Received] = {}

    def collect(self, prefixes: Iterable[str], *, delta: bool, now: float) -> bytes:
        """Returns the MetricsData message with the metrics whose names begin with one of `prefixes`, as of `now` (ms).

        With `delta` the value of a sum is its increase since the last push that was confirmed.
        """
        self._known_labels.update((name, value) for name, value in self._labels().items() if value)
        prefixes = tuple(prefixes)
        everything = prefixes == (ALL_METRICS,)
        measures = self._metrics.measures()
        time_ns = self._wall_ms() * NS_PER_MS
        self._find_beginnings(measures, time_ns)
        self._unconfirmed = {}
        found: dict[str, Metric] = {}
        for name, measure in measures:
            full_name = telemetry_name(name.group, name.name)
            if full_name is None or not (everything or full_name.startswith(prefixes)):
                continue
            value, temporality, start_ns = float(measure(now)), None, 0
            if name in self._began:
                self._unconfirmed[name] = _Received(measure, value, time_ns)
                temporality, start_ns, value = self._sum(name, measure, value, delta=delta)
            elif (name.group, name.name) in INTEGERS:
                value = int(value)
            metric = found.setdefault(full_name, Metric(full_name, temporality, []))
            metric.points.append(DataPoint(_attributes(name), value, time_ns, start_ns))
        return encode_metrics(self._known_labels, found.values())

    def _find_beginnings(self, measures: Iterable[tuple[MetricName, Measure]], time_ns: int) -> None:
        """Find when each sum began. Those that are new began after the last call."""
        began, self._began = self._began, {}
        for name, measure in measures:
            if is_cumulative(measure) and name.name not in GAUGES:
                known = began.get(name)
                same = known is not None and known[0] is measure
                self._began[name] = known if known is not None and same else (measure, self._collected_ns)
        self._collected_ns = time_ns

    def _sum(self, name: MetricName, measure: Measure, value: float, *, delta: bool) -> _Push:
        """Returns how a sum is pushed: its whole value since it began, or its increase."""
        _, began_ns = self._began[name]
        if not delta:
            return _Push(CUMULATIVE, began_ns, value)
        last = self._received.get(name)
        if last is None or last.measure is not measure:
            return _Push(DELTA, began_ns, value)
        return _Push(DELTA, last.time_ns, value - last.value)

    def confirm(self) -> None:
        """Record that a broker has received the metrics of the last `collect`. The next increases begin there.

        If a push fails, the next one contains its increases, too. In Java they are lost.
        """
        self._received, self._unconfirmed = self._unconfirmed, {}

    def reset(self) -> None:
        """Forget the values of earlier pushes, because the temporality has changed."""
        self._received, self._unconfirmed = {}, {}


def _attributes(name: MetricName) -> list[tuple[str, str]]:
    return [(key.lower().replace("-", "_"), value) for key, value in name.tags if key not in EXCLUDED_LABELS]


@lru_cache(1024)
def telemetry_name(group: str, name: str) -> str | None:
    """Returns the name in telemetry (Java `TelemetryMetricNamingConvention`), or None if the metric is not pushed."""
    if (group, name) in TEXTS or name in OWN:
        return None
    clean_group = group.lower().replace("-", ".").replace(".metrics", "")
    return f"{PREFIX}{clean_group}.{name.lower().replace('-', '.')}"
