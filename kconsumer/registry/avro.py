"""Deserializes Avro values with schemas of a registry into Python objects, by fastavro."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from typing import Any

from kconsumer.formats.avro_resolution import Convert, Read, Shapes, reader_of, to_decimal
from kconsumer.formats.avro_schemas import AvroSchema
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
        required("fastavro", "AvroDeserializer")
        self._schemas = Schemas.of(registry)
        self._reader = None if schema is None else self._schemas.avro_schema(schema)
        self._from_dict = from_dict
        self._reads: dict[SchemaId, Read] = {}

    def __repr__(self) -> str:
        return f"<AvroDeserializer of {self._schemas!r}{', with a schema' * (self._reader is not None)}>"

    def __call__(self, data: bytes, context: Any) -> object:
        """Returns the object. `context` is the `SerializationContext` of `kconsumer.deserializers`."""
        key, body = split(data, context.headers, context.field)
        read = self._reads.get(key)
        if read is None:
            writer = self._schemas.avro(key)
            read = self._reads[key] = reader_of(writer, self._reader or writer, OBJECTS, framed=True)
        found = read(body, 0)
        return found if self._from_dict is None else self._from_dict(found)


EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=datetime.UTC)
FIRST_DAY = EPOCH.toordinal()


def _time(microseconds: int) -> datetime.time:
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest)


def _uuid(given: bytes | str) -> uuid.UUID:
    if isinstance(given, bytes):
        return uuid.UUID(bytes=given)
    parts = given.split("-")
    if len(parts) != 5:  # Python also accepts text without hyphens, in braces, and after urn:uuid:
        raise ValueError(f"{given!r} is not a UUID")
    sizes = (8, 4, 4, 4, 12)
    return uuid.UUID("".join(f"{int(part, 16):0{size}x}" for part, size in zip(parts, sizes, strict=True)))


LOGICAL_TYPES: dict[str, Callable[[Any], Any]] = {
    "date": lambda days: datetime.date.fromordinal(FIRST_DAY + days),
    "time-millis": lambda number: _time(number * 1000),
    "time-micros": _time,
    "timestamp-millis": lambda number: EPOCH_UTC + datetime.timedelta(milliseconds=number),
    "timestamp-micros": lambda number: EPOCH_UTC + datetime.timedelta(microseconds=number),
    "local-timestamp-millis": lambda number: EPOCH + datetime.timedelta(milliseconds=number),
    "local-timestamp-micros": lambda number: EPOCH + datetime.timedelta(microseconds=number),
    "uuid": _uuid,
}


def _scalar(schema: AvroSchema) -> Convert:
    return to_decimal(schema.scale) if schema.logical == "decimal" else LOGICAL_TYPES.get(schema.logical)


OBJECTS = Shapes(_scalar)
