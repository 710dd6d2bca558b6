"""Base of the decoders of value formats: their interface, their result, and functions that build Arrow columns.

The modules of the formats import this one. The table of formats, `formats.py`, imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kconsumer.formats.column_types import SparkType
from kconsumer.formats.framing import SchemaId, frame_bytes, read_id

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Check",
    "ConfluentDecoder",
    "Decoded",
    "Decoder",
    "TextDecoder",
    "build_columns",
    "restore_nulls",
    "to_column",
]


class Decoded(NamedTuple):
    """The result of decoding a column of values."""

    column: pa.Array  # one row per value; null for values that cannot be decoded
    bad: dict[int, str]  # row -> why its value cannot be decoded


class Decoder(Protocol):
    """Decodes the values of a batch."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode values into a column. A null value stays null, and is not in the dict `bad` of the result."""


Check = Callable[[SchemaId, bytes], None]  # raises ValueError if a value does not match the schema with an id


class TextDecoder:
    """Decodes UTF-8 to strings."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode all values with one cast. If it fails, decode them one by one to find the bad ones."""
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


def build_columns(
    rows: list[Any], make: Callable[[list[Any]], pa.Array], reason: str, bad: dict[int, str], start: int = 0
) -> list[pa.Array]:
    """Build columns of Python objects with `make`. Returns columns that have one row per object in total.

    An object for which `make` raises becomes null, and its row number is added to `bad` with `reason`. Because such
    objects are rare, they are found by halving the list. `start` is the row number of the first object.
    """
    import pyarrow as pa

    try:
        return [make(rows)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if len(rows) == 1:
            bad[start] = reason
            return [make([None])]
    half = len(rows) // 2
    first = build_columns(rows[:half], make, reason, bad, start)
    return first + build_columns(rows[half:], make, reason, bad, start + half)


def to_column(rows: list[Any], kind: SparkType, bad: dict[int, str]) -> pa.Array:
    """Convert Python objects to one column of the type `kind`.

    An object that cannot be converted becomes null, and its row number is added to `bad` with the reason.
    """
    import pyarrow as pa

    arrow = kind.arrow()
    return pa.concat_arrays(build_columns(rows, lambda some: pa.array(some, arrow), f"does not fit {kind.simple}", bad))


def restore_nulls(column: pa.Array, valid: pa.Array) -> pa.Array:
    """Insert nulls into a column. Returns a column with one row per entry of `valid`.

    For a false entry, the row is null. For the true entries, the rows are those of `column`, in the same order. If all
    entries are true, returns `column` itself.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(column) == len(valid):
        return column
    rows = pc.subtract(pc.cumulative_sum(valid.cast(pa.int32())), 1)
    return column.take(pc.if_else(valid, rows, pa.scalar(None, pa.int32())))


class ConfluentDecoder:
    """Removes the header of Confluent's serializers, and decodes the rest with `inner`.

    If `inner` is None, the rest stays bytes. `check` compares each value with the schema of its id before.
    """

    reads_schema_ids = True  # see header_ids.py

    def __init__(self, inner: Decoder | None, check: Check | None = None) -> None:
        self._inner, self._check = inner, check

    def decode(self, values: pa.Array) -> Decoded:
        """Decode values. A value without the header becomes null and is added to the dict `bad` of the result."""
        import pyarrow as pa

        bad: dict[int, str] = {}
        # Arrow's binary_slice returns wrong bytes for sliced arrays and for values shorter than the header.
        unframed = values.to_pylist()
        for row, value in enumerate(unframed):
            if value is None:
                continue
            try:
                unframed[row] = self._unframed(value)
            except ValueError as error:
                bad[row], unframed[row] = str(error), None
        if self._inner is None:
            return Decoded(pa.array(unframed, pa.binary()), bad)  # without ids from headers, the values fit this type
        found = self._inner.decode(pa.array(unframed, values.type))
        return Decoded(found.column, {**bad, **found.bad})

    def _unframed(self, value: bytes) -> bytes:
        start = frame_bytes(value)
        if not start:
            raise ValueError("has no Confluent header")
        if self._check is not None:
            self._check(read_id(value)[0], value[start:])
        return value[start:]
