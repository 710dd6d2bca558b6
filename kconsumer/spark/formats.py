"""What the values of records are: the formats of the option `valueFormat`, one entry each.

An entry says which Spark type the column `value` then has and who decodes. Deciding what becomes of a value that does
not decode is not its task (`executor.py`); it says which ones and why. A further format is a module and an entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kconsumer.errors import ConfigError
from kconsumer.spark.types import SparkType, parse_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMATS",
    "Decoded",
    "Decoder",
    "Format",
    "Text",
    "ValueFormat",
    "built",
    "column_of",
    "spread",
    "value_format",
]

HEADER = 5  # of a Confluent frame: a zero and the schema's id in four bytes


class Decoded(NamedTuple):
    """A column as long as the values were, and why some of its rows are null though their values were not."""

    column: pa.Array
    bad: dict[int, str]


class Decoder(Protocol):
    """Turns the bytes of a batch's values into a column."""

    def decode(self, values: pa.Array) -> Decoded:
        """The column; null values stay null and are not bad."""


@dataclass(frozen=True)
class ValueFormat:
    """A format with what the user said about it; made on the driver, picklable."""

    name: str
    type: SparkType
    schema: str = ""  # as the decoder wants it
    message: str = ""
    framed: bool = False

    @property
    def keys_are_text(self) -> bool:
        """Whether keys are strings, too."""
        return self.name == "string"

    def decoder(self) -> Decoder | None:
        """Who decodes, None where bytes stay bytes."""
        make = FORMATS[self.name].decoder
        if make is None:
            return Unframed(None) if self.framed else None
        return Unframed(make(self)) if self.framed else make(self)


class Format(NamedTuple):
    """An entry: who decodes, what valueSchema (and valueMessage) say, which package it takes."""

    decoder: Callable[[ValueFormat], Decoder] | None  # None: bytes stay bytes
    read: Callable[[str, str], tuple[SparkType, str]] | None = None  # the options -> type, schema for the decoder
    fixed: str = ""  # the type where there is no valueSchema
    has_message: bool = False
    module: str = ""  # what is imported of the package
    package: str = ""  # to be installed


class Text:
    """UTF-8 as strings."""

    def decode(self, values: pa.Array) -> Decoded:
        """All at once; one by one only where something is wrong."""
        import pyarrow as pa

        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            texts = [_text(value) for value in values.to_pylist()]
        bad = {row: "is not UTF-8" for row, text in enumerate(texts) if text is False}
        return Decoded(pa.array([None if text is False else text for text in texts], pa.string()), bad)


def _text(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return False


def built(
    rows: list[Any], make: Callable[[list[Any]], pa.Array], reason: str, bad: dict[int, str], start: int = 0
) -> list[pa.Array]:
    """Columns that `make` makes of rows; where it raises for one row, that is a null and bad. Such rows are rare."""
    import pyarrow as pa

    try:
        return [make(rows)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if len(rows) == 1:
            bad[start] = reason
            return [make([None])]
    half = len(rows) // 2
    first = built(rows[:half], make, reason, bad, start)
    return first + built(rows[half:], make, reason, bad, start + half)


def column_of(rows: list[Any], kind: SparkType, bad: dict[int, str]) -> pa.Array:
    """Python objects as one column; a number that is beyond its type is bad."""
    import pyarrow as pa

    arrow = kind.arrow()
    return pa.concat_arrays(built(rows, lambda some: pa.array(some, arrow), f"does not fit {kind.simple}", bad))


def spread(column: pa.Array, there: pa.Array) -> pa.Array:
    """The column with nulls where a value is not `there`, in their places between the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(column) == len(there):
        return column
    places = pc.subtract(pc.cumulative_sum(there.cast(pa.int32())), 1)
    return column.take(pc.if_else(there, places, pa.scalar(None, pa.int32())))


class Unframed:
    """Takes the header of Confluent's serializers off and hands the rest on."""

    def __init__(self, inner: Decoder | None) -> None:
        self._inner = inner

    def decode(self, values: pa.Array) -> Decoded:
        """Values without the header are bad."""
        import pyarrow as pa

        bad: dict[int, str] = {}
        given = values.to_pylist()  # Arrow's own binary_slice miscounts in slices and where a value is shorter
        for row, value in enumerate(given):
            if value is None:
                continue
            if value[:1] == b"\0" and len(value) >= HEADER:
                given[row] = value[HEADER:]
            else:
                bad[row], given[row] = "has no Confluent header", None
        values = pa.array(given, values.type)
        if self._inner is None:
            return Decoded(values, bad)
        found = self._inner.decode(values)
        return Decoded(found.column, {**bad, **found.bad})


def _json(given: ValueFormat) -> Decoder:
    from kconsumer.spark.formats_json import Json

    return Json(given.type)


def _avro(given: ValueFormat) -> Decoder:
    from kconsumer.spark.formats_avro import Avro

    return Avro(given.schema)


def _read_avro(schema: str, message: str) -> tuple[SparkType, str]:
    from kconsumer.spark.formats_avro import type_of

    return type_of(schema), schema


def _protobuf(given: ValueFormat) -> Decoder:
    from kconsumer.spark.formats_protobuf import Protobuf

    return Protobuf(given.schema, given.message, given.framed)


def _read_protobuf(schema: str, message: str) -> tuple[SparkType, str]:
    from kconsumer.spark.formats_protobuf import load, type_of

    described = load(schema)
    return type_of(described, message), described


FORMATS: dict[str, Format] = {
    "raw": Format(None, fixed="binary"),
    "string": Format(lambda given: Text(), fixed="string"),
    "json": Format(_json, lambda schema, message: (parse_type(schema), schema)),
    "avro": Format(_avro, _read_avro, module="fastavro", package="fastavro"),
    "protobuf": Format(_protobuf, _read_protobuf, has_message=True, module="google.protobuf", package="protobuf"),
}


def value_format(values: Mapping[str, Any]) -> ValueFormat:
    """What the options (by lower-case name) say together. ConfigError."""
    name, schema, message = values["valueformat"], values["valueschema"], values["valuemessage"]
    entry = FORMATS[name]
    framed = values["valueframing"] == "confluent"
    if message is not None and not entry.has_message:
        raise ConfigError(f"valueMessage has no meaning with valueFormat={name}; leave it out")
    if entry.read is None:
        if schema is not None:
            raise ConfigError(f"valueSchema has no meaning with valueFormat={name}; leave it out")
        return ValueFormat(name, parse_type(entry.fixed), framed=framed)
    if schema is None:
        raise ConfigError(f"valueFormat={name} needs valueSchema, which says what is in the values")
    if entry.has_message and message is None:
        raise ConfigError(f"valueFormat={name} needs valueMessage, the full name of the message")
    _require(name, entry)
    try:
        kind, read = entry.read(schema, message or "")
    except ConfigError as error:
        raise ConfigError(f"option valueSchema={_short(schema)} cannot be used: {error}") from None
    return ValueFormat(name, kind, read, message or "", framed)


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")


def _require(name: str, entry: Format) -> None:
    try:
        if entry.module:
            importlib.import_module(entry.module)
    except ImportError:
        raise ConfigError(
            f"valueFormat={name} takes the module {entry.module}, which is not installed;"
            f" on the driver and on all executors: pip install {entry.package}"
        ) from None
