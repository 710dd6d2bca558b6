"""Decodes values in Avro's binary encoding to the types of Spark's `from_avro`.

fastavro decodes one value at a time to Python objects, and this module converts units where Spark's differ. Values are
decoded with one schema, or each with the schema that it was written with, as the id before the value names it. Errors
that fastavro does not detect are not detected here either. For example, a negative index of an enum or a union counts
from the end.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError
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
# Logical types that are decoded as plain numbers; fastavro would create a date or datetime object for each value.
NUMERIC_LOGICAL_TYPES = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
WIDER = ({"int", "long"}, "bigint"), ({"float", "double"}, "double")  # unions of numbers -> the wider type
Convert = Callable[[Any], Any] | None


Writers = Callable[[SchemaId], str]  # returns the schema with an id, as JSON text, or raises UnknownSchemaError


class AvroDecoder:
    """Decodes values to the type of the Avro schema `schema`, which is JSON text.

    Without `writers`, values were written with this schema and have no frame. With `writers`, each value begins with
    the id of the schema that it was written with, and is converted by Avro's rules for a reader's schema.
    """

    def __init__(self, schema: str, writers: Writers | None = None) -> None:
        document = _document(schema)
        self._kind, self._convert = _node(_expanded(document))
        self._schema = self._parse(document)
        self._writers = writers
        self._resolutions: dict[SchemaId, tuple[Any, Any]] = {}  # id -> parsed schemas of the writer and the reader

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
            schemas, start = (self._schema, None), 0
            if self._writers is not None:
                try:
                    key, start = read_id(value)
                    schemas = self._resolution(key, self._writers)
                except ValueError as error:
                    bad[row] = str(error)
                    rows.append(None)
                    continue
            try:
                rows.append(self._read(value, start, *schemas))
            except Exception as error:  # fastavro raises exceptions of many classes for bytes that do not match
                bad[row] = f"is not Avro of this schema: {type(error).__name__} {error}".rstrip()
                rows.append(None)
        return Decoded(to_column(rows, self._kind, bad), bad)

    def _resolution(self, key: SchemaId, writers: Writers) -> tuple[Any, Any]:
        """Returns the parsed schema of the writer, and that of the reader, or None if they are equal."""
        found = self._resolutions.get(key)
        if found is None:
            writer = self._parse(_document(writers(key)))
            found = self._resolutions[key] = (writer, None if writer == self._schema else self._schema)
        return found

    def _parse(self, document: Any) -> Any:
        import fastavro

        return fastavro.parse_schema(_without_logical_types(document))

    def _read(self, value: bytes, start: int, writer: Any, reader: Any) -> Any:
        import fastavro

        source = io.BytesIO(value)
        source.seek(start)
        found = fastavro.schemaless_reader(source, writer, reader)
        if source.tell() != len(value):
            raise ValueError(f"{len(value) - source.tell()} bytes follow the value")
        return found if self._convert is None else self._convert(found)


def type_of(schema: str) -> SparkType:
    """Returns the Spark type of an Avro schema. Raises ConfigError if the schema is wrong or Spark has no such type."""
    return _node(_expanded(_document(schema)))[0]


def _document(schema: str) -> Any:
    try:
        return json.loads(schema)
    except json.JSONDecodeError as error:
        raise ConfigError(f"an Avro schema must be JSON: {error}") from None


def _expanded(document: Any) -> Any:
    """Returns the schema with named types replaced by their definitions."""
    from fastavro.schema import expand_schema

    try:
        return expand_schema(document)
    except Exception as error:  # fastavro raises exceptions of many classes
        raise ConfigError(f"not an Avro schema: {type(error).__name__} {error}") from None


def _without_logical_types(schema: Any) -> Any:
    """Returns the schema without logical types other than decimal, so that fastavro returns plain numbers."""
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: value for key, value in schema.items() if key != "logicalType" or value == "decimal"}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = _without_logical_types(plain[key])
    if "fields" in plain:
        plain["fields"] = [{**field, "type": _without_logical_types(field["type"])} for field in plain["fields"]]
    return plain


# --- types -----------------------------------------------------------------------------------------------------------


def _node(schema: Any) -> tuple[SparkType, Convert]:
    """Returns the Spark type of a schema, and a function that converts fastavro's objects for `pa.array`.

    The function is None if no conversion is needed. Raises ConfigError if Spark has no such type.
    """
    if isinstance(schema, list):
        return _union(schema)
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, (dict, list)):
        return _node(kind)
    if kind in ("record", "error"):
        return _record(schema["fields"])
    if kind == "array":
        element, convert = _node(schema["items"])
        return array_of(element), _each(convert)
    if kind == "map":
        inner, convert = _node(schema["values"])
        return map_of(inner), _pairs(convert)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema)
    numeric = NUMERIC_LOGICAL_TYPES.get((kind, logical))
    if numeric is not None:
        return SparkType(numeric), (lambda number: number * 1000) if logical.endswith("-millis") else None
    if kind in PLAIN:
        return SparkType(PLAIN[kind]), None
    raise ConfigError(f"Spark has no type for Avro's {kind}; recursive types are not supported")


def _each(convert: Convert) -> Convert:
    return None if convert is None else lambda items: [convert(item) for item in items]


def _pairs(convert: Convert) -> Convert:
    if convert is None:
        return lambda items: list(items.items())
    return lambda items: [(key, convert(item)) for key, item in items.items()]


def _record(fields: list[dict[str, Any]]) -> tuple[SparkType, Convert]:
    nodes = [(field["name"], *_node(field["type"])) for field in fields]
    changed = [(name, convert) for name, _, convert in nodes if convert is not None]

    def convert_all(row: dict[str, Any]) -> dict[str, Any]:
        for name, convert in changed:
            row[name] = convert(row[name])
        return row

    return struct([(name, kind) for name, kind, _ in nodes]), convert_all if changed else None


def _union(parts: list[Any]) -> tuple[SparkType, Convert]:
    """Returns the Spark type of a union, and a function that converts its objects (None if not needed).

    A union must consist of null and one type, or of two number types such as int and long. Raises ConfigError for other
    unions.
    """
    others = [part for part in parts if part != "null"]
    if len(others) == 1:
        kind, convert = _node(others[0])
        if convert is None or len(parts) == 1:
            return kind, convert
        return kind, lambda given: None if given is None else convert(given)
    for names, wider in WIDER:
        if others and all(isinstance(part, str) for part in others) and set(others) == names:
            return SparkType(wider), None
    raise ConfigError(f"values cannot be decoded to a union of {json.dumps(others)[:80]}")


def _decimal(schema: dict[str, Any]) -> tuple[SparkType, Convert]:
    kind = decimal(schema["precision"], schema.get("scale", 0))

    def checked(number: Any) -> Any:
        if number and number.adjusted() >= kind.precision - kind.scale:
            raise ValueError(f"{number} does not fit {kind.simple}")
        return number

    return kind, checked
