"""OpenTelemetryReporter: exports the metrics of a consumer, under Java's names, as observable instruments."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter_provider

from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer._version import VERSION
from kconsumer.metrics.bounded import BoundedMetrics
from kconsumer.metrics.reporters import Metric
from kconsumer.types import MetricName

SCOPE = "kconsumer"


class OpenTelemetryReporter(BoundedMetrics):
    """Exports the metrics of one consumer to OpenTelemetry. An element of `metrics_reporters`.

    Each consumer needs a reporter of its own. The instruments are called `kconsumer.<group>.<name>`. If the consumer
    and its topics have metrics of one name, those of the topics are called `…-by-topic`. Those of `…-total` are
    observable counters, the others gauges. Tags are attributes. Metrics without a value are left out. Without a
    `meter_provider`, the global one is used. The limits are those of `PrometheusReporter`.

    Raises ConfigError for a negative limit.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        max_topics: int = 100,
        max_partitions: int = 0,
        max_nodes: int = 0,
    ) -> None:
        super().__init__(max_topics=max_topics, max_partitions=max_partitions, max_nodes=max_nodes)
        self._provider = meter_provider

    def metric_change(self, metric: Metric) -> None:
        """Export a metric that is new, or that replaces another one."""
        super().metric_change(metric)
        if self._begun and not self._closed:
            self._instruments().require(self._instrument(metric.name), metric.name.description)

    def _instrument(self, name: MetricName) -> str:
        return instrument_name(self.exported(name))

    def observations(self, instrument: str) -> Iterator[Observation]:
        """Yield the values of the metrics that an instrument exports."""
        for metric in self.snapshot()[0]:
            if self._instrument(metric.name) == instrument and math.isfinite(value := metric.value()):
                yield Observation(value, dict(metric.name.tags))

    def _instruments(self) -> _Instruments:
        return _Instruments.of(self._provider or get_meter_provider())

    def _begin(self) -> None:
        instruments = self._instruments()
        instruments.add(self)
        for metric in self.snapshot()[0]:
            instruments.require(self._instrument(metric.name), metric.name.description)

    def _end(self) -> None:
        self._instruments().remove(self)


class _Instruments:
    """The instruments of one meter provider, which the reporters of several consumers share."""

    _of: weakref.WeakKeyDictionary[MeterProvider, _Instruments] = weakref.WeakKeyDictionary()
    _lock = SignalSafeLock()

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._reporters: list[OpenTelemetryReporter] = []
        self._known: set[str] = set()

    @classmethod
    def of(cls, provider: MeterProvider) -> _Instruments:
        with cls._lock:
            found = cls._of.get(provider)
            if found is None:
                found = cls._of[provider] = cls(provider.get_meter(SCOPE, VERSION))
            return found

    def add(self, reporter: OpenTelemetryReporter) -> None:
        """Export the metrics of a reporter from now on."""
        with self._lock:
            self._reporters.append(reporter)

    def remove(self, reporter: OpenTelemetryReporter) -> None:
        """Stop exporting the metrics of a reporter. Instruments cannot be removed, but have no observations then."""
        with self._lock:
            self._reporters.remove(reporter)

    def require(self, instrument: str, description: str) -> None:
        """Create an instrument, unless it exists."""
        with self._lock:
            if instrument in self._known:
                return
            self._known.add(instrument)
        counts = instrument.endswith("-total")
        create = self._meter.create_observable_counter if counts else self._meter.create_observable_gauge
        create(instrument, [partial(self._observe, instrument)], description=description)

    def _observe(self, instrument: str, _options: CallbackOptions) -> Iterator[Observation]:
        with self._lock:
            reporters = list(self._reporters)
        for reporter in reporters:
            yield from reporter.observations(instrument)


def instrument_name(name: MetricName) -> str:
    return f"{SCOPE}.{name.group}.{name.name}"
