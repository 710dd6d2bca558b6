"""Deserializes Protocol Buffers messages with schemas of a registry into messages of protobuf's classes."""

from __future__ import annotations

import base64
import re
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, read_indexes, split
from kconsumer.formats.protobuf_columns import parsed
from kconsumer.registry.clients import required
from kconsumer.registry.schemas import SERIALIZED, Schemas

__all__ = ["ProtobufClasses", "ProtobufDeserializer"]


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
        self._classes = None if message_type is not None else ProtobufClasses(Schemas.of(registry))
        self._message_type = message_type

    def __repr__(self) -> str:
        return f"<ProtobufDeserializer of {getattr(self._message_type, '__name__', 'classes made of schemas')}>"

    def __call__(self, data: bytes, context: Any) -> object:
        """Returns the message. `context` is the `SerializationContext` of `kconsumer.deserializers`."""
        key, framed = split(data, context.headers, context.field)
        indexes, body = read_indexes(framed)
        kind = self._message_type if self._classes is None else self._classes.get(key, indexes)
        return parsed(kind, body)


class ProtobufClasses:
    """The classes of messages that are built from the schemas of a registry."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._files: dict[SchemaId, Any] = {}
        self._classes: dict[tuple[SchemaId, tuple[int, ...]], Any] = {}

    def get(self, key: SchemaId, indexes: tuple[int, ...]) -> Any:
        """Returns the class of the messages that are defined at `indexes` in the schema with an id."""
        from google.protobuf import message_factory

        found = self._classes.get((key, indexes))
        if found is None:
            file = self._files.get(key)
            if file is None:
                file = self._files[key] = self.file(self._schemas.get(key, fmt=SERIALIZED))
            try:
                descriptor = list(file.message_types_by_name.values())[indexes[0]]
                for index in indexes[1:]:
                    descriptor = descriptor.nested_types[index]
            except IndexError:
                raise ValueError(f"the schema with the id {key} has no message at {list(indexes)}") from None
            found = self._classes[key, indexes] = message_factory.GetMessageClass(descriptor)
        return found

    def file(self, schema: Any) -> Any:
        """Returns the descriptor of the file that is a schema, whose text is a descriptor in base 64."""
        from google.protobuf import descriptor_pb2, descriptor_pool

        if schema.schema_type != "PROTOBUF":
            raise ConfigError(f"the schema in the registry is of the type {schema.schema_type or 'AVRO'}, not PROTOBUF")
        parts = {ROOT: schema, **dict(self._schemas.references(schema, fmt=SERIALIZED))}
        pool, added = descriptor_pool.DescriptorPool(), set[str]()

        def add(name: str) -> None:
            if name not in added:
                added.add(name)
                file = descriptor_pb2.FileDescriptorProto.FromString(
                    _descriptor(parts[name]) if name in parts else known_file(name)
                )
                file.name = name
                for imported in file.dependency:
                    add(imported)
                pool.Add(file)

        add(ROOT)
        file = pool.FindFileByName(ROOT)
        # As in Java, a file that only imports another one publicly has the messages of that one.
        alone = not file.message_types_by_name and len(file.public_dependencies) == len(file.dependencies) == 1
        return file.public_dependencies[0] if alone else file


ROOT = "schema-of-the-registry.proto"
#: The beginning of the names of files that Java's serializers import without a reference -> the package of the modules.
KNOWN = {
    "google/protobuf/": "google.protobuf.",
    "google/type/": "google.type.",
    "confluent/": "confluent_kafka.schema_registry.confluent.",
}
RENAMED = (".confluent.type.", ".confluent.types.")  # older versions of confluent-kafka have the second package only


def _descriptor(schema: Any) -> bytes:
    try:
        return base64.b64decode(schema.schema_str, validate=True)
    except ValueError as error:
        raise ConfigError(
            "the registry returned the schema as text, not as a descriptor: pass the generated class as message_type"
        ) from error


def known_file(name: str) -> bytes:
    """Returns the descriptor of a file that schemas may import without a reference."""
    from google.protobuf import descriptor_pool

    start = next((start for start in KNOWN if name.startswith(start)), None)
    if start is None or not re.fullmatch(r"[a-z_/]+\.proto", name):
        raise ConfigError(f"the schema imports {name}, which is neither a reference nor a known file")
    try:
        file = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        module = KNOWN[start] + name.removeprefix(start).removesuffix(".proto").replace("/", ".") + "_pb2"
        purpose = f"the import of {name}"
        try:
            file = required(module, purpose).DESCRIPTOR
        except ConfigError:
            file = required(module.replace(*RENAMED), purpose).DESCRIPTOR
    return bytes(file.serialized_pb)
