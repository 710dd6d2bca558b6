"""Values as the serializers of confluent-kafka write them, with two versions of one Avro schema."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from kconsumer.formats.framing import HEADERS

Field = descriptor_pb2.FieldDescriptorProto

OLD = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]})
NEW = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "text", "type": "string", "default": "none"},
            {"name": "time", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        ],
    }
)
ADDRESS = json.dumps(
    {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
)
CUSTOMER = json.dumps(
    {
        "type": "record",
        "name": "Customer",
        "namespace": "shop",
        "fields": [{"name": "home", "type": "Address"}, {"name": "work", "type": ["null", "shop.Address"]}],
    }
)
ORDER_JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["number"],
    }
)
#: Without a compatibility check, so that a test may register any schema.
CONFIGURATION = {"auto.register.schemas": True}


def avro(client: Any, schema: str | Schema, value: Any, topic: str = "orders", **configuration: Any) -> bytes:
    """Returns a value as confluent-kafka's AvroSerializer writes it."""
    serializer = AvroSerializer(client, schema, conf={**CONFIGURATION, **configuration})
    data: bytes = serializer(value, SerializationContext(topic, MessageField.VALUE))
    return data


def json_value(client: Any, value: Any, topic: str = "orders-json") -> bytes:
    """Returns a value as confluent-kafka's JSONSerializer writes it."""
    data: bytes = JSONSerializer(ORDER_JSON, client)(value, SerializationContext(topic, MessageField.VALUE))
    return data


def number_in_header(payload: bytes, context: Any, schema_id: Any) -> bytes:
    """Write the number of a schema into a header, for registries without GUIDs. Returns the value without the id."""
    context.headers.append((HEADERS[context.field.value], schema_id.id_to_bytes()))
    return payload


def in_header(
    client: Any,
    schema: Any,
    value: Any,
    field: str = "value",
    topic: str = "headers",
    serializer: Any = header_schema_id_serializer,
) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Returns a value and the headers of its record, as a serializer writes them that puts the id into a header.

    `schema` is an Avro schema, `ORDER_JSON`, or the class of the message. The default of `serializer`, which writes the
    id, is confluent-kafka's, for GUIDs.
    """
    configuration = {"schema.id.serializer": serializer}
    if not isinstance(schema, str):
        serialize: Any = ProtobufSerializer(schema, client, {"use.deprecated.format": False, **configuration})
    elif schema == ORDER_JSON:
        serialize = JSONSerializer(schema, client, conf=configuration)
    else:
        serialize = AvroSerializer(client, schema, conf={**CONFIGURATION, **configuration})
    headers: list[Any] = []
    place = MessageField.KEY if field == "key" else MessageField.VALUE
    data: bytes = serialize(value, SerializationContext(topic, place, headers))
    return data, headers


def customer_schema(client: Any) -> Schema:
    """Register the schema of an address. Returns a schema of customers, which refers to it."""
    client.register_schema("address", Schema(ADDRESS, "AVRO"))
    return Schema(CUSTOMER, "AVRO", [SchemaReference("shop.Address", "address", 1)])


def message_types() -> tuple[Any, Any]:
    """Returns two classes of messages, of which the second is nested in another type.

    They are `shop.Order` with a number, and `shop.Envelope.Line` with a text and a time.
    """
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="number", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    line = file.message_type.add(name="Envelope").nested_type.add(name="Line")
    line.field.add(name="text", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    time = {"type": Field.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp", "label": Field.LABEL_OPTIONAL}
    line.field.add(name="time", number=2, **time)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    names = ("shop.Order", "shop.Envelope.Line")
    first, second = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return first, second


def protobuf(client: Any, message: Any, topic: str = "orders-protobuf") -> bytes:
    """Returns a message as confluent-kafka's ProtobufSerializer writes it."""
    serializer = ProtobufSerializer(type(message), client, {"use.deprecated.format": False})
    data: bytes = serializer(message, SerializationContext(topic, MessageField.VALUE))
    return data
