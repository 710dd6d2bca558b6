"""Values that are JSON objects, as a struct: what fits the schema as Spark's `from_json` reads it, and what does not.

Whole batches go through Arrow's parser, which knows less than `from_json`: what it refuses is halved until the values
at fault are few, and these are read one by one. So both ways must agree wherever the first one succeeds; dates
and times are texts at first in both ways, and the same function makes them what they are.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from kconsumer.spark.formats import Decoded, built, spread
from kconsumer.spark.types import MOST_DIGITS, SparkType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Json"]

FEW = 64  # values that are read one by one rather than halved again
TRIES = 64  # times a batch's values are halved
LARGEST = 1 << 30  # bytes; Arrow's parser counts in 32 bits
RANGES = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf"}
NOT_FINITE |= {"-Infinity": "-inf", "-INF": "-inf"}
INF = rb"[:,\[]\s*[-+]?Inf\s*[,}\]]"
DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
EXACT = Context(prec=2 * MOST_DIGITS, rounding=ROUND_HALF_UP)


class Json:
    """Decodes to the struct `kind` (or to another type, then each value is of that type)."""

    def __init__(self, kind: SparkType) -> None:
        self._kind, self._arrow = kind, kind.arrow()
        parts = list(kind.walk())
        self._tries = TRIES
        # Arrow's parser makes no maps, and bytes of text instead of base 64.
        self._whole = kind.kind == "struct" and not any(part.kind in ("map", "binary") for part in parts)
        self._later = any(part.kind in ("float", "decimal") or part.kind in PATTERNS for part in parts)
        self._odd = _odd_decimals(max((part.scale for part in parts if part.kind == "decimal"), default=None))

    def decode(self, values: pa.Array) -> Decoded:
        """The struct of each value."""
        import pyarrow as pa

        bad: dict[int, str] = {}
        self._tries = TRIES if self._tries else 1  # where most values take the longer way, halving only costs
        given = values.drop_null() if values.null_count else values
        column = pa.concat_arrays(self._pieces(given, 0, bad)) if len(given) else pa.array([], self._arrow)
        if not values.null_count:
            return Decoded(column, bad)
        there = values.is_valid()
        rows = [row for row, is_there in enumerate(there.to_pylist()) if is_there]
        return Decoded(spread(column, there), {rows[row]: why for row, why in bad.items()})

    def _pieces(self, values: pa.Array, start: int, bad: dict[int, str]) -> list[pa.Array]:
        """Columns that make up the one of `values`, which are without null; `start` is the row of the first."""
        if self._whole and self._tries:
            column = self._at_once(values)
            if column is not None:
                return [column]
            self._tries -= 1
            if len(values) > FEW and self._tries:
                half = len(values) // 2
                first = self._pieces(values[:half], start, bad)
                return first + self._pieces(values[half:], start + half, bad)
        return self._one_by_one(values, start, bad)

    # --- at once -----------------------------------------------------------------------------------------------------

    def _at_once(self, values: pa.Array) -> pa.Array | None:
        """All values through Arrow's parser; None if one of them is not what it takes."""
        import pyarrow as pa
        import pyarrow.json as pj

        lines = _lines(values)
        if lines is None or (self._odd is not None and self._odd.search(lines)):
            return None
        try:
            table = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([(name, _wire(kind)) for name, kind in self._kind.fields]),
                    unexpected_field_behavior="ignore",
                ),
            )
            if table.num_rows != len(values):  # a value that is two objects
                return None
            column = pa.concat_arrays(table.to_struct_array().chunks)
            return _finished(column, self._kind) if self._later else column.cast(self._arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None  # the caller halves the values, and tells the last ones apart one by one

    # --- one by one --------------------------------------------------------------------------------------------------

    def _one_by_one(self, values: pa.Array, start: int, bad: dict[int, str]) -> list[pa.Array]:
        rows: list[Any] = []
        pieces: list[pa.Array] = []
        for row, value in enumerate(values.to_pylist(), start):
            try:
                rows.append(_fit(_parse(value), self._kind, ""))
            except Misfit as misfit:
                bad[row] = str(misfit)
                rows.append(None)
            except RecursionError:
                pieces += [*self._built(rows, row - len(rows), bad), self._deep(values[row - start :][:1], row, bad)]
                rows = []
        return pieces + self._built(rows, start + len(values) - len(rows), bad)

    def _deep(self, value: pa.Array, row: int, bad: dict[int, str]) -> pa.Array:
        """Arrow's parser nests without end: it takes the value here since it would beside others."""
        import pyarrow as pa

        column = self._at_once(value) if self._whole else None
        if column is not None:
            return column
        bad[row] = "is nested too deep"
        return pa.nulls(1, self._arrow)

    def _built(self, rows: list[Any], start: int, bad: dict[int, str]) -> list[pa.Array]:
        """The rows as columns; only days that no calendar has can be wrong with them now."""
        return built(rows, self._made, "has a date or a time that does not exist", bad, start)

    def _made(self, rows: list[Any]) -> pa.Array:
        import pyarrow as pa

        return _finished(pa.array(rows, _wire(self._kind)), self._kind)


# --- Arrow's parser --------------------------------------------------------------------------------------------------


def _lines(values: pa.Array) -> bytes | None:
    """The values with newlines between them, None if they might be taken for others than they are.

    Each begins with a brace and ends with one, and no string may have a newline in it: so where one value ends and
    the next begins there can be nothing but the end of an object. With as many rows as values each value is one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    if texts.nbytes > LARGEST:
        return None
    if not _are_objects(texts):
        texts = pc.ascii_trim(texts, characters=" \t\r\n")
        if not _are_objects(texts):
            return None
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes()
    # The parser takes `Inf` for a number, and nobody else does.
    return None if b"Inf" in joined and re.search(INF, joined) else joined


def _odd_decimals(scale: int | None) -> re.Pattern[bytes] | None:
    """Finds what Arrow may read wrongly as a decimal, of which `scale` is the largest; None without decimals.

    With an exponent it reads beyond its table of powers of ten (and crashes at 1e-999), with many digits it overflows.
    """
    if scale is None:
        return None
    number = rb"[0-9.]{%d}|[-+0-9.]*[eE][-+0-9.eE]*\s*[\",}\]]" % max(1, MOST_DIGITS - scale)
    escaped = rb"\"[-+0-9.eE]*\\u00[2-6]"  # a digit or an e that is written as an escape
    return re.compile(rb"[:,\[]\s*(?:\"?[-+]?(?:%s)|%s)" % (number, escaped))


def _are_objects(texts: pa.Array) -> bool:
    import pyarrow.compute as pc

    braces = pc.and_(pc.starts_with(texts, pattern="{"), pc.ends_with(texts, pattern="}"))
    return bool(pc.all(braces).as_py())


def _wire(kind: SparkType) -> pa.DataType:
    """What Arrow's parser is to make, where that is not yet the type itself."""
    import pyarrow as pa

    if kind.kind in PATTERNS:
        return pa.string()
    if kind.kind == "float":
        return pa.float64()
    if kind.kind == "decimal":
        return pa.decimal128(MOST_DIGITS, kind.scale)  # the parser does not look at the precision, the cast does
    if kind.kind == "struct":
        return pa.struct([(name, _wire(inner)) for name, inner in kind.fields])
    if kind.kind == "array":
        return pa.list_(_wire(kind.element))
    if kind.kind == "map":
        return pa.map_(pa.string(), _wire(kind.element))
    return kind.arrow()


def _finished(column: pa.Array, kind: SparkType) -> pa.Array:
    """The column in its own type. ArrowInvalid where a text is none."""
    import pyarrow as pa

    arrow = kind.arrow()
    if kind.kind == "struct":
        parts = zip(column.flatten(), kind.fields, strict=True)  # what is within a null is null, not an empty text
        inner = [_finished(part, inside) for part, (_, inside) in parts]
        return pa.StructArray.from_arrays(inner, fields=list(arrow), mask=column.is_null())
    if kind.kind == "array":
        # Concatenated above, so the column begins at its first row; null lists are empty.
        inside = _finished(column.values, kind.element)
        return pa.ListArray.from_arrays(column.offsets, inside, arrow, mask=column.is_null())
    if kind.kind == "map":
        inside = _finished(column.items, kind.element)
        return pa.MapArray.from_arrays(column.offsets, column.keys, inside, arrow, mask=column.is_null())
    if kind.kind in PATTERNS:
        return _times(column, kind.kind)
    return column.cast(arrow)


# --- dates and times, for both ways -----------------------------------------------------------------------------------

DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
CLOCK = f"{DATE}[ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,9}})?)?"
ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
PATTERNS = {
    "date": f"^{DATE}$",
    "timestamp": f"^({DATE}|{CLOCK}{ZONE}?)$",
    "timestamp_ntz": f"^({DATE}|{CLOCK})$",
}


def _times(texts: pa.Array, kind: str) -> pa.Array:
    """Days of `2024-01-31`, moments of ISO 8601: digits below microseconds are cut off, without a zone it is UTC.

    ArrowInvalid for what is none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(texts, PATTERNS[kind]), min_count=0).as_py():
        raise pa.ArrowInvalid("not such a text")
    if kind == "date":
        return texts.cast(pa.date32())
    with contextlib.suppress(pa.ArrowInvalid):  # the usual form
        return texts.cast(pa.timestamp("us", tz="UTC" if kind == "timestamp" else None))
    texts = pc.replace_substring_regex(texts, pattern=r"([.][0-9]{6})[0-9]+", replacement=r"\1")
    if kind == "timestamp_ntz":
        return texts.cast(pa.timestamp("us"))
    texts = pc.replace_substring_regex(texts, pattern=f"^({DATE})$", replacement=r"\1T00:00:00")
    zoneless = pc.match_substring_regex(texts, f"^{CLOCK}$")
    texts = pc.if_else(zoneless, pc.binary_join_element_wise(texts, "Z", ""), texts)
    return texts.cast(pa.timestamp("us", tz="UTC"))


# --- Python's parser -------------------------------------------------------------------------------------------------


class Misfit(Exception):
    """Says what is wrong with a value."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)


def _parse(value: bytes) -> Any:
    try:
        return DECODER.decode(value.decode("utf-8"))
    except UnicodeDecodeError:
        raise Misfit("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"is not JSON: {error}") from None


def _fit(given: Any, kind: SparkType, where: str) -> Any:
    """What `pa.array` takes for the type. Null is null in any type but at the top, where it would hide what it is."""
    if given is None and where:
        return None
    if kind.kind == "struct" and isinstance(given, dict):
        return {name: _fit(given.get(name), part, f"{where}.{name}") for name, part in kind.fields}
    if kind.kind == "array" and isinstance(given, list):
        return [_fit(item, kind.element, f"{where}[{at}]") for at, item in enumerate(given)]
    if kind.kind == "map" and isinstance(given, dict):
        return [(_valid(key, where), _fit(item, kind.element, f"{where}.{key}")) for key, item in given.items()]
    fit = SCALARS.get(kind.kind)
    try:
        if fit is not None and given is not None:
            return fit(given, kind)
    except (ValueError, ArithmeticError):
        pass
    shown = _written(given)
    place = f" at {where[1:]}" if where else ""
    raise Misfit(f"{'has' if where else 'is'} {_short(shown)}{place}, which is no {_short(kind.simple)}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _valid(text: str, where: str) -> str:
    """A text, if it has no half characters (`\\ud800`), which UTF-8 cannot say."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Misfit(f"has half a character{' at ' + where[1:] if where else ''}") from None
    return text


def _boolean(given: Any, kind: SparkType) -> bool:
    if not isinstance(given, bool):
        raise ValueError
    return given


def _integer(given: Any, kind: SparkType) -> int:
    if not isinstance(given, Number) or not -(2 ** RANGES[kind.kind]) <= int(given) < 2 ** RANGES[kind.kind]:
        raise ValueError
    return int(given)


def _float(given: Any, kind: SparkType) -> float:
    if not isinstance(given, str) or (not isinstance(given, Number) and given not in NOT_FINITE):
        raise ValueError
    return float(NOT_FINITE.get(given, given))


def _decimal(given: Any, kind: SparkType) -> Decimal:
    if not isinstance(given, str) or not DECIMAL.fullmatch(given):
        raise ValueError
    number = Decimal(given)
    if number and number.adjusted() > MOST_DIGITS:  # before quantizing writes a million zeros
        raise ValueError
    try:
        number = number.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    except InvalidOperation:
        raise ValueError from None
    if number and number.adjusted() >= kind.precision - kind.scale:
        raise ValueError
    return number


def _string(given: Any, kind: SparkType) -> str:
    text = given if isinstance(given, str) else _written(given)
    return _valid(str(text), "")


def _binary(given: Any, kind: SparkType) -> bytes:
    if not isinstance(given, str) or isinstance(given, Number):
        raise ValueError
    return binascii.a2b_base64(given.encode("ascii"), strict_mode=True)


def _moment(given: Any, kind: SparkType) -> str:
    if not isinstance(given, str) or isinstance(given, Number) or not re.fullmatch(PATTERNS[kind.kind], given):
        raise ValueError
    return str(given)


SCALARS: dict[str, Callable[[Any, SparkType], Any]] = {
    "boolean": _boolean,
    **dict.fromkeys(RANGES, _integer),
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    **dict.fromkeys(PATTERNS, _moment),
}


def _written(given: Any) -> str:
    """JSON of what was parsed, numbers as they were written."""
    if isinstance(given, Number):
        return str(given)
    if isinstance(given, dict):
        return "{" + ",".join(f"{_written(key)}:{_written(item)}" for key, item in given.items()) + "}"
    if isinstance(given, list):
        return "[" + ",".join(map(_written, given)) + "]"
    return json.dumps(given, ensure_ascii=False)
