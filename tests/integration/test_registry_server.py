"""A real schema registry and a real broker: what confluent-kafka's serializers write, as objects and as columns."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.serialization import SerializationError

from kconsumer import Consumer, read_topic
from kconsumer.errors import RecordDeserializationError
from kconsumer.ranges import scan_topic
from kconsumer.registry import (
    AvroColumns,
    AvroDeserializer,
    JsonColumns,
    JsonSchemaDeserializer,
    ProtobufColumns,
    ProtobufDeserializer,
    decode,
)
from support.brokers.kafka import Kafka
from support.registry import values
from support.registry.apicurio import apicurio
from support.registry.server import registry_server

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the registry."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with apicurio(port, Path(tmp_path_factory.mktemp("registry")) / "log") as address:
        yield address


@pytest.fixture(scope="module")
def client(registry: str) -> Iterator[Any]:
    """confluent-kafka's client of the registry."""
    with SchemaRegistryClient({"url": registry}) as found:
        yield found


def read_values(kafka: Kafka, topic: str, deserializer: Any, count: int) -> list[Any]:
    """Read the first values of a topic."""
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
        consumer_timeout_ms=20_000,
    ) as consumer:
        consumer.assign([(topic, 0)])
        return [record.value for _, record in zip(range(count), consumer, strict=False)]


def test_avro(kafka: Kafka, topic_name: str, registry: str, client: Any) -> None:
    """Two versions of a schema are read by the reader's schema: objects, columns of polls, and of a whole topic."""
    old = values.avro(client, values.OLD, {"number": 1}, topic_name)
    new = values.avro(client, values.NEW, {"number": 2, "text": "b"}, topic_name)
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [old, new, None])
    expected = [{"number": 1, "text": "none", "time": None}, {"number": 2, "text": "b", "time": None}, None]
    assert [{"number": 1}, expected[1], None] == read_values(kafka, topic_name, AvroDeserializer(registry), 3)
    assert expected == read_values(kafka, topic_name, AvroDeserializer({"url": registry}, values.NEW), 3)
    column = AvroColumns(registry, subject=f"{topic_name}-value")
    table = decode(read_topic(topic_name, bootstrap_servers=kafka.bootstrap_servers, progress=False), value=column)
    assert expected == table["value"].to_pylist()
    with scan_topic(topic_name, bootstrap_servers=kafka.bootstrap_servers, columns=["value"]) as reader:
        assert expected == [row for batch in reader for row in decode(batch, value=column)["value"].to_pylist()]
    with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap_servers, group_id="columns", auto_offset_reset="earliest"
    ) as consumer:
        rows: list[Any] = []
        while len(rows) < 3:
            rows += consumer.poll_arrow(1.0, decode=column).to_pyarrow().column("value").to_pylist()
    assert expected == rows


def test_avro_schemas_that_refer_to_others(kafka: Kafka, topic_name: str, client: Any) -> None:
    """References are requested from the registry."""
    customer = {"home": {"city": "A"}, "work": {"city": "B"}}
    data = values.avro(client, values.customer_schema(client), customer, topic_name)
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [data])
    assert [customer] == read_values(kafka, topic_name, AvroDeserializer(client), 1)
    table = read_topic(topic_name, bootstrap_servers=kafka.bootstrap_servers, progress=False)
    assert [customer] == decode(table, value=AvroColumns(client, subject=f"{topic_name}-value"))["value"].to_pylist()


def test_json(kafka: Kafka, topic_name: str, client: Any) -> None:
    """JSON is validated by the schema of the registry."""
    good = values.json_value(client, {"number": 1}, topic_name)
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [good, good[:5] + b"{}"])
    deserializer = JsonSchemaDeserializer(client)
    assert [{"number": 1}] == read_values(kafka, topic_name, deserializer, 1)
    with pytest.raises(RecordDeserializationError, match="'number' is a required property"):
        read_values(kafka, topic_name, deserializer, 2)
    table = read_topic(topic_name, bootstrap_servers=kafka.bootstrap_servers, progress=False)
    assert [{"number": 1}, {"number": None}] == decode(table, value=JsonColumns("number long"))["value"].to_pylist()


def test_protobuf(kafka: Kafka, topic_name: str, client: Any) -> None:
    """Messages of nested types are parsed by their class."""
    _, line = values.message_types()
    message = line(text="x")
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [values.protobuf(client, message, topic_name)])
    assert [message] == read_values(kafka, topic_name, ProtobufDeserializer(message_type=line), 1)
    table = read_topic(topic_name, bootstrap_servers=kafka.bootstrap_servers, progress=False)
    assert [{"text": "x", "time": None}] == decode(table, value=ProtobufColumns(line))["value"].to_pylist()


def poll_columns(kafka: Kafka, topic: str, columns: list[str], decoder: Any, count: int) -> list[Any]:
    """Returns the rows of the first records of a topic, with these columns decoded."""
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        rows: list[Any] = []
        while len(rows) < count:
            batch = consumer.poll_arrow(1.0, columns=columns, decode=dict.fromkeys(columns, decoder))
            rows += batch.to_pyarrow().to_pylist()
        return rows


class Format(NamedTuple):
    """A format of values, with one value."""

    schema: Any  # as `values.in_header` takes it
    value: Any
    framed: bytes  # the value, with the id before it
    deserializer: Any
    column: Any
    found: Any  # the object that is read
    row: dict[str, Any]


def format_of(kind: str, client: Any, topic: str) -> Format:
    """Returns a format. Registers its schema for the values of the topic."""
    order = {"number": 1}
    if kind == "avro":
        framed, row = values.avro(client, values.OLD, order, topic), {"number": 1, "text": "none", "time": None}
        reader = AvroDeserializer(client, values.NEW)
        return Format(values.OLD, order, framed, reader, AvroColumns(client, values.NEW), row, row)
    if kind == "json":
        framed, column = values.json_value(client, order, topic), JsonColumns("number long")
        return Format(values.ORDER_JSON, order, framed, JsonSchemaDeserializer(client), column, order, order)
    _, line = values.message_types()
    message, framed = line(text="x"), values.protobuf(client, line(text="x"), topic)
    deserializer = ProtobufDeserializer(message_type=line)
    return Format(line, message, framed, deserializer, ProtobufColumns(line), message, {"text": "x", "time": None})


def check_ids_in_headers(kafka: Kafka, topic: str, client: Any, kind: str, **options: Any) -> None:
    """Write records with ids in headers and before values. Check what objects and columns are read from them.

    `options` are those of `values.in_header`.
    """
    form = format_of(kind, client, topic)
    key, of_key = values.in_header(client, form.schema, form.value, "key", topic, **options)
    data, of_value = values.in_header(client, form.schema, form.value, "value", topic, **options)
    assert (["__key_schema_id"], ["__value_schema_id"]) == ([n for n, _ in of_key], [n for n, _ in of_value])
    kafka.create_topic(topic)
    kafka.produce(topic, [data, None], keys=[key, key], headers=[("other", None), *of_key, *of_value])
    kafka.produce(topic, [form.framed], keys=[form.framed])
    kafka.produce(topic, [data], keys=[form.framed], headers=of_value)
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        key_deserializer=form.deserializer,
        value_deserializer=form.deserializer,
        consumer_timeout_ms=20_000,
    ) as consumer:
        consumer.assign([(topic, 0)])
        objects = [(record.key, record.value) for _, record in zip(range(4), consumer, strict=False)]
    assert [(form.found, found) for found in (form.found, None, form.found, form.found)] == objects
    rows = [{"key": form.row, "value": row} for row in (form.row, None, form.row, form.row)]
    assert rows == poll_columns(kafka, topic, ["key", "value"], form.column, len(rows))
    table = read_topic(topic, bootstrap_servers=kafka.bootstrap_servers, progress=False)
    assert rows == decode(table, key=form.column, value=form.column).select(["key", "value"]).to_pylist()


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_ids_in_headers(kafka: Kafka, topic_name: str, client: Any, kind: str) -> None:
    """Numbers of schemas are found in the headers of keys and of values, among records with the id before the value."""
    check_ids_in_headers(kafka, topic_name, client, kind, serializer=values.number_in_header)


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_guids_in_headers(kafka: Kafka, topic_name: str, kind: str) -> None:
    """The same with GUIDs, as confluent-kafka's serializers write them, and a registry that has GUIDs."""
    with registry_server() as address, SchemaRegistryClient({"url": address}) as client:
        check_ids_in_headers(kafka, topic_name, client, kind)


def test_guids_that_the_server_does_not_have(kafka: Kafka, topic_name: str, client: Any) -> None:
    """This server has no GUIDs: confluent-kafka cannot write them. The error for a GUID of another registry names the
    missing resource, which says nothing about the record.
    """
    with pytest.raises(SerializationError, match="GUID is not set"):
        values.in_header(client, values.OLD, {"number": 1}, topic=topic_name)
    with registry_server() as address, SchemaRegistryClient({"url": address}) as other:
        data, headers = values.in_header(other, values.OLD, {"number": 1}, topic=topic_name)
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [data], headers=headers)
    missing = r"Could not find resource for full path: \S+/schemas/guids/[0-9a-f]+-"
    with pytest.raises(RecordDeserializationError, match=missing):
        read_values(kafka, topic_name, AvroDeserializer(client), 1)
    with pytest.raises(SchemaRegistryError, match=missing):
        poll_columns(kafka, topic_name, ["value"], AvroColumns(client, values.OLD), 1)


def test_ids_that_the_registry_does_not_have(kafka: Kafka, topic_name: str, client: Any) -> None:
    """The response of the server is part of the error."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"\0\0\x0f\xff\xff\2"])
    with pytest.raises(RecordDeserializationError, match="the registry has no schema with the id 1048575"):
        read_values(kafka, topic_name, AvroDeserializer(client), 1)
