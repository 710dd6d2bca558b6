"""Metrics of consumers for Prometheus, through the package prometheus_client.

```python
from kconsumer import Consumer
from kconsumer.prometheus import PrometheusReporter

with Consumer("orders", bootstrap_servers="localhost:9092", metrics_reporters=[PrometheusReporter()]) as consumer:
    ...
```

The metrics have the names of the Java consumer: `kconsumer_<group>_<name>`, where the group is for example
`consumer_fetch_manager_metrics`. Their tags are the labels. If the consumer and its topics have metrics of one name,
those of the topics are called `…_by_topic`, and those of partitions `…_by_partition`. So the sum of a family counts
nothing twice. Decides which series are exported.
"""

from __future__ import annotations

import logging
import math
import re
import weakref
from collections.abc import Iterator, Mapping

from kconsumer._common.extras import how_to_install
from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer.errors import ConfigError
from kconsumer.metrics.bounded import LIMITED, BoundedMetrics
from kconsumer.types import MetricName

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "kconsumer.prometheus needs the package prometheus_client: pip install prometheus-client, or the extra"
        f" prometheus ({how_to_install('prometheus')})",
        name="prometheus_client",
    ) from error

__all__ = ["PrometheusReporter"]

log = logging.getLogger(__name__)

PREFIX = "kconsumer"
TOTAL = "_total"
DROPPED = f"{PREFIX}_exporter_dropped_series", "Series that were left out because of a limit of PrometheusReporter"

OWN_LABELS = {tag.replace("-", "_") for tag in ("client-id", *dict(LIMITED))}
Labels = tuple[tuple[str, str], ...]


class PrometheusReporter(BoundedMetrics):
    """Exports the metrics of one consumer to a registry of prometheus_client. An element of `metrics_reporters`.

    Each consumer needs a reporter of its own. Reporters with the same `registry` share their metric families, and the
    last one that is closed unregisters them. `labels` are added to every series of this consumer. Metrics without a
    value, such as an average of nothing, are left out.

    The limits bound the number of topics, partitions and brokers that have series of their own. Those that come first
    are exported, and `kconsumer_exporter_dropped_series` counts the others. By default, partitions and brokers have no
    series, because a consumer may have thousands of them.

    Raises ConfigError for an invalid limit or label.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        max_topics: int = 100,
        max_partitions: int = 0,
        max_nodes: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(max_topics=max_topics, max_partitions=max_partitions, max_nodes=max_nodes)
        self._labels = tuple((label_name(name), str(value)) for name, value in (labels or {}).items())
        self._registry = registry

    def _begin(self) -> None:
        _SharedCollector.of(self._registry).add(self)

    def _end(self) -> None:
        _SharedCollector.of(self._registry).remove(self)

    def samples(self) -> Iterator[tuple[MetricName, dict[str, str], float]]:
        """Yield the metrics that have a value, with their labels."""
        metrics, dropped = self.snapshot()
        client = next((dict(metric.name.tags).get("client-id", "") for metric in metrics), "")
        for metric in metrics:
            value = metric.value()
            if math.isfinite(value):
                yield (
                    self.exported(metric.name),
                    {**dict(self._labels), **{_word(k): str(v) for k, v in metric.name.tags}},
                    value,
                )
        yield MetricName(DROPPED[0], "", DROPPED[1]), {**dict(self._labels), "client_id": client}, float(dropped)


class _SharedCollector(Collector):
    """What one registry collects: the metrics of all its reporters, merged into families."""

    _of: weakref.WeakKeyDictionary[CollectorRegistry, _SharedCollector] = weakref.WeakKeyDictionary()
    _lock = SignalSafeLock()

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = weakref.ref(registry)
        self._reporters: list[PrometheusReporter] = []
        self._warned = False

    @classmethod
    def of(cls, registry: CollectorRegistry) -> _SharedCollector:
        with cls._lock:
            return cls._of.setdefault(registry, cls(registry))

    def add(self, reporter: PrometheusReporter) -> None:
        """Add a reporter. The first one registers the collector."""
        with self._lock:
            self._reporters.append(reporter)
            registry = self._registry()
            if registry is not None and len(self._reporters) == 1:
                registry.register(self)

    def remove(self, reporter: PrometheusReporter) -> None:
        """Remove a reporter. The last one unregisters the collector."""
        with self._lock:
            self._reporters.remove(reporter)
            registry = self._registry()
            if registry is not None and not self._reporters:
                registry.unregister(self)

    def describe(self) -> list[Family]:
        """Returns no families, because they change while consumers run."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the families, each with the series of all consumers."""
        families: dict[str, Family] = {}
        seen: set[tuple[str, Labels]] = set()
        with self._lock:
            reporters = list(self._reporters)
        for reporter in reporters:
            for name, labels, value in reporter.samples():
                full = family_name(name)
                series = full, tuple(sorted(labels.items()))
                if series in seen:
                    self._warn_of_duplicates(labels)
                    continue
                seen.add(series)
                if full not in families:
                    counts = full.endswith(TOTAL)
                    kind = "counter" if counts else "gauge"
                    families[full] = Family(full.removesuffix(TOTAL) if counts else full, name.description, kind)
                families[full].add_sample(full, labels, value)
        for _, family in sorted(families.items()):
            yield family

    def _warn_of_duplicates(self, labels: Mapping[str, str]) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "two consumers have the client_id %r, so only one of them is exported: give each its own client_id, or"
                " PrometheusReporter(labels=…)",
                labels.get("client_id", ""),
            )


def family_name(name: MetricName) -> str:
    """Returns the name of a metric for Prometheus: `kconsumer_consumer_metrics_connection_count`."""
    return _word(f"{PREFIX}_{name.group}_{name.name}") if name.group else _word(name.name)


def label_name(name: str) -> str:
    """Returns a label's name. Raises ConfigError if Prometheus does not accept it, or if metrics have it already."""
    if not re.fullmatch(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ConfigError(f"not a name of a label: {name!r}; use letters, digits and underscores")
    if name in OWN_LABELS:
        raise ConfigError(f"metrics have a label {name!r} of their own, which would hide this one")
    return name


def _word(text: str) -> str:
    """Returns the text with an underscore for each character that is not a letter or a digit."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)
