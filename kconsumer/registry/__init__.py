"""Deserializers for values with the id of a schema in a schema registry: Avro, JSON Schema and Protocol Buffers.

    AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer
                        into Python objects, for the options `value_deserializer` and `key_deserializer`
    AvroColumns, JsonColumns, ProtobufColumns
                        into Arrow columns, for `poll_arrow(decode=…)` and for `decode`
    decode              decodes columns of any object with `__arrow_c_stream__`, such as the result of `read_topic`

The client of the registry is confluent-kafka's `SchemaRegistryClient`. In place of a client, all classes accept the
address of a registry, or a dict with the options of the client. Schemas are requested once for each id.

    pip install '.[registry]'       in a checkout of kconsumer: confluent-kafka, fastavro, protobuf, jsonschema
"""

from kconsumer.registry.avro import AvroDeserializer
from kconsumer.registry.columns import AvroColumns, JsonColumns, ProtobufColumns, decode
from kconsumer.registry.json_schema import JsonSchemaDeserializer
from kconsumer.registry.protobuf import ProtobufDeserializer
from kconsumer.registry.schemas import Schemas

__all__ = [
    "AvroColumns",
    "AvroDeserializer",
    "JsonColumns",
    "JsonSchemaDeserializer",
    "ProtobufColumns",
    "ProtobufDeserializer",
    "Schemas",
    "decode",
]
