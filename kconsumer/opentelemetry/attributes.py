"""The attributes and names of spans and metrics, by the semantic conventions for messaging (1.44) and for Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import Link, get_current_span

SYSTEM = {"messaging.system": "kafka"}
POLL = {**SYSTEM, "messaging.operation.name": "poll", "messaging.operation.type": "receive"}
PROCESS = {**SYSTEM, "messaging.operation.name": "process", "messaging.operation.type": "process"}
TOPIC, PARTITION, OFFSET = "messaging.destination.name", "messaging.destination.partition.id", "messaging.kafka.offset"
CONSUMED, DURATION, PROCESS_DURATION = (
    "messaging.client.consumed.messages",
    "messaging.client.operation.duration",
    "messaging.process.duration",
)
DURATION_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
MAX_LINKS = 128
"""The links of one span. The SDK keeps as many by default."""

Attributes = dict[str, str | int | bool]
Headers = tuple[tuple[str, bytes | None], ...]


class Record(Protocol):
    """What is read of a record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Headers: ...


class HeaderGetter(Getter[Headers]):
    """Reads what a producer has written into the headers of a record."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """Returns the values of a header, or None if the record does not have it."""
        wanted = key.lower()
        values = [value for name, value in carrier if name.lower() == wanted and value is not None]
        return [value.decode("utf-8", "replace") for value in values] or None

    def keys(self, carrier: Headers) -> list[str]:
        """Returns the names of all headers."""
        return [name for name, _ in carrier]


HEADER_GETTER = HeaderGetter()


def producer_context(record: Record, propagator: TextMapPropagator) -> Context | None:
    """Returns the context that the producer has written into the headers, or None if there is none."""
    if not record.headers:
        return None
    context = propagator.extract(record.headers, context=Context(), getter=HEADER_GETTER)
    return context if get_current_span(context).get_span_context().is_valid else None


def link(context: Context, attributes: Mapping[str, str | int]) -> Link:
    return Link(get_current_span(context).get_span_context(), attributes)


def links(records: Iterable[Record], propagator: TextMapPropagator) -> list[Link]:
    """Returns links to the producers' spans of these records, at most MAX_LINKS."""
    found: list[Link] = []
    for record in records:
        context = producer_context(record, propagator)
        if context is not None:
            at: dict[str, str | int] = {TOPIC: record.topic, PARTITION: str(record.partition), OFFSET: record.offset}
            found.append(link(context, at))
            if len(found) == MAX_LINKS:
                break
    return found


def of_client(consumer: object) -> Attributes:
    """Returns the attributes of a consumer. None of them if its configuration is not known."""
    config = getattr(consumer, "_config", None)
    found: Attributes = {}
    if config is not None:
        if config.group_id:
            found["messaging.consumer.group.name"] = config.group_id
        found["messaging.client.id"] = config.client_id
    return found


def of_partitions(partitions: Iterable[tuple[str, int]]) -> Attributes:
    """Returns the attributes of the topic and partition of a batch, if it has only one of them."""
    every = list(partitions)
    topics = {topic for topic, _ in every}
    found: Attributes = {TOPIC: next(iter(topics))} if len(topics) == 1 else {}
    if len(every) == 1:
        found[PARTITION] = str(every[0][1])
    return found


def of_record(record: Record, *, keys: bool) -> Attributes:
    """Returns the attributes of a record. The key is one of them only with `keys`, and if it is text."""
    found: Attributes = {TOPIC: record.topic, PARTITION: str(record.partition), OFFSET: record.offset}
    if record.value is None:
        found["messaging.kafka.message.tombstone"] = True
    key = record.key
    if keys and isinstance(key, bytes) and key.isascii():
        key = key.decode("ascii")
    if keys and isinstance(key, str):
        found["messaging.kafka.message.key"] = key
    return found
