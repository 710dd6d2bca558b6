"""Values in Avro's binary form, as the types that Spark's `from_avro` gives them.

fastavro reads a value at a time into Python objects; what Spark counts in other units is converted here. Which schema a
value was written with is not found out: it is the one of the option. Where fastavro is lenient, so is this: an index
below zero of an enum or a union counts from the end.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError
from kconsumer.spark.formats import Decoded, column_of
from kconsumer.spark.types import SparkType, array_of, decimal, map_of, struct

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Avro", "type_of"]

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
# Logical types of which a number is left to be counted here; fastavro would make an object of each.
COUNTED = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
WIDER = ({"int", "long"}, "bigint"), ({"float", "double"}, "double")
Convert = Callable[[Any], Any] | None


class Avro:
    """Decodes with the schema in `schema`."""

    def __init__(self, schema: str) -> None:
        import fastavro

        document = _document(schema)
        self._kind, self._convert = _node(_expanded(document))
        self._schema = fastavro.parse_schema(_without_objects(document))

    def decode(self, values: pa.Array) -> Decoded:
        """Value by value."""
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else self._read(value))
            except Exception as error:  # whatever a library raises when bytes are not what it was told
                bad[row] = f"is not Avro of this schema: {type(error).__name__} {error}".rstrip()
                rows.append(None)
        return Decoded(column_of(rows, self._kind, bad), bad)

    def _read(self, value: bytes) -> Any:
        import fastavro

        source = io.BytesIO(value)
        found = fastavro.schemaless_reader(source, self._schema, None)
        if source.tell() != len(value):
            raise ValueError(f"{len(value) - source.tell()} bytes are left over")
        return found if self._convert is None else self._convert(found)


def type_of(schema: str) -> SparkType:
    """The type of a schema's values. ConfigError."""
    return _node(_expanded(_document(schema)))[0]


def _document(schema: str) -> Any:
    try:
        return json.loads(schema)
    except json.JSONDecodeError as error:
        raise ConfigError(f"an Avro schema is JSON: {error}") from None


def _expanded(document: Any) -> Any:
    """The schema with types in place of their names."""
    from fastavro.schema import expand_schema

    try:
        return expand_schema(document)
    except Exception as error:  # of many kinds
        raise ConfigError(f"no Avro schema: {type(error).__name__} {error}") from None


def _without_objects(schema: Any) -> Any:
    """The schema without the logical types of which fastavro makes other objects than are wanted."""
    if isinstance(schema, list):
        return [_without_objects(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if key != "logicalType" or value == "decimal"}
    for key in ("type", "items", "values"):
        if key in made:
            made[key] = _without_objects(made[key])
    if "fields" in made:
        made["fields"] = [{**field, "type": _without_objects(field["type"])} for field in made["fields"]]
    return made


# --- types -----------------------------------------------------------------------------------------------------------


def _node(schema: Any) -> tuple[SparkType, Convert]:
    """A type, and what makes of what fastavro reads what `pa.array` takes; None if that is the same."""
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
    counted = COUNTED.get((kind, logical))
    if counted is not None:
        return SparkType(counted), (lambda count: count * 1000) if logical.endswith("-millis") else None
    if kind in PLAIN:
        return SparkType(PLAIN[kind]), None
    raise ConfigError(f"values cannot be decoded to Avro's {kind}; types that contain themselves are none for Spark")


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
    """Null and one type, or numbers of which one is the wider."""
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
            raise ValueError(f"{number} is no {kind.simple}")
        return number

    return kind, checked
