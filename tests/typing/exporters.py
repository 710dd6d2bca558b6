"""Programs with exporters of metrics and traces: everything here must type-check."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kconsumer import Consumer, ConsumerRecord
from kconsumer.aio import AsyncConsumer
from kconsumer.opentelemetry import Instrumentation, OpenTelemetryReporter
from kconsumer.prometheus import PrometheusReporter


def handle(record: ConsumerRecord, times: int) -> int:
    """Returns a number."""
    return record.offset * times


async def handle_async(record: ConsumerRecord) -> str:
    """Returns a text."""
    return record.topic


async def export(consumer: Consumer, record: ConsumerRecord) -> tuple[int, str]:
    """Use each exporter. A traced handler has the type of the handler."""
    registry = CollectorRegistry()
    reporters = [PrometheusReporter(registry, labels={"a": "b"}), OpenTelemetryReporter(max_partitions=10)]
    AsyncConsumer("t", bootstrap_servers="localhost:9092", metrics_reporters=reporters)
    instrumentation = Instrumentation(continue_trace=True)
    instrumentation.instrument_consumer(consumer)
    with instrumentation.process(record, consumer) as span:
        span.set_attribute("times", 2)
    number: int = instrumentation.traced(handle)(record, 2)
    text: str = await instrumentation.traced(handle_async, consumer)(record)
    return number, text
