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

__all__ = ["FORMATS", "Decoded", "Decoder", "Format", "Text", "ValueFormat", "spread", "value_format"]

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
    schema: str | None = None
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
    """An entry: how the text of valueSchema becomes a type, who decodes, which package it takes."""

    type_of: Callable[[str], SparkType] | None  # None: no valueSchema
    decoder: Callable[[ValueFormat], Decoder] | None
    fixed: str = ""  # the type where there is no valueSchema
    package: str = ""  # what is imported, named like the distribution


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


FORMATS: dict[str, Format] = {
    "raw": Format(None, None, fixed="binary"),
    "string": Format(None, lambda given: Text(), fixed="string"),
    "json": Format(parse_type, _json),
}


def value_format(values: Mapping[str, Any]) -> ValueFormat:
    """What the options (by lower-case name) say together. ConfigError."""
    name, schema = values["valueformat"], values["valueschema"]
    entry = FORMATS[name]
    framed = values["valueframing"] == "confluent"
    if entry.type_of is None:
        if schema is not None:
            raise ConfigError(f"valueSchema has no meaning with valueFormat={name}; leave it out")
        return ValueFormat(name, parse_type(entry.fixed), None, framed)
    if schema is None:
        raise ConfigError(f"valueFormat={name} needs valueSchema, which says what is in the values")
    _require(name, entry.package)
    try:
        return ValueFormat(name, entry.type_of(schema), schema, framed)
    except ConfigError as error:
        raise ConfigError(f"option valueSchema={_short(schema)} cannot be used: {error}") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")


def _require(name: str, package: str) -> None:
    try:
        if package:
            importlib.import_module(package)
    except ImportError:
        raise ConfigError(
            f"valueFormat={name} takes the package {package}, which is not installed;"
            f" on the driver and on all executors: pip install 'kconsumer[{name}]'"
        ) from None
