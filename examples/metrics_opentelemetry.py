"""Traces and metrics for OpenTelemetry: python examples/metrics_opentelemetry.py localhost:9092 my-group my-topic.

Reads the topic, and exports metrics to the screen; use your own exporter in its place. Needs the package
opentelemetry-sdk.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from kconsumer import Consumer
from kconsumer.opentelemetry import Instrumentation, OpenTelemetryReporter

EXPORT_EVERY_MS = 1000


def main(servers: str, group: str, topic: str) -> None:
    """Read until Ctrl-C."""
    reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=EXPORT_EVERY_MS)
    provider = MeterProvider(metric_readers=[reader])
    Instrumentation(meter_provider=provider).instrument()
    options = {"group_id": group, "auto_offset_reset": "earliest"}
    reporter = OpenTelemetryReporter(provider)
    try:
        with Consumer(topic, bootstrap_servers=servers, metrics_reporters=[reporter], **options) as consumer:
            while True:
                consumer.poll()
    finally:
        provider.shutdown()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: metrics_opentelemetry.py HOST:PORT GROUP TOPIC")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
