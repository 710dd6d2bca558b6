"""`kconsumer.opentelemetry`: spans, links, metrics by the semantic conventions, and the reporter of Java's metrics."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, HistogramDataPoint, InMemoryMetricReader, Metric, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import CorruptRecordError, StateError, WakeupError
from kconsumer.opentelemetry import Instrumentation, OpenTelemetryReporter
from kconsumer.parallel import process
from kconsumer.testing import FakeCluster, MockConsumer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = (("traceparent", f"00-{TRACE}-{SPAN}-01".encode()),)
TP, OTHER = TopicPartition("orders", 0), TopicPartition("returns", 1)


class Telemetry:
    """Providers that export into memory, and an Instrumentation with them."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False)
        self.instrumentation = Instrumentation(
            tracer_provider=self.tracers,
            meter_provider=self.meters,
            propagator=TraceContextTextMapPropagator(),
            **options,
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended."""
        return self.exporter.get_finished_spans()

    def metrics(self) -> dict[str, Metric]:
        """Returns the exported metrics by name."""
        exported = self.reader.get_metrics_data()
        if exported is None:
            return {}
        return {m.name: m for r in exported.resource_metrics for s in r.scope_metrics for m in s.metrics}

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Returns the attributes and the value of each point of a counter; of a histogram, the count."""
        found = []
        for point in self.metrics()[name].data.data_points:
            value = point.count if isinstance(point, HistogramDataPoint) else getattr(point, "value", 0)
            found.append((dict(point.attributes or {}), value))
        return found


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """Telemetry that traces no consumer yet."""
    telemetry = Telemetry()
    yield telemetry
    telemetry.instrumentation.uninstrument()


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    """A consumer of the group `g` with a record of each of two topics, the first of which has a trace."""
    with MockConsumer(bootstrap_servers="x:1", group_id="g", client_id="c", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders", "returns"])
        consumer.rebalance([TP, OTHER])
        yield consumer


def record(tp: TopicPartition = TP, offset: int = 0, headers: Any = TRACEPARENT, value: Any = b"v") -> ConsumerRecord:
    """Returns a record."""
    return ConsumerRecord(tp.topic, tp.partition, offset, key=b"k", value=value, headers=headers)


CLIENT = {"messaging.system": "kafka", "messaging.consumer.group.name": "g", "messaging.client.id": "c"}
POLL = {**CLIENT, "messaging.operation.name": "poll", "messaging.operation.type": "receive"}
PROCESS = {**CLIENT, "messaging.operation.name": "process", "messaging.operation.type": "process"}


def without_client(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes of metrics: a client id would make a series of each."""
    return {key: value for key, value in attributes.items() if key != "messaging.client.id"}


def test_a_poll_with_records(telemetry: Telemetry, consumer: MockConsumer) -> None:
    """A poll is a span that links to the producers. Its records are counted, and its duration is measured."""
    telemetry.instrumentation.instrument_consumer(consumer)
    consumer.add_records(TP, [record(offset=0), record(offset=1, headers=())])
    assert 2 == len(consumer.poll())
    (span,) = telemetry.spans
    assert ("poll orders", SpanKind.CLIENT) == (span.name, span.kind)
    at = {"messaging.destination.name": "orders", "messaging.destination.partition.id": "0"}
    assert {**POLL, **at, "messaging.batch.message_count": 2} == dict(span.attributes or {})
    (link,) = span.links
    assert (int(TRACE, 16), int(SPAN, 16)) == (link.context.trace_id, link.context.span_id)
    assert {**at, "messaging.kafka.offset": 0} == dict(link.attributes or {})
    measured = {**without_client(POLL), "messaging.destination.name": "orders"}
    assert [(measured, 2)] == telemetry.points("messaging.client.consumed.messages")
    assert [(measured, 1)] == telemetry.points("messaging.client.operation.duration")
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time >= span.start_time


def test_a_poll_without_records(telemetry: Telemetry, consumer: MockConsumer) -> None:
    """A poll that returns nothing, or ends by wakeup(), leaves no trace."""
    telemetry.instrumentation.instrument_consumer(consumer)
    assert not consumer.poll()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    assert () == telemetry.spans
    assert {} == telemetry.metrics()


def test_a_poll_that_fails(telemetry: Telemetry, consumer: MockConsumer) -> None:
    """The span and the duration have the type of the error, which is raised as without traces."""
    telemetry.instrumentation.instrument_consumer(consumer)
    consumer.raise_next(CorruptRecordError("broken"))
    with pytest.raises(CorruptRecordError):
        consumer.poll()
    (span,) = telemetry.spans
    assert (StatusCode.ERROR, "broken") == (span.status.status_code, span.status.description)
    assert "CorruptRecordError" == (span.attributes or {})["error.type"]
    ((at, count),) = telemetry.points("messaging.client.operation.duration")
    assert ("CorruptRecordError", 1) == (at["error.type"], count)
    assert "messaging.client.consumed.messages" not in telemetry.metrics()


def test_every_consumer(telemetry: Telemetry, consumer: MockConsumer) -> None:
    """`instrument` traces consumers that exist and new ones; `uninstrument` restores the methods."""
    before = [cls.__dict__[name] for cls in (Consumer, AsyncConsumer) for name in ("poll", "poll_arrow")]
    telemetry.instrumentation.instrument()
    telemetry.instrumentation.instrument()
    consumer.add_records(TP, [record()])
    assert consumer.poll()
    assert 1 == len(telemetry.spans)
    with pytest.raises(StateError, match="uninstrument"):
        Telemetry().instrumentation.instrument()
    telemetry.instrumentation.uninstrument()
    assert before == [cls.__dict__[name] for cls in (Consumer, AsyncConsumer) for name in ("poll", "poll_arrow")]
    consumer.add_records(TP, [record(offset=1)])
    assert consumer.poll()
    assert 1 == len(telemetry.spans)


def test_one_consumer_of_a_traced_process(telemetry: Telemetry, consumer: MockConsumer) -> None:
    """A consumer with an Instrumentation of its own is traced by this one alone, until that is undone."""
    telemetry.instrumentation.instrument()
    own = Telemetry()
    own.instrumentation.instrument_consumer(consumer)
    consumer.add_records(TP, [record()])
    assert consumer.poll()
    assert (0, 1) == (len(telemetry.spans), len(own.spans))
    own.instrumentation.uninstrument_consumer(consumer)
    consumer.add_records(TP, [record(offset=1)])
    assert consumer.poll()
    assert (1, 1) == (len(telemetry.spans), len(own.spans))


def test_an_async_consumer(telemetry: Telemetry) -> None:
    """The polls of an AsyncConsumer have spans, too."""
    telemetry.instrumentation.instrument()

    async def read(servers: str) -> None:
        async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            while not await consumer.poll(10):
                pass

    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [b"v"], headers=TRACEPARENT)
        asyncio.run(read(cluster.bootstrap_servers))
    (span,) = telemetry.spans
    assert ("poll orders", 1) == (span.name, len(span.links))


@pytest.mark.parametrize("continue_trace", [False, True])
def test_processing(consumer: MockConsumer, continue_trace: bool) -> None:
    """A span for a record links to the producer's. With `continue_trace`, it is a child of the producer's span."""
    telemetry = Telemetry(continue_trace=continue_trace, keys=True)
    tracer = telemetry.tracers.get_tracer("test")
    processing = telemetry.instrumentation.process(record(value=None), consumer)
    with tracer.start_as_current_span("outer"), processing, tracer.start_as_current_span("inner"):
        pass
    inner, span, outer = telemetry.spans
    assert ("process orders", SpanKind.CONSUMER) == (span.name, span.kind)
    assert span.parent is not None
    assert inner.parent is not None
    assert outer.context is not None
    assert span.context is not None
    assert (int(SPAN, 16) if continue_trace else outer.context.span_id) == span.parent.span_id
    assert span.context.span_id == inner.parent.span_id
    assert [int(SPAN, 16)] == [link.context.span_id for link in span.links]
    assert {
        **PROCESS,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "k",
        "messaging.kafka.message.tombstone": True,
    } == dict(span.attributes or {})
    measured = {**without_client(PROCESS), "messaging.destination.name": "orders"}
    assert [(measured, 1)] == telemetry.points("messaging.process.duration")


def test_processing_that_fails(telemetry: Telemetry) -> None:
    """The exception is raised, and is in the span and in the metric."""

    def handle(_record: ConsumerRecord) -> None:
        raise LookupError("no such order")

    with pytest.raises(LookupError):
        telemetry.instrumentation.traced(handle)(record(headers=()))
    (span,) = telemetry.spans
    assert (StatusCode.ERROR, ()) == (span.status.status_code, span.links)
    assert "LookupError" == (span.attributes or {})["error.type"]
    assert "messaging.kafka.message.key" not in (span.attributes or {})
    ((at, _),) = telemetry.points("messaging.process.duration")
    assert "LookupError" == at["error.type"]


def test_traced_handlers(telemetry: Telemetry) -> None:
    """A traced handler has the arguments, the result and the name of the handler, as a coroutine function, too."""

    def double(_record: ConsumerRecord, number: int) -> int:
        return 2 * number

    async def triple(_record: ConsumerRecord, number: int) -> int:
        return 3 * number

    traced = telemetry.instrumentation.traced(double)
    assert (8, "double") == (traced(record(), 4), traced.__name__)
    assert 12 == asyncio.run(telemetry.instrumentation.traced(triple)(record(), 4))
    assert ["process orders"] * 2 == [span.name for span in telemetry.spans]


@pytest.mark.parametrize("executor", ["threads", "asyncio"])
def test_handlers_of_several_records_at_a_time(telemetry: Telemetry, executor: Any) -> None:
    """`kconsumer.parallel` calls traced handlers: each record has its span, in any thread."""

    def handle(_record: ConsumerRecord) -> None:
        pass

    async def handle_async(_record: ConsumerRecord) -> None:
        pass

    handler: Any = handle if executor == "threads" else handle_async
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": 300}
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [b"v"] * 20, headers=TRACEPARENT)
        with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options) as consumer:
            traced = telemetry.instrumentation.traced(handler, consumer)
            process(consumer, traced, workers=4, executor=executor)
    assert set(range(20)) == {(span.attributes or {})["messaging.kafka.offset"] for span in telemetry.spans}
    assert ["process orders"] * 20 == [span.name for span in telemetry.spans]


def test_records_reach_the_caller_if_tracing_fails(
    telemetry: Telemetry, consumer: MockConsumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of an exporter is logged. One that ends the program moves the positions back."""
    telemetry.instrumentation.instrument_consumer(consumer)
    failure: list[BaseException] = [RuntimeError("full"), KeyboardInterrupt()]

    def fail(*_arguments: object) -> None:
        raise failure.pop(0)

    monkeypatch.setattr(telemetry.instrumentation._consumed, "add", fail)
    consumer.add_records(TP, [record()])
    assert 1 == len(consumer.poll())
    assert "could not be traced" in caplog.text
    consumer.add_records(TP, [record(offset=1)])
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    assert 1 == consumer.position(TP)


@pytest.mark.parametrize("method", ["on_start", "on_end", "extract", "record"])
def test_handlers_run_once_if_tracing_fails(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """An exception of a span processor, a propagator or a meter is logged, and the result is that of the handler."""
    calls: list[int] = []

    def fail(*_arguments: object, **_named: object) -> None:
        raise RuntimeError("full")

    def handle(record: ConsumerRecord) -> int:
        calls.append(record.offset)
        if record.offset:
            raise LookupError
        return 7

    broken: dict[str, object] = {
        "extract": telemetry.instrumentation._propagator,
        "record": telemetry.instrumentation._process_duration,
    }
    processor = telemetry.tracers._active_span_processor
    monkeypatch.setattr(broken.get(method, processor), method, fail)
    traced = telemetry.instrumentation.traced(handle)
    assert 7 == traced(record(offset=0))
    with pytest.raises(LookupError):
        traced(record(offset=1))
    assert [0, 1] == calls
    assert 2 == caplog.text.count("could not be traced")


def test_an_object_with_a_coroutine_as_handler(telemetry: Telemetry) -> None:
    """The span of an object whose `__call__` is a coroutine function ends with the coroutine."""

    class Handler:
        async def __call__(self, _record: ConsumerRecord) -> None:
            await asyncio.sleep(0)
            assert not telemetry.spans

    asyncio.run(telemetry.instrumentation.traced(Handler())(record()))
    assert 1 == len(telemetry.spans)


def test_reporter() -> None:
    """Java's metrics are instruments with attributes, of all consumers; a closed consumer has no observations."""
    telemetry = Telemetry()
    one, two = (
        MockConsumer(
            bootstrap_servers="x:1",
            client_id=name,
            metrics_reporters=[OpenTelemetryReporter(telemetry.meters, max_partitions=5)],
        )
        for name in ("one", "two")
    )
    count = "kconsumer.kafka-metrics-count.count"
    assert {"one", "two"} == {at["client-id"] for at, _ in telemetry.points(count)}
    exported = telemetry.metrics()
    assert isinstance(exported[count].data, Gauge)
    total = exported["kconsumer.consumer-metrics.commit-sync-time-ns-total"].data
    assert isinstance(total, Sum)
    assert total.is_monotonic
    assert "kconsumer.consumer-metrics.time-between-poll-avg" not in exported
    one.close()
    assert ["two"] == [at["client-id"] for at, _ in telemetry.points(count)]
    two.close()
    assert {} == telemetry.metrics()


def test_without_the_package() -> None:
    """The error names the extra. `import kconsumer` does not import opentelemetry."""
    program = (
        "import sys, kconsumer\n"
        "assert 'opentelemetry' not in sys.modules\n"
        "sys.modules['opentelemetry'] = None\n"
        "import kconsumer.opentelemetry\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "pip install '.[opentelemetry]'" in done.stderr
