"""Decodes values in Avro's binary encoding to the types of Spark's `from_avro`.

fastavro decodes one value at a time to Python objects. Values are decoded with one schema, or each with the schema that
it was written with, as the id before the value names it; `avro_resolution.py` checks and converts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError
from kconsumer.formats.avro_resolution import Convert, Read, Shapes, reader_of, to_decimal
from kconsumer.formats.avro_schemas import AvroSchema
from kconsumer.formats.column_types import SparkType, array_of, decimal, map_of, struct
from kconsumer.formats.decoders import Decoded, to_column
from kconsumer.formats.framing import SchemaId, read_id

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AvroDecoder", "type_of"]

PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "fixed": "binary",
    "enum": "string",
}
LOGICAL_TYPES = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
WIDER = ({"int", "long"}, "bigint"), ({"float", "double"}, "double")  # unions of numbers -> the wider type
Writers = Callable[[SchemaId], AvroSchema]  # returns the schema with an id, or raises UnknownSchemaError


class AvroDecoder:
    """Decodes values to the type of an Avro schema.

    Without `writers`, values were written with this schema and have no frame. With `writers`, each value begins with
    the id of the schema that it was written with, and is converted by Avro's rules for a reader's schema.
    """

    def __init__(self, schema: AvroSchema, writers: Writers | None = None) -> None:
        self._kind = type_of(schema)
        self._schema = schema
        self._writers = writers
        self._reads: dict[SchemaId | None, Read] = {}  # by the id of the writer's schema; None: it is the reader's

    @property
    def type(self) -> SparkType:
        """The type of the decoded column."""
        return self._kind

    @property
    def reads_schema_ids(self) -> bool:
        """True if values begin with the id of a schema; see header_ids.py."""
        return self._writers is not None

    def decode(self, values: pa.Array) -> Decoded:
        """Decode the values one by one. Raises what `writers` raises, except UnknownSchemaError."""
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                rows.append(None)
                continue
            try:
                key, start = (None, 0) if self._writers is None else read_id(value)
                read = self._reads.get(key) or self._load(key)
            except ValueError as error:
                bad[row] = str(error)
                rows.append(None)
                continue
            try:
                rows.append(read(value, start))
            except Exception as error:  # conversions raise exceptions of many classes for what they cannot convert
                kind = "" if type(error) is ValueError else f"{type(error).__name__} "
                bad[row] = f"is not Avro of this schema: {kind}{error}".rstrip()
                rows.append(None)
        return Decoded(to_column(rows, self._kind, bad), bad)

    def _load(self, key: SchemaId | None) -> Read:
        writer = self._schema if key is None or self._writers is None else self._writers(key)
        read = self._reads[key] = reader_of(writer, self._schema, SHAPES, framed=self._writers is not None)
        return read


# --- types -----------------------------------------------------------------------------------------------------------


def type_of(schema: AvroSchema, within: tuple[AvroSchema, ...] = ()) -> SparkType:
    """Returns the Spark type of an Avro schema. Raises ConfigError if Spark has no such type.

    `within` contains the records that contain this schema.
    """
    kind = schema.kind
    if schema in within:
        raise ConfigError(f"Spark has no type for Avro's {schema.name}; recursive types are not supported")
    if kind == "union":
        return _union(schema.parts, within)
    if kind == "record":
        return struct([(field.name, type_of(field.schema, (*within, schema))) for field in schema.fields])
    if kind in ("array", "map"):
        inner = type_of(schema.parts[0], within)
        return array_of(inner) if kind == "array" else map_of(inner)
    if schema.logical == "decimal":
        return decimal(schema.precision, schema.scale)
    if kind == "null":
        raise ConfigError("Spark has no type for Avro's null")
    return SparkType(LOGICAL_TYPES.get(schema.logical) or PLAIN[kind])


def _union(parts: list[AvroSchema], within: tuple[AvroSchema, ...]) -> SparkType:
    """Returns the Spark type of a union, which must consist of null and one type, or of two number types such as int
    and long. Raises ConfigError for other unions.
    """
    others = [part for part in parts if part.kind != "null"]
    if len(others) == 1:
        return type_of(others[0], within)
    names = [part.kind for part in others if not part.logical]
    for numbers, wider in WIDER:
        if len(names) == len(others) and set(names) == numbers:
            return SparkType(wider)
    raise ConfigError(f"values cannot be decoded to a union of {json.dumps([part.kind for part in others])[:80]}")


def _scalar(schema: AvroSchema) -> Convert:
    """Returns the function that converts numbers and bytes to what `pa.array` expects for the Spark type."""
    if schema.logical == "decimal":
        return _checked_decimal(schema)
    if schema.logical in LOGICAL_TYPES and schema.logical.endswith("-millis"):
        return lambda number: number * 1000
    return None


def _checked_decimal(schema: AvroSchema) -> Convert:
    convert = to_decimal(schema.scale)

    def checked(data: bytes) -> Any:
        number = convert(data)
        if number and number.adjusted() >= schema.precision - schema.scale:
            raise ValueError(f"{number} does not fit {decimal(schema.precision, schema.scale).simple}")
        return number

    return checked


SHAPES = Shapes(_scalar, pairs=True)
