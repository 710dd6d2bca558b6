"""Values with schemas of a registry into Python objects: what confluent-kafka writes, with its registry for tests."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaRegistryClient, SchemaRegistryError
from google.protobuf import descriptor_pb2, descriptor_pool
from jsonschema import ValidationError

from kconsumer.deserializers import SerializationContext
from kconsumer.errors import ConfigError
from kconsumer.formats.framing import UnknownSchemaError
from kconsumer.registry import (
    AvroColumns,
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufColumns,
    ProtobufDeserializer,
    Schemas,
)
from kconsumer.registry.clients import resolved
from kconsumer.registry.protobuf import known_file
from support.registry import values

CONTEXT = SerializationContext("orders", "value", [])


@pytest.fixture
def client() -> Iterator[Any]:
    """A registry in memory."""
    with SchemaRegistryClient.new_client({"url": "mock://"}) as found:
        yield found


def test_avro_with_the_schema_of_the_writer(client: Any) -> None:
    """Without a reader's schema, each value has the fields of the schema that it was written with."""
    deserializer = AvroDeserializer(client)
    old = values.avro(client, values.OLD, {"number": 1})
    new = values.avro(client, values.NEW, {"number": 2, "text": "b"})
    assert {"number": 1} == deserializer(old, CONTEXT)
    assert {"number": 2, "text": "b", "time": None} == deserializer(new, CONTEXT)


def test_avro_with_the_schema_of_the_reader(client: Any) -> None:
    """Older and newer values are converted to the reader's schema; `from_dict` receives the result."""
    old = values.avro(client, values.OLD, {"number": 1})
    new = values.avro(client, values.NEW, {"number": 2, "text": "b"})
    for schema in (values.NEW, json.loads(values.NEW), Schema(values.NEW, "AVRO")):
        deserializer = AvroDeserializer(client, schema, from_dict=lambda row: (row["number"], row["text"]))
        assert [(1, "none"), (2, "b")] == [deserializer(data, CONTEXT) for data in (old, new)]
    assert {"number": 2} == AvroDeserializer(client, values.OLD.replace("int", "long"))(new, CONTEXT)


def test_avro_schemas_that_refer_to_others(client: Any) -> None:
    """A schema is completed with those that it refers to, where their names are used first."""
    customer = {"home": {"city": "A"}, "work": {"city": "B"}}
    data = values.avro(client, values.customer_schema(client), customer)
    assert customer == AvroDeserializer(client)(data, CONTEXT)
    assert customer == AvroDeserializer(client, values.customer_schema(client))(data, CONTEXT)


@pytest.mark.parametrize("kind", ['"bytes"', '{"type": "bytes"}'])
def test_avro_bytes_without_their_length(client: Any, kind: str) -> None:
    """Confluent's serializers write bytes without the length that Avro has before them."""
    for value in (b"", b"\4ab", b"\1" * 300):
        data = values.avro(client, kind, value)
        assert data[5:] == value == AvroDeserializer(client)(data, CONTEXT)
        assert [value] == AvroColumns(client, kind).decode(pyarrow.array([data])).column.to_pylist()
    inner = json.dumps({"type": "array", "items": "bytes"})
    assert [b"a"] == AvroDeserializer(client)(values.avro(client, inner, [b"a"]), CONTEXT)


class Counting:
    """A client that counts its requests."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.requests = 0

    def get_schema(self, schema_id: int) -> Any:
        self.requests += 1
        return self._client.get_schema(schema_id)


def test_a_schema_is_requested_once(client: Any) -> None:
    """Deserializers with the same `Schemas` share what has been loaded."""
    data = values.avro(client, values.OLD, {"number": 1})
    counting = Counting(client)
    schemas = Schemas(counting)
    for deserializer in (AvroDeserializer(schemas), AvroDeserializer(schemas, values.NEW)):
        for _ in range(3):
            deserializer(data, CONTEXT)
    assert 1 == counting.requests


def test_a_client_with_fewer_parameters() -> None:
    """A client whose methods take only what identifies a schema, as confluent-kafka's for tests in 2.10, is enough."""
    order = SimpleNamespace(schema=Schema(values.ORDER_JSON, "JSON"))
    schema = Schema('{"items": {"$ref": "o"}}', "JSON", [values.SchemaReference("o", "order", 1)])
    plain = SimpleNamespace(get_schema=lambda number: schema, get_version=lambda subject, version: order)
    with pytest.raises(ValidationError, match="'number' is a required property"):
        JsonSchemaDeserializer(plain)(b"\0\0\0\0\1[{}]", CONTEXT)
    with pytest.raises(ConfigError, match="is of the type JSON, not PROTOBUF"):
        ProtobufDeserializer(plain)(b"\0\0\0\0\1\0", CONTEXT)


def test_the_last_header_counts(client: Any) -> None:
    """A record that was forwarded with its old headers has the id of its value in the last one, as in Java."""
    _, old = values.in_header(client, values.OLD, {"number": 1})
    data, new = values.in_header(client, values.NEW, {"number": 2, "text": "b"})
    assert "b" == AvroDeserializer(client)(data, SerializationContext("headers", "value", [*old, *new]))["text"]


def test_a_null_header_is_none(client: Any) -> None:
    """With a null in the header, the id is before the value."""
    data = values.avro(client, values.OLD, {"number": 1})
    headers = [("__value_schema_id", b"\1" + bytes(16)), ("__value_schema_id", None)]
    assert {"number": 1} == AvroDeserializer(client)(data, SerializationContext("orders", "value", headers))


def test_protobuf_with_classes_of_the_registry(client: Any) -> None:
    """Without a class, messages have the type at the indexes, also a nested one."""
    order, line = values.message_types()
    deserializer = ProtobufDeserializer(client)
    found: Any = deserializer(values.protobuf(client, order(number=7)), CONTEXT)
    assert ("shop.Order", 7) == (found.DESCRIPTOR.full_name, found.number)
    message = line(text="x")
    message.time.FromSeconds(12)
    found = deserializer(values.protobuf(client, message), CONTEXT)
    assert ("shop.Envelope.Line", "x", 12) == (found.DESCRIPTOR.full_name, found.text, found.time.ToSeconds())


def test_protobuf_schemas_as_text_need_a_class(client: Any) -> None:
    """A registry that returns the source of a schema cannot replace the class."""
    number = client.register_schema("p", Schema('syntax = "proto3"; message A {}', "PROTOBUF"))
    with pytest.raises(ConfigError, match="pass the generated class as message_type"):
        ProtobufDeserializer(client)(b"\0" + number.to_bytes(4, "big") + b"\0", CONTEXT)


class Fixed:
    """A client whose schemas are given, and which counts requests."""

    def __init__(self, schema: Schema | None, **referred: Schema) -> None:
        self.requests = 0
        self._schema = schema
        self._referred = referred

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Any:
        self.requests += 1
        if self._schema is None:
            raise SchemaRegistryError(404, 40403, "not found")
        return self._schema

    def get_version(self, subject: str, version: int, deleted: bool = False, fmt: str | None = None) -> Any:
        return SimpleNamespace(schema=self._referred[subject])


@pytest.mark.parametrize(
    "error", [ValueError("no JSON"), SchemaRegistryError(404, -1, "<html>"), SchemaRegistryError(404, None, "no route")]
)
def test_responses_that_are_not_of_a_registry(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a proxy says nothing about the id: the error is not that of an invalid value, and is not remembered."""
    client, asked = Fixed(None), []

    def get_schema(schema_id: int) -> Any:
        asked.append(schema_id)
        raise error

    monkeypatch.setattr(client, "get_schema", get_schema)
    schemas = Schemas(client)
    for _ in range(2):
        with pytest.raises((ConnectionError, SchemaRegistryError)):
            schemas.get(1)
    assert [1, 1] == asked


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("google/protobuf/field_mask.proto", "google.protobuf.FieldMask"),
        ("google/protobuf/type.proto", "google.protobuf.Type"),
        ("google/protobuf/api.proto", "google.protobuf.Api"),
        ("google/protobuf/source_context.proto", "google.protobuf.SourceContext"),
        ("google/protobuf/compiler/plugin.proto", "google.protobuf.compiler.Version"),
        ("google/protobuf/any.proto", "google.protobuf.Any"),
        ("confluent/meta.proto", "confluent.Meta"),
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
        ("google/type/money.proto", "google.type.Money"),
        ("google/type/datetime.proto", "google.type.DateTime"),
    ],
)
def test_imports_without_a_reference(name: str, kind: str) -> None:
    """The files that Confluent's serializers know by themselves may be imported without a reference."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=[name], syntax="proto3")
    field = file.message_type.add(name="A").field.add(name="part", number=1, label=1, type=11, type_name=f".{kind}")
    client = Fixed(Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF"))
    found: Any = ProtobufDeserializer(client)(b"\0\0\0\0\1\0\n\0", CONTEXT)
    assert (True, kind) == (found.HasField(field.name), found.part.DESCRIPTOR.full_name)


def test_an_import_with_an_older_confluent_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2.14 has the file in a package of another name, and registers it under that name."""
    package, name = "confluent_kafka.schema_registry.confluent", "confluent/type/decimal.proto"
    older = SimpleNamespace(DESCRIPTOR=SimpleNamespace(serialized_pb=known_file(name)))
    monkeypatch.setitem(sys.modules, f"{package}.type.decimal_pb2", None)
    monkeypatch.setitem(sys.modules, f"{package}.types.decimal_pb2", older)
    monkeypatch.setattr(descriptor_pool, "Default", descriptor_pool.DescriptorPool)
    test_imports_without_a_reference(name, "confluent.type.Decimal")


@pytest.mark.parametrize(("imports", "public"), [(1, 1), (2, 1), (1, 0)])
def test_a_file_that_only_imports_another_one(imports: int, public: int) -> None:
    """A file with nothing but a public import has the messages of the imported file, as in Java."""
    names = ["google/protobuf/timestamp.proto", "google/protobuf/any.proto"][:imports]
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=names, public_dependency=[*range(public)])
    read = ProtobufDeserializer(Fixed(Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")))
    if imports > public:
        with pytest.raises(ValueError, match=r"no message at \[0\]"):
            read(b"\0\0\0\0\1\0\x08\7", CONTEXT)
    else:
        found: Any = read(b"\0\0\0\0\1\0\x08\7", CONTEXT)
        assert ("google.protobuf.Timestamp", 7) == (found.DESCRIPTOR.full_name, found.seconds)


def test_imports_of_other_files() -> None:
    """A file that is neither a reference nor known is named in the error, and no module of its name is imported."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["google/type/../os.proto"])
    client = Fixed(Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF"))
    with pytest.raises(ConfigError, match=r"imports google/type/\.\./os\.proto, which is neither a reference nor"):
        ProtobufDeserializer(client)(b"\0\0\0\0\1\0", CONTEXT)


@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        (b"\1\0", "has -1 message indexes"),  # of a count of 1 that is not zigzag-encoded
        (b"\2\1", r"indexes \[-1\] are not all positive"),
        (b"\xff\xff\xff\xff\x0f\0", "has -2147483648 message indexes"),
        (b"\xfe\xff\xff\xff\x0f\0", "has 2147483647 message indexes"),
        (b"\2\xfe\xff\xff\xff\x0f", r"no message at \[2147483647\]"),
        (b"\2\xfe\xff\xff\xff\xff\x0f", "the frame has no message indexes"),
    ],
)
def test_message_indexes_that_are_not_possible(client: Any, indexes: bytes, message: str) -> None:
    """Negative and huge numbers and indexes are refused, with a class and with the registry."""
    order, _ = values.message_types()
    data = values.protobuf(client, order(number=7))
    with pytest.raises(ValueError, match=message):
        ProtobufDeserializer(client)(data[:5] + indexes, CONTEXT)


def test_messages_without_a_required_field() -> None:
    """A message of proto2 without a required field is refused, as an object and in a column."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto")
    file.message_type.add(name="A").field.add(name="needed", number=1, label=2, type=5)
    read = ProtobufDeserializer(Fixed(Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")))
    found: Any = read(b"\0\0\0\0\1\0\x08\7", CONTEXT)
    assert 7 == found.needed
    with pytest.raises(ValueError, match="required fields are missing: needed"):
        read(b"\0\0\0\0\1\0\x10\7", CONTEXT)
    column = ProtobufColumns(type(found)).decode(pyarrow.array([b"\0\0\0\0\1\0\x08\7", b"\0\0\0\0\1\0"]))
    assert ([{"needed": 7}, None], [1]) == (column.column.to_pylist(), [*column.bad])


def test_messages_of_a_class_of_another_program() -> None:
    """A class needs no methods but `FromString`."""
    assert b"a" == ProtobufDeserializer(message_type=SimpleNamespace(FromString=bytes))(b"\0\0\0\0\1\0a", CONTEXT)


def test_an_address_has_one_client_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deserializers with the same address or options share what is loaded; others, and forked children, do not."""
    options = {"url": "mock://shared", "basic.auth.user.info": "a:b"}
    assert Schemas.of("mock://shared") is Schemas.of({"url": "mock://shared"})
    assert Schemas.of(options) is Schemas.of(dict(options))
    assert Schemas.of(options) is not Schemas.of("mock://shared")
    before = Schemas.of(options)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert Schemas.of(options) is not before


def test_secrets_of_a_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Secrets may refer to the environment or a file; numbers may be text; the error hides neither's name."""
    monkeypatch.setenv("REGISTRY", "mock://secret")
    (tmp_path / "login").write_text("key:secret\n")
    options = {"url": "env:REGISTRY", "basic.auth.user.info": f"file:{tmp_path}/login", "timeout": "1.5"}
    assert {"url": "mock://secret", "basic.auth.user.info": "key:secret", "timeout": 1.5} == resolved(options)
    assert Schemas.of(options) is Schemas.of({**options, "url": "mock://secret", "timeout": 1.5})
    for wrong, message in (({"url": "env:NONE"}, "url of a registry: .* no variable NONE"), ({"timeout": "x"}, "'x'")):
        with pytest.raises(ConfigError, match=message):
            AvroDeserializer({**options, **wrong})


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", ValueError, "has no Confluent header with the id of a schema; it begins with nothing"),
        (b"\0\0\0", ValueError, "has no Confluent header"),
        (b'{"number": 1}', ValueError, "it begins with 7b 22 6e 75 6d"),
        (b"\0\0\0\0\x63\2", UnknownSchemaError, "the registry has no schema with the id 99"),
        (bytes(8) + b"\x63\2", UnknownSchemaError, "the id 0 .*Apicurio's serializers write ids of 8 bytes"),
        (b"\1" + bytes(16) + b"\2", UnknownSchemaError, "the id 00000000-0000-0000-0000-000000000000"),
        (b"\0\0\0\0\1", ValueError, "the bytes end before the value"),
        (b"\0\0\0\0\1\2\2", ValueError, "1 bytes follow the value"),
    ],
)
def test_values_that_are_not_framed(client: Any, data: bytes, error: type[Exception], message: str) -> None:
    """The error says what is missing: the frame, the schema, or bytes."""
    values.avro(client, values.OLD, {"number": 1})
    with pytest.raises(error, match=message):
        AvroDeserializer(client)(data, CONTEXT)


def test_json_after_an_id_of_8_bytes(client: Any) -> None:
    """The error of JSON that cannot be parsed names the id, and Apicurio if that is 0."""
    read = JsonSchemaDeserializer(client, validate=False)
    with pytest.raises(ValueError, match=r"after the schema id 0 .*Apicurio.* are no JSON"):
        read(bytes(8) + b'\7{"a": 1}', CONTEXT)
    with pytest.raises(ValueError, match="after the schema id 7 are no JSON"):
        read(b"\0\0\0\0\7{", CONTEXT)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: AvroDeserializer(7), "registry must be a SchemaRegistryClient of confluent-kafka"),
        (lambda: AvroDeserializer(AsyncSchemaRegistryClient({"url": "mock://"})), "registry must be a SchemaRegistry"),
        (lambda: AvroDeserializer({}), "not the options of a SchemaRegistryClient: Missing required"),
        (lambda: AvroDeserializer("mock://", '{"type": "recrd"}'), "not an Avro schema"),
        (lambda: AvroDeserializer("mock://", "record"), "an Avro schema must be JSON"),
        (lambda: ProtobufDeserializer(), "needs a message_type, or a registry"),
        (lambda: ProtobufDeserializer(message_type=int), "message_type must be a class of messages"),
    ],
)
def test_wrong_arguments(create: Any, message: str) -> None:
    """Wrong arguments raise a ConfigError before anything is read."""
    with pytest.raises(ConfigError, match=message):
        create()


@pytest.mark.parametrize(
    ("create", "module"),
    [
        (lambda: AvroDeserializer("http://localhost:1"), "fastavro"),
        (lambda: JsonSchemaDeserializer("mock://"), "jsonschema"),
        (lambda: AvroDeserializer("http://localhost:2"), "confluent_kafka.schema_registry"),
    ],
)
def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch, create: Any, module: str) -> None:
    """The error names the module and the extra, and how to install it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"{module}.* is not installed: .*pip install '.\[registry\]' in a checkout"):
        create()
