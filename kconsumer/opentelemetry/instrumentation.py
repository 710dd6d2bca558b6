"""Instrumentation: spans and metrics of polls and of the processing of records.

Decides which calls have a span. A poll that returns nothing has none, because an idle consumer would create one per
second. Without an instrumentation, consumers have no code for traces, so it costs nothing then.
"""

from __future__ import annotations

import functools
import inspect
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.propagate import get_global_textmap
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer

from kconsumer._core.lock import Clock
from kconsumer._version import VERSION
from kconsumer.consumer import Consumer
from kconsumer.errors import KafkaError, StateError, WakeupError
from kconsumer.opentelemetry import attributes as names
from kconsumer.records import ConsumerRecords

log = logging.getLogger(__name__)

SCOPE = "kconsumer"
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
METHODS = ("poll", "poll_arrow")
T = TypeVar("T", bound=Callable[..., Any])


@contextmanager
def _errors_logged() -> Iterator[None]:
    """Log what an exporter or a propagator raises: it must not end a poll, nor count as an error of a handler."""
    try:
        yield
    except Exception:
        log.exception("a call could not be traced")


class Instrumentation:
    """Traces consumers, and measures them, by the semantic conventions of OpenTelemetry for messaging.

    - A poll that returns records, or fails, is a span `poll <topic>` (receive). It links to the spans of the producers
      that are in the records' headers.
    - `process(record)` and `traced(handler)` create a span `process <topic>` for each record. It is a child of the
      current span, and links to the producer's. With `continue_trace`, it is a child of the producer's span.
    - Metrics: `messaging.client.consumed.messages`, `messaging.client.operation.duration` of polls with a span,
      `messaging.process.duration`.

    Without a `tracer_provider`, `meter_provider` or `propagator`, the global one is used. With `keys`, spans of records
    have their keys.
    """

    _active: Instrumentation | None = None

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        continue_trace: bool = False,
        keys: bool = False,
    ) -> None:
        self._tracer = get_tracer(SCOPE, VERSION, tracer_provider, SCHEMA)
        meter = get_meter(SCOPE, VERSION, meter_provider, SCHEMA)
        self._consumed = meter.create_counter(
            names.CONSUMED, "{message}", "Number of messages that were delivered to the application."
        )
        bounds = list(names.DURATION_BOUNDS_S)
        self._duration = meter.create_histogram(
            names.DURATION, "s", "Duration of messaging operations.", explicit_bucket_boundaries_advisory=bounds
        )
        self._process_duration = meter.create_histogram(
            names.PROCESS_DURATION, "s", "Duration of processing.", explicit_bucket_boundaries_advisory=bounds
        )
        self._propagator = propagator
        self._continue_trace = continue_trace
        self._keys = keys
        self._clock = Clock()
        self._originals: list[tuple[type, str, Any]] = []

    def __repr__(self) -> str:
        state = "active" if self._originals else "not active"
        return f"<Instrumentation {state}, continue_trace={self._continue_trace}, keys={self._keys}>"

    # --- polls -------------------------------------------------------------------------------------------------

    def instrument(self) -> None:
        """Trace every `Consumer` and `AsyncConsumer` of the process, also those that exist already.

        Does nothing if it was called before. Raises StateError if another Instrumentation traces every consumer.
        """
        from kconsumer.aio import AsyncConsumer  # imports asyncio

        if Instrumentation._active is self:
            return
        if Instrumentation._active is not None:
            raise StateError("another Instrumentation traces every consumer: call its uninstrument() first")
        Instrumentation._active = self
        for cls in (Consumer, AsyncConsumer):
            for name in METHODS:
                original = getattr(cls, name)
                self._originals.append((cls, name, original))
                setattr(cls, name, self._class_method(name, original))

    def uninstrument(self) -> None:
        """Undo `instrument`."""
        while self._originals:
            setattr(*self._originals.pop())
        if Instrumentation._active is self:
            Instrumentation._active = None

    def instrument_consumer(self, consumer: Any) -> None:
        """Trace this consumer only. Its spans are then not those of an Instrumentation that traces every consumer."""
        this = weakref.ref(consumer)  # its own attributes must not keep the consumer alive
        for name in METHODS:
            original = inspect.unwrap(getattr(type(consumer), name))
            setattr(consumer, name, self._traced_poll(original, this))

    def uninstrument_consumer(self, consumer: Any) -> None:
        """Undo `instrument_consumer`."""
        for name in METHODS:
            vars(consumer).pop(name, None)

    def _class_method(self, name: str, original: Any) -> Any:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def method_async(consumer: Any, *args: Any, **kwargs: Any) -> Any:
                return await self._traced_poll(original, lambda: consumer)(*args, **kwargs)

            return method_async

        @functools.wraps(original)
        def method(consumer: Any, *args: Any, **kwargs: Any) -> Any:
            return self._traced_poll(original, lambda: consumer)(*args, **kwargs)

        return method

    def _traced_poll(self, original: Any, this: Callable[[], Any]) -> Any:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def poll_async(*args: Any, **kwargs: Any) -> Any:
                consumer, began = this(), self._began()
                try:
                    records = await original(consumer, *args, **kwargs)
                except KafkaError as error:
                    self._failed(consumer, began, error)
                    raise
                return self._received(consumer, began, records)

            return poll_async

        @functools.wraps(original)
        def poll(*args: Any, **kwargs: Any) -> Any:
            consumer, began = this(), self._began()
            try:
                records = original(consumer, *args, **kwargs)
            except KafkaError as error:
                self._failed(consumer, began, error)
                raise
            return self._received(consumer, began, records)

        return poll

    def _began(self) -> tuple[int, float]:
        """Returns the present time: ns since the epoch, and ms of the monotonic clock."""
        return self._clock.wall_ms() * 1_000_000, self._clock.now()

    def _received(self, consumer: Any, began: tuple[int, float], records: Any) -> Any:
        """Record a successful poll. Returns its records."""
        if not records:
            return records
        try:
            with _errors_logged():  # the records must reach the caller
                self._record_poll(consumer, began, records, None)
        except BaseException:  # Ctrl-C: records that do not reach the caller were not consumed
            consumer._engine.take_back(records)
            raise
        return records

    def _failed(self, consumer: Any, began: tuple[int, float], error: KafkaError) -> None:
        """Record a poll that has failed."""
        if not isinstance(error, WakeupError):
            with _errors_logged():
                self._record_poll(consumer, began, ConsumerRecords.EMPTY, error)

    def _record_poll(self, consumer: Any, began: tuple[int, float], records: Any, error: KafkaError | None) -> None:
        start_ns, start_ms = began
        took_ms = self._clock.now() - start_ms
        client = {**names.POLL, **names.of_client(consumer)}
        at = names.of_partitions(records.next_offsets())
        failed = {} if error is None else {"error.type": type(error).__qualname__}
        topic = at.get(names.TOPIC)
        span = self._tracer.start_span(
            "poll" if topic is None else f"poll {topic}",
            kind=SpanKind.CLIENT,
            attributes={**client, **at, **failed, "messaging.batch.message_count": len(records)},
            links=names.links(records, self._textmap) if isinstance(records, ConsumerRecords) else (),
            start_time=start_ns,
        )
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(start_ns + int(took_ms * 1e6))
        measured = {key: value for key, value in client.items() if key != "messaging.client.id"}
        self._duration.record(took_ms / 1000, {**measured, **failed, **({} if topic is None else {names.TOPIC: topic})})
        counts = (
            Counter(record.topic for record in records)
            if isinstance(records, ConsumerRecords) and topic is None
            else {topic: len(records)}
        )
        for of_topic, count in counts.items():
            if count:
                self._consumed.add(count, {**measured, **({} if of_topic is None else {names.TOPIC: of_topic})})

    # --- processing --------------------------------------------------------------------------------------------

    @contextmanager
    def process(self, record: names.Record, consumer: object = None) -> Iterator[Span]:
        """A context manager for the processing of a record: a span, which is the current one inside.

        With the `consumer`, the span has its group and its client id. An exception of the block is recorded.
        """
        client = {**names.PROCESS, **names.of_client(consumer)}
        measured = {key: value for key, value in client.items() if key != "messaging.client.id"}
        measured[names.TOPIC] = record.topic
        began, tracing = self._clock.now(), ExitStack()
        span: Span = INVALID_SPAN
        with _errors_logged():
            span = tracing.enter_context(self._process_span(record, client))
        failure: BaseException | None = None
        try:
            yield span
        except BaseException as error:
            failure = error
            raise
        finally:
            with _errors_logged():
                if isinstance(failure, Exception):
                    measured["error.type"] = type(failure).__qualname__
                    span.set_attribute("error.type", type(failure).__qualname__)
                self._process_duration.record((self._clock.now() - began) / 1000, measured)
            with _errors_logged():
                if failure is None:
                    tracing.close()
                else:
                    tracing.__exit__(type(failure), failure, failure.__traceback__)

    def _process_span(self, record: names.Record, client: names.Attributes) -> AbstractContextManager[Span]:
        """Returns a context manager that starts the span of a record, makes it the current one, and ends it."""
        producer = names.producer_context(record, self._textmap)
        return self._tracer.start_as_current_span(
            f"process {record.topic}",
            context=producer if self._continue_trace else None,
            kind=SpanKind.CONSUMER,
            attributes={**client, **names.of_record(record, keys=self._keys)},
            links=() if producer is None else [names.link(producer, {})],
        )

    def traced(self, handler: T, consumer: object = None) -> T:
        """Returns a function that calls `handler(record, …)` inside `process(record)`. It may be a coroutine function.

        If it gets a list of records, there is a span for each, and all have the exception of the handler. For
        `kconsumer.parallel.process`, and for handlers of your own.
        """
        wrapped: Any
        if any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):

            @functools.wraps(handler)
            async def handle_async(record: Any, *args: Any, **kwargs: Any) -> Any:
                with self._processing(record, consumer):
                    return await handler(record, *args, **kwargs)

            wrapped = handle_async
        else:

            @functools.wraps(handler)
            def handle(record: Any, *args: Any, **kwargs: Any) -> Any:
                with self._processing(record, consumer):
                    return handler(record, *args, **kwargs)

            wrapped = handle
        traced: T = wrapped
        return traced

    def _processing(self, records: Any, consumer: object) -> ExitStack:
        """A context manager for the processing of a record, or of a list of them."""
        with ExitStack() as stack:
            for record in records if isinstance(records, list) else [records]:
                stack.enter_context(self.process(record, consumer))
            return stack.pop_all()

    @property
    def _textmap(self) -> TextMapPropagator:
        return self._propagator or get_global_textmap()
