"""Metrics for OpenTelemetry: python examples/metrics_opentelemetry.py localhost:9092 my-group my-topic.

Reads the topic and exports its metrics, here to the screen; put your own exporter in its place. Needs
`pip install opentelemetry-sdk`. A consumer belongs to one thread and exporters have threads of their own, so the
numbers are taken between two polls, and an export tells the last ones taken.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from kconsumer import Consumer, MetricName

EXPORT_EVERY_MS = 1000


class Bridge:
    """One instrument for each name: a counter for what only grows (`…-total`), a gauge for the rest.

    Tags become attributes. What has no value yet (an average of nothing is NaN) is left out.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._taken: Mapping[str, list[Observation]] = {}
        self._known: set[str] = set()

    def take(self, metrics: Mapping[MetricName, float]) -> None:
        """Take what `consumer.metrics()` says, on the consumer's thread."""
        taken: dict[str, list[Observation]] = {}
        for metric, value in metrics.items():
            name = f"kconsumer.{metric.group}.{metric.name}"
            rows = taken.setdefault(name, [])
            if math.isfinite(value):
                rows.append(Observation(value, dict(metric.tags)))
            if name not in self._known:
                self._add(name, metric.description)
        self._taken = taken  # put in place whole: an export on another thread sees all of it or nothing

    def _add(self, name: str, description: str) -> None:
        self._known.add(name)

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return self._taken.get(name, ())

        grows = name.endswith("-total")
        create = self._meter.create_observable_counter if grows else self._meter.create_observable_gauge
        create(name, [observe], description=description)


def main(servers: str, group: str, topic: str) -> None:
    """Read for ever, and take the numbers after each poll."""
    reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=EXPORT_EVERY_MS)
    provider = MeterProvider(metric_readers=[reader])
    bridge = Bridge(provider.get_meter("kconsumer"))
    try:
        with Consumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
            while True:
                consumer.poll(timeout=EXPORT_EVERY_MS / 1000)
                bridge.take(consumer.metrics())
    finally:
        provider.shutdown()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
