"""Decodes JSON objects to structs as Spark's `from_json` does, and reports values that do not match the schema.

Arrow parses whole batches, but accepts less than `from_json`. In a batch that Arrow rejects, msgspec finds the values
that do not match the schema; without it, the batch is halved until few values are left. Python parses these one by one.
So both parsers must agree on every value that Arrow accepts; msgspec only decides which of them is tried first. Both
leave dates and times as text, and one function converts the text afterwards. Fields with maps or bytes, which Arrow's
parser cannot read, are decoded by msgspec.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any

from kconsumer.formats.column_types import MAX_DIGITS, SparkType
from kconsumer.formats.decoders import Decoded, build_columns, restore_nulls
from kconsumer.formats.json_values import CLOCK, DATE, PATTERNS, RANGES, MismatchError, match, parse

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonDecoder"]

MAX_UNSPLIT_VALUES = 64  # up to this many rejected values are parsed one by one, not halved again
MAX_ARROW_FAILURES = 64  # in one batch; after these, the rest is parsed one by one
MAX_ARROW_BYTES = 1 << 30  # Arrow's parser has 32-bit sizes
NO_FIELDS = [("", SparkType("string"))]  # for Arrow's parser, which returns no rows for a schema without fields
INF = rb"[:,\[]\s*[-+]?Inf\s*[,}\]]"
UNNAMEABLE = re.compile(r'["\\\x00-\x1f]')  # characters that a field's name must not have in msgspec


class JsonDecoder:
    """Decodes JSON values to the Spark type `kind`, usually a struct."""

    def __init__(self, kind: SparkType) -> None:
        self._kind, self._arrow = kind, kind.arrow()
        types = list(kind.walk())
        self._remaining_failures = MAX_ARROW_FAILURES
        self._mismatches_before = False  # msgspec found some in the last batch; then it parses the next one first
        is_struct = kind.kind == "struct"
        self._hidden = [field for field in kind.fields if is_struct and not _arrow_reads(field[1])]
        self._shown = [field for field in kind.fields if field not in self._hidden]
        self._decode_hidden = _fields_decoder(self._hidden) if self._hidden else None
        self._arrow_parses = is_struct and (not self._hidden or self._decode_hidden is not None)
        self._needs_conversion = any(part.kind in ("float", "decimal") or part.kind in PATTERNS for part in types)
        self._matches = _matcher(kind) if self._arrow_parses else None
        self._unsafe = _unsafe_decimals(max((part.scale for part in types if part.kind == "decimal"), default=None))

    def decode(self, values: pa.Array) -> Decoded:
        """Decode values to a column. Null values stay null, and are not reported as bad."""
        import pyarrow as pa

        bad: dict[int, str] = {}
        # If Arrow failed too often in the previous batch, halving this one would probably only cost time.
        self._remaining_failures = MAX_ARROW_FAILURES if self._remaining_failures else 1
        given = values.drop_null() if values.null_count else values
        column = self._decode_all(given, bad) if len(given) else pa.array([], self._arrow)
        if not values.null_count:
            return Decoded(column, bad)
        valid = values.is_valid()
        rows = [row for row, is_valid in enumerate(valid.to_pylist()) if is_valid]
        return Decoded(restore_nulls(column, valid), {rows[row]: why for row, why in bad.items()})

    def _decode_all(self, values: pa.Array, bad: dict[int, str]) -> pa.Array:
        """Decode `values`, none of which is null. Values that do not match the type are added to `bad`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._matches is None or len(values) <= MAX_UNSPLIT_VALUES:
            return pa.concat_arrays(self._parts(values, 0, bad))
        column = None if self._mismatches_before else self._parse_batch(values)
        if column is not None:
            return column
        matching = pa.array(map(self._matches, values.to_pylist()))
        others = pc.invert(matching)
        rows = pa.concat_arrays([pc.indices_nonzero(matching), pc.indices_nonzero(others)])
        found: dict[int, str] = {}  # by the position in `rows`
        count = pc.sum(matching, min_count=0).as_py()
        self._mismatches_before = count < len(values)
        parts = self._parts(values.filter(matching), 0, found) if count else []
        parts += self._parse_one_by_one(values.filter(others), count, found) if count < len(values) else []
        bad |= {rows[at].as_py(): why for at, why in found.items()}
        return pa.concat_arrays(parts).take(pc.sort_indices(rows))

    def _parts(self, values: pa.Array, start: int, bad: dict[int, str]) -> list[pa.Array]:
        """Decode `values`, none of which is null. Returns columns that have one row per value in total.

        Values that do not match the type are added to `bad`. `start` is the row number of the first value.
        """
        if self._arrow_parses and self._remaining_failures:
            column = self._parse_batch(values)
            if column is not None:
                return [column]
            self._remaining_failures -= 1
            if len(values) > MAX_UNSPLIT_VALUES and self._remaining_failures:
                half = len(values) // 2
                first = self._parts(values[:half], start, bad)
                return first + self._parts(values[half:], start + half, bad)
        return self._parse_one_by_one(values, start, bad)

    # --- whole batches -----------------------------------------------------------------------------------------------

    def _parse_batch(self, values: pa.Array) -> pa.Array | None:
        """Parse all values with Arrow. Returns None if Arrow rejects one of them."""
        import pyarrow as pa
        import pyarrow.json as pj

        lines = _lines(values)
        if lines is None or (self._unsafe is not None and self._unsafe.search(lines)):
            return None
        try:
            table = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([(name, _parsed_type(kind)) for name, kind in self._shown or NO_FIELDS]),
                    unexpected_field_behavior="ignore",
                ),
            )
            if table.num_rows != len(values):  # one value contained two objects
                return None
            if self._hidden:
                hidden = self._hidden_columns(values)
                if hidden is None:
                    return None
                columns = {name: table[name] for name, _ in self._shown} | hidden
                table = pa.table({name: columns[name] for name, _ in self._kind.fields})
            column = pa.concat_arrays(table.combine_chunks().to_struct_array().chunks)
            return _converted(column, self._kind) if self._needs_conversion else column.cast(self._arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _hidden_columns(self, values: pa.Array) -> dict[str, pa.Array] | None:
        """Decode the fields that Arrow cannot read. Returns None if msgspec rejects one of the values."""
        import pyarrow as pa

        assert self._decode_hidden is not None
        rows = [self._decode_hidden(value) for value in values.to_pylist()]
        if None in rows:
            return None
        columns = zip(self._hidden, zip(*rows, strict=True), strict=True)
        return {
            name: _maps(cells, kind) if _is_plain(kind) else pa.array(cells, _parsed_type(kind))
            for (name, kind), cells in columns
        }

    # --- single values -----------------------------------------------------------------------------------------------

    def _parse_one_by_one(self, values: pa.Array, start: int, bad: dict[int, str]) -> list[pa.Array]:
        rows: list[Any] = []
        parts: list[pa.Array] = []
        for row, value in enumerate(values.to_pylist(), start):
            try:
                rows.append(match(parse(value), self._kind, ""))
            except MismatchError as error:
                bad[row] = str(error)
                rows.append(None)
            except RecursionError:
                nested = self._parse_nested(values[row - start :][:1], row, bad)
                parts += [*self._build(rows, row - len(rows), bad), nested]
                rows = []
        return parts + self._build(rows, start + len(values) - len(rows), bad)

    def _parse_nested(self, value: pa.Array, row: int, bad: dict[int, str]) -> pa.Array:
        """Parse a value that is nested too deep for Python's parser. Returns a column with this row.

        Arrow's parser has no such limit and accepts the value as part of a batch. So it must be accepted here, too.
        """
        import pyarrow as pa

        column = self._parse_batch(value) if self._arrow_parses else None
        if column is not None:
            return column
        bad[row] = "is nested too deep"
        return pa.nulls(1, self._arrow)

    def _build(self, rows: list[Any], start: int, bad: dict[int, str]) -> list[pa.Array]:
        """Convert rows that match the type to columns.

        Rows that match can still contain dates or times that do not exist, such as February 30. They are added to
        `bad`. `start` is the row number of the first row.
        """
        return build_columns(rows, self._to_column, "has a date or a time that does not exist", bad, start)

    def _to_column(self, rows: list[Any]) -> pa.Array:
        import pyarrow as pa

        return _converted(pa.array(rows, _parsed_type(self._kind)), self._kind)


# --- msgspec's parser -------------------------------------------------------------------------------------------------


def _msgspec_for(kinds: list[SparkType], names: Sequence[str] = ()) -> Any:
    """Returns msgspec. Returns None if it is not there, or does not allow a name: one of `names` or in `kinds`."""
    try:
        import msgspec
    except ImportError:
        return None
    inside = (name for kind in kinds for part in kind.walk() for name, _ in part.fields)
    return None if any(UNNAMEABLE.search(name) for name in chain(names, inside)) else msgspec


def _matcher(kind: SparkType) -> Callable[[bytes], bool] | None:
    """Returns a function that says of a value whether Arrow will probably parse it as a struct.

    Returns None if msgspec cannot be used.
    """
    msgspec = _msgspec_for([kind])
    if msgspec is None:
        return None
    decode = msgspec.json.Decoder(_checked_type(kind, msgspec)).decode
    rejected = msgspec.MsgspecError, UnicodeDecodeError, RecursionError

    def matches(value: bytes) -> bool:
        try:
            decode(value.decode())
        except rejected:
            return False
        return True

    return matches


def _fields_decoder(fields: list[tuple[str, SparkType]]) -> Callable[[bytes], list[Any] | None] | None:
    """Returns a function that decodes some fields of a value for `pa.array`. It returns None for rejected values.

    Returns None without msgspec, which decodes maps of plain values, and cuts out the text of other fields, for Python.
    """
    msgspec = _msgspec_for([kind for _, kind in fields], [name for name, _ in fields])
    if msgspec is None:
        return None
    names = [f"field{at}" for at in range(len(fields))]
    types = [_checked_type(kind, msgspec) if _is_plain(kind) else msgspec.Raw for _, kind in fields]
    members = [(name, each | None, None) for name, each in zip(names, types, strict=True)]
    given = dict(zip(names, (name for name, _ in fields), strict=True))
    decode = msgspec.json.Decoder(msgspec.defstruct("Fields", members, rename=given, gc=False)).decode
    parsed = [(at, kind) for at, (_, kind) in enumerate(fields) if not _is_plain(kind)]
    as_tuple = msgspec.structs.astuple

    def decode_fields(value: bytes) -> list[Any] | None:
        try:
            found = list(as_tuple(decode(value.decode())))
            for at, kind in parsed:
                if found[at] is not None:
                    found[at] = match(parse(bytes(found[at])), kind, ".")
            return found
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MismatchError):
            return None

    return decode_fields


def _is_plain(kind: SparkType) -> bool:
    """Returns True for maps whose values msgspec and Python parse to equal objects: not for floats, -0 is one of 0."""
    return kind.kind == "map" and kind.element.kind in PLAIN


def _maps(cells: Sequence[dict[str, Any] | None], kind: SparkType) -> pa.Array:
    """Convert dicts to a column of maps. `pa.array` needs three times as long."""
    import pyarrow as pa

    present = [cell or {} for cell in cells]
    ends = list(accumulate(map(len, present), initial=0))
    starts = [None if cell is None else end for cell, end in zip(cells, ends[:-1], strict=True)]
    keys = pa.array(list(chain.from_iterable(present)), pa.string())
    items = list(chain.from_iterable(each.values() for each in present))
    offsets = pa.array([*starts, ends[-1]], pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, pa.array(items, _parsed_type(kind.element)))


def _checked_type(kind: SparkType, msgspec: Any) -> Any:
    """Returns the type by which msgspec checks values of a type."""
    if kind.kind == "struct":
        names = [f"field{at}" for at in range(len(kind.fields))]
        fields = [
            (name, _checked_type(part, msgspec) | None, None)
            for name, (_, part) in zip(names, kind.fields, strict=True)
        ]
        given = dict(zip(names, (name for name, _ in kind.fields), strict=True))
        return msgspec.defstruct("Checked", fields, rename=given, gc=False)
    if kind.kind == "array":
        return GenericAlias(list, (_checked_type(kind.element, msgspec) | None,))
    if kind.kind == "map":
        return GenericAlias(dict, (str, _checked_type(kind.element, msgspec) | None))
    if kind.kind in RANGES:
        limit = 2 ** RANGES[kind.kind]
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if kind.kind in PATTERNS:
        return Annotated[str, msgspec.Meta(pattern=PATTERNS[kind.kind].replace("$", r"\Z"))]
    return {"boolean": bool, "float": float, "double": float, "string": str}.get(kind.kind, Any)


# --- Arrow's parser --------------------------------------------------------------------------------------------------


def _arrow_reads(kind: SparkType) -> bool:
    """Returns False for types that Arrow's parser does not have (maps), or reads in another form (bytes as text)."""
    return not any(part.kind in ("map", "binary") for part in kind.walk())


def _lines(values: pa.Array) -> bytes | None:
    """Join values with newlines, for Arrow's parser.

    Returns None if Arrow might parse the values differently from Python.

    Every value must begin and end with a brace. Then no object can continue in the next value: a JSON string contains
    no raw newline, and inside an object `}` is never directly followed by `{`. So if the parser returns as many rows as
    there are values, each row is one value.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    if texts.nbytes > MAX_ARROW_BYTES:
        return None
    if not _are_objects(texts):
        texts = pc.ascii_trim(texts, characters=" \t\r\n")
        if not _are_objects(texts):
            return None
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes()
    # Arrow's parser accepts `Inf` as a number; Spark and Python do not.
    return None if b"Inf" in joined and re.search(INF, joined) else joined


def _unsafe_decimals(scale: int | None) -> re.Pattern[bytes] | None:
    """Returns a pattern that finds numbers that Arrow may parse wrongly as decimals.

    `scale` is the largest scale of the decimals in a type. If it is None, the type has no decimals, and None is
    returned. For a number with an exponent, Arrow may read beyond its table of powers of ten (1e-999 crashes it). A
    number with many digits may overflow.
    """
    if scale is None:
        return None
    number = rb"[0-9.]{%d}|[-+0-9.]*[eE][-+0-9.eE]*\s*[\",}\]]" % max(1, MAX_DIGITS - scale)
    escaped = rb"\"[-+0-9.eE]*\\u00[2-6]"  # a digit or an e that is written as an escape
    return re.compile(rb"[:,\[]\s*(?:\"?[-+]?(?:%s)|%s)" % (number, escaped))


def _are_objects(texts: pa.Array) -> bool:
    import pyarrow.compute as pc

    braces = pc.and_(pc.starts_with(texts, pattern="{"), pc.ends_with(texts, pattern="}"))
    return bool(pc.all(braces).as_py())


def _parsed_type(kind: SparkType) -> pa.DataType:
    """Returns the Arrow type that both parsers produce for a type. `_converted` turns it into the final type."""
    import pyarrow as pa

    if kind.kind in PATTERNS:
        return pa.string()
    if kind.kind == "float":
        return pa.float64()
    if kind.kind == "decimal":
        return pa.decimal128(MAX_DIGITS, kind.scale)  # the parser ignores the precision, the later cast checks it
    if kind.kind == "struct":
        return pa.struct([(name, _parsed_type(inner)) for name, inner in kind.fields])
    if kind.kind == "array":
        return pa.list_(_parsed_type(kind.element))
    if kind.kind == "map":
        return pa.map_(pa.string(), _parsed_type(kind.element))
    return kind.arrow()


def _converted(column: pa.Array, kind: SparkType) -> pa.Array:
    """Convert a parsed column to its final type. Raises ArrowInvalid for text that is not a date or time."""
    import pyarrow as pa

    arrow = kind.arrow()
    if kind.kind == "struct":
        parts = zip(column.flatten(), kind.fields, strict=True)  # flatten makes fields of a null struct null
        inner = [_converted(part, inside) for part, (_, inside) in parts]
        return pa.StructArray.from_arrays(inner, fields=list(arrow), mask=column.is_null())
    if kind.kind == "array":
        # `values` ignores the offset of a slice. This column is not a slice: it was parsed or concatenated.
        inside = _converted(column.values, kind.element)
        return pa.ListArray.from_arrays(column.offsets, inside, arrow, mask=column.is_null())
    if kind.kind == "map":
        inside = _converted(column.items, kind.element)
        return pa.MapArray.from_arrays(column.offsets, column.keys, inside, arrow, mask=column.is_null())
    if kind.kind in PATTERNS:
        return _times(column, kind.kind)
    return column.cast(arrow)


# --- dates and times, for both parsers --------------------------------------------------------------------------------

PLAIN = ("boolean", "string", *RANGES, *PATTERNS)


def _times(texts: pa.Array, kind: str) -> pa.Array:
    """Parse dates such as `2024-01-31`, or times in ISO 8601. The default zone is UTC; nanoseconds are truncated.

    Raises ArrowInvalid for other text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(texts, PATTERNS[kind]), min_count=0).as_py():
        raise pa.ArrowInvalid(f"text that is not a {kind}")
    if kind == "date":
        return texts.cast(pa.date32())
    with contextlib.suppress(pa.ArrowInvalid):  # Arrow parses the common forms itself
        return texts.cast(pa.timestamp("us", tz="UTC" if kind == "timestamp" else None))
    texts = pc.replace_substring_regex(texts, pattern=r"([.][0-9]{6})[0-9]+", replacement=r"\1")
    if kind == "timestamp_ntz":
        return texts.cast(pa.timestamp("us"))
    texts = pc.replace_substring_regex(texts, pattern=f"^({DATE})$", replacement=r"\1T00:00:00")
    zoneless = pc.match_substring_regex(texts, f"^{CLOCK}$")
    texts = pc.if_else(zoneless, pc.binary_join_element_wise(texts, "Z", ""), texts)
    return texts.cast(pa.timestamp("us", tz="UTC"))
