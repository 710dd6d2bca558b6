"""The columns of the source: names, Spark types and Arrow types.

A query has the columns of Spark's own source, or those that the user names. Spark compares names, order, types and
nullability of the first batch with its own schema, so the Arrow types must be exactly those that Spark expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError
from kconsumer.formats.column_types import SparkType
from kconsumer.formats.decoders import Decoder
from kconsumer.spark.formats import ValueFormat, value_format
from kconsumer.spark.options import SourceConfig

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "TYPES", "VALUE_BYTES", "VALUE_ERROR", "Projection", "default_projection", "project"]

# Column -> its type as Spark prints it.
TYPES: dict[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
COLUMNS = tuple(TYPES)
# Columns that a query has only if it names them.
VALUE_BYTES = "valueBytes"  # the value before it is decoded
VALUE_ERROR = "valueError"  # why the value cannot be decoded, or null
TYPES |= {VALUE_BYTES: "binary", VALUE_ERROR: "string"}
HEADERS_MAP = "map<string,binary>"
RAW = ValueFormat("raw", SparkType("binary"))


@dataclass(frozen=True)
class Projection:
    """The columns of a query and their types. Picklable."""

    columns: tuple[str, ...]  # in the order of the rows
    value: ValueFormat = RAW  # the format of the column `value`
    headers_map: bool = False  # True: `headers` is a map instead of an array of structs
    on_bad_timestamp: str = "fail"  # the option onBadTimestamp
    key: ValueFormat = RAW  # the format of the column `key`

    def type_of(self, column: str) -> str:
        """Returns the Spark type of a column, as Spark prints it."""
        if column in ("key", "value"):
            return self._format(column).type.simple
        if self.headers_map and column == "headers":
            return HEADERS_MAP
        return TYPES[column]

    @property
    def ddl(self) -> str:
        """The schema as DDL, which Spark parses."""
        types = {column: self.type_of(column) for column in self.columns}
        types |= {column: self._format(column).type.ddl for column in ("key", "value")}
        return ", ".join(f"{column} {types[column]}" for column in self.columns)

    def decoders(self) -> dict[str, Decoder]:
        """Returns a decoder for each column of the query that is decoded: the key, the value, both or none."""
        found = {name: self._format(name).decoder() for name in ("key", "value") if self._decodes(name)}
        return {name: decoder for name, decoder in found.items() if decoder is not None}

    def _format(self, column: str) -> ValueFormat:
        return self.key if column == "key" else self.value

    def _decodes(self, name: str) -> bool:
        return name in self.columns or (name == "value" and VALUE_ERROR in self.columns)

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The columns of records that the columns of the query are made of."""
        needed = dict.fromkeys("value" if name in (VALUE_BYTES, VALUE_ERROR) else name for name in self.columns)
        if any(self._format(name).framed and self._decodes(name) for name in ("key", "value")):
            needed["headers"] = None  # the id of the schema may be there
        return tuple(needed)

    def arrow_schema(self) -> pyarrow.Schema:
        """Returns the Arrow schema that every batch of the query has."""
        import pyarrow as pa

        arrow: dict[str, Any] = {
            "binary": pa.binary(),
            "string": pa.string(),
            "int": pa.int32(),
            "bigint": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            TYPES["headers"]: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            HEADERS_MAP: pa.map_(pa.string(), pa.binary()),
        }
        types = {column: arrow.get(self.type_of(column)) for column in self.columns}
        types |= {column: self._format(column).type.arrow() for column in ("key", "value")}
        return pa.schema([(column, types[column]) for column in self.columns])


def default_projection(config: SourceConfig) -> Projection:
    """Returns the columns of a query without `.schema(...)`: those of the option `columns`, or all.

    Without `columns`, the column `headers` is included only if the option includeHeaders is true or the option headers
    is `map`.
    """
    as_map = config["headers"] == "map"
    chosen: Sequence[str] | None = config["columns"]
    if chosen is None:
        chosen = COLUMNS if config["includeHeaders"] or as_map else COLUMNS[:-1]
    formats = [value_format(config.values, column) for column in ("value", "key")]
    names = tuple(_known(name) for name in chosen)
    return Projection(names, formats[0], as_map, config["onBadTimestamp"], formats[1])


def project(config: SourceConfig, wanted: Sequence[tuple[str, str]]) -> Projection:
    """Returns the columns of a query with `.schema(...)`. `wanted` contains (name, Spark type) of each column.

    Raises ConfigError if the source has no such column or another type for it.
    """
    base = default_projection(config)
    found = replace(base, columns=tuple(_known(name) for name, _ in wanted))
    if not wanted:
        raise ConfigError(f"the schema has no columns; the source has {', '.join(TYPES)}")
    for name, kind in wanted:
        if name not in found.columns:
            raise ConfigError(f"write the column {name} of the schema as {_known(name)}")
        if kind != found.type_of(name):
            raise ConfigError(f"the column {name} has type {found.type_of(name)}, not {kind}; cast it after loading")
    if len(set(found.columns)) != len(found.columns):
        raise ConfigError("the schema has a column twice")
    return found


def _known(name: str) -> str:
    for column in TYPES:
        if column.lower() == name.lower():
            return column
    raise ConfigError(f"the source has no column {name!r}; it has {', '.join(TYPES)}")
