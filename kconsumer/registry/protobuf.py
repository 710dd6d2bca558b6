"""Deserializes Protocol Buffers messages with schemas of a registry into messages of protobuf's classes."""

from __future__ import annotations

import base64
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, read_indexes, split
from kconsumer.registry.clients import required
from kconsumer.registry.schemas import SERIALIZED, Schemas

__all__ = ["ProtobufDeserializer"]


class ProtobufDeserializer:
    """Deserializes Protocol Buffers keys or values with the id of a schema, as Confluent's serializers write them.

    `message_type` is the class of the messages, as `protoc` generates it. Then no registry is needed: fields that the
    class does not have are kept, and missing ones have their defaults. Without a class, the class is built from the
    schema, and `registry` is required: a `SchemaRegistryClient` of confluent-kafka, a dict with its options, or the
    address of a registry that can return schemas as descriptors (`format=serialized`), as Confluent's does.

    Raises ConfigError for wrong arguments, and if a package is not installed.
    """

    def __init__(self, registry: Any = None, message_type: Any = None) -> None:
        required("google.protobuf", "ProtobufDeserializer")
        if message_type is None and registry is None:
            raise ConfigError("ProtobufDeserializer needs a message_type, or a registry to request schemas from")
        if message_type is not None and not hasattr(message_type, "FromString"):
            raise ConfigError(
                f"message_type must be a class of messages that protoc has generated, not {message_type!r}"
            )
        self._schemas = None if message_type is not None else Schemas.of(registry)
        self._message_type = message_type
        self._pools: dict[SchemaId, Any] = {}
        self._classes: dict[tuple[SchemaId, tuple[int, ...]], Any] = {}

    def __call__(self, data: bytes, context: Any) -> object:
        """Returns the message. `context` is the `SerializationContext` of `kconsumer.deserializers`."""
        key, framed = split(data, context.headers, context.field)
        indexes, body = read_indexes(framed)
        kind = self._message_type
        if kind is None:
            kind = self._classes.get((key, indexes))
            if kind is None:
                kind = self._classes[key, indexes] = self._class(key, indexes)
        return kind.FromString(body)

    def _class(self, key: SchemaId, indexes: tuple[int, ...]) -> Any:
        """Returns the class of the messages that are defined at `indexes` in the schema with an id."""
        from google.protobuf import message_factory

        file = self._pools.get(key)
        if file is None:
            file = self._pools[key] = self._file(key)
        try:
            descriptor = list(file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                descriptor = descriptor.nested_types[index]
        except IndexError:
            raise ValueError(f"the schema with the id {key} has no message at {list(indexes)}") from None
        return message_factory.GetMessageClass(descriptor)

    def _file(self, key: SchemaId) -> Any:
        """Returns the descriptor of the file that is the schema with an id."""
        from google.protobuf import descriptor_pb2, descriptor_pool

        assert self._schemas is not None
        pool = descriptor_pool.DescriptorPool()
        _add_well_known_types(pool)
        schema = self._schemas.get_serialized(key)
        if schema.schema_type != "PROTOBUF":
            raise ConfigError(f"the schema in the registry is of the type {schema.schema_type or 'AVRO'}, not PROTOBUF")
        for name, part in [*self._schemas.references(schema, fmt=SERIALIZED), (f"schema-{key}.proto", schema)]:
            try:
                file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(part.schema_str, validate=True))
            except Exception as error:
                raise ConfigError(
                    "the registry returned the schema as text, not as a descriptor: pass the generated class as"
                    " message_type"
                ) from error
            file.name = name
            pool.Add(file)
        return pool.FindFileByName(f"schema-{key}.proto")


def _add_well_known_types(pool: Any) -> None:
    """Add the files that every installation of Protocol Buffers has, and that schemas may import."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    for module in (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
