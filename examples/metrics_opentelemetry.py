"""Metrics for OpenTelemetry: python examples/metrics_opentelemetry.py localhost:9092 my-group my-topic.

Reads the topic and exports its metrics, here to the screen; use your own exporter in its place. Needs
`pip install opentelemetry-sdk`. The bridge is a reporter: it keeps the consumer's metrics, and the exporter's
thread reads their values when it exports.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from kconsumer import Consumer, Metric, MetricName, MetricsReporter

EXPORT_EVERY_MS = 1000


class Bridge(MetricsReporter):
    """Creates one instrument for each name: a counter if the value only grows (`…-total`), else a gauge.

    Tags become attributes. A metric whose value is NaN, such as an average before the first measurement, is left out.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._metrics: dict[str, dict[MetricName, Metric]] = {}  # by the instrument's name

    def init(self, metrics: Sequence[Metric]) -> None:
        """Add the metrics of a new consumer."""
        for metric in metrics:
            self.metric_change(metric)

    def metric_change(self, metric: Metric) -> None:
        """Add a metric, such as one of a new partition or connection."""
        name = instrument(metric.name)
        known = name in self._metrics
        self._metrics.setdefault(name, {})[metric.name] = metric
        if not known:
            self._add(name, metric.name.description)

    def metric_removal(self, metric: Metric) -> None:
        """Remove a metric. Its instrument is kept."""
        del self._metrics[instrument(metric.name)][metric.name]

    def _add(self, name: str, description: str) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for metric in list(self._metrics[name].values()):
                value = metric.value()
                if math.isfinite(value):
                    yield Observation(value, dict(metric.name.tags))

        grows = name.endswith("-total")
        create = self._meter.create_observable_counter if grows else self._meter.create_observable_gauge
        create(name, [observe], description=description)


def instrument(metric: MetricName) -> str:
    """Return the name of a metric's instrument."""
    return f"kconsumer.{metric.group}.{metric.name}"


def main(servers: str, group: str, topic: str) -> None:
    """Read until Ctrl-C."""
    reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=EXPORT_EVERY_MS)
    provider = MeterProvider(metric_readers=[reader])
    bridge = Bridge(provider.get_meter("kconsumer"))
    try:
        with Consumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", metrics_reporters=[bridge]
        ) as consumer:
            while True:
                consumer.poll()
    finally:
        provider.shutdown()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: metrics_opentelemetry.py HOST:PORT GROUP TOPIC")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
