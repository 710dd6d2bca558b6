"""Deserializes Avro values with schemas of a registry into Python objects, by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, split
from kconsumer.registry.clients import required
from kconsumer.registry.schemas import Schemas

__all__ = ["AvroDeserializer"]


class AvroDeserializer:
    """Deserializes Avro keys or values that have the id of a schema, as Confluent's serializers write them.

    `registry` is a `SchemaRegistryClient` of confluent-kafka, a dict with its options, or the address of a registry.
    `schema` is the reader's schema, as JSON text, parsed JSON or a `Schema`: values of older and newer schemas are
    converted to it by Avro's rules. Without it, a value has the fields of the schema that it was written with.
    `from_dict` turns the result into an object of yours, for example `lambda row: Order(**row)`.

    Raises ConfigError for a wrong schema or registry, and if a package is not installed.
    """

    def __init__(self, registry: Any, schema: Any = None, *, from_dict: Callable[[Any], object] | None = None) -> None:
        self._library = required("fastavro", "AvroDeserializer")
        self._schemas = Schemas.of(registry)
        self._reader = None if schema is None else self._parse(self._schemas.avro_text(schema))
        self._from_dict = from_dict
        self._writers: dict[SchemaId, Any] = {}

    def __call__(self, data: bytes, context: Any) -> object:
        """Returns the object. `context` is the `SerializationContext` of `kconsumer.deserializers`."""
        key, body = split(data, context.headers, context.field)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = self._parse(self._schemas.avro(key))
        source = io.BytesIO(body)
        found = self._library.schemaless_reader(source, writer, None if writer is self._reader else self._reader)
        if source.tell() != len(body):
            raise ValueError(f"{len(body) - source.tell()} bytes follow the value")
        return found if self._from_dict is None else self._from_dict(found)

    def _parse(self, text: str) -> Any:
        try:
            parsed = self._library.parse_schema(json.loads(text))
        except Exception as error:  # fastavro raises exceptions of many classes
            raise ConfigError(f"not an Avro schema: {type(error).__name__} {error}") from None
        # Equal schemas are one object, so that a value of the reader's own schema needs no conversion.
        return self._reader if parsed == getattr(self, "_reader", None) else parsed
