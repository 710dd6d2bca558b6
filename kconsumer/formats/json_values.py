"""Parses one JSON value in Python, and says why it does not match the type of its column.

`json_columns.py` passes it the values that the faster parsers reject. Numbers stay the text in which they were written,
until the type of the column says what they become.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from kconsumer.formats.column_types import MAX_DIGITS, SparkType

RANGES = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}  # type -> bits without the sign
NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf"}
NOT_FINITE |= {"-Infinity": "-inf", "-INF": "-inf"}
DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
EXACT = Context(prec=2 * MAX_DIGITS, rounding=ROUND_HALF_UP)
DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
CLOCK = f"{DATE}[ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,9}})?)?"
ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
PATTERNS = {"date": f"^{DATE}$", "timestamp": f"^({DATE}|{CLOCK}{ZONE}?)$", "timestamp_ntz": f"^({DATE}|{CLOCK})$"}


class MismatchError(Exception):
    """A value does not match the type. The message contains the reason."""


class Number(str):
    """A number that was parsed from JSON, as the text in which it was written."""

    __slots__ = ()


DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)


def parse(value: bytes) -> Any:
    """Parse a value. Numbers stay text. Raises MismatchError if it is not JSON."""
    try:
        return DECODER.decode(value.decode("utf-8"))
    except UnicodeDecodeError:
        raise MismatchError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise MismatchError(f"is not JSON: {error}") from None


def match(given: Any, kind: SparkType, where: str) -> Any:
    """Convert parsed JSON for `pa.array`. Raises MismatchError if it does not match the type.

    `where` is the path of `given` in the record's value, such as `.items[2]`, or empty for the value itself. A null
    inside the value matches every type. The value itself must not be null, because its row would then be equal to that
    of a record without a value.
    """
    if given is None and where:
        return None
    if kind.kind == "struct" and isinstance(given, dict):
        return {name: match(given.get(name), part, f"{where}.{name}") for name, part in kind.fields}
    if kind.kind == "array" and isinstance(given, list):
        return [match(item, kind.element, f"{where}[{at}]") for at, item in enumerate(given)]
    if kind.kind == "map" and isinstance(given, dict):
        return [(_encodable(key, where), match(item, kind.element, f"{where}.{key}")) for key, item in given.items()]
    convert = SCALARS.get(kind.kind)
    try:
        if convert is not None and given is not None:
            return convert(given, kind)
    except (ValueError, ArithmeticError):
        pass
    shown = _written(given)
    place = f" at {where[1:]}" if where else ""
    raise MismatchError(f"{'has' if where else 'is'} {_shorten(shown)}{place}, which is not {_shorten(kind.simple)}")


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _encodable(text: str, where: str) -> str:
    """Returns the text. Raises MismatchError for lone surrogates (`\\ud800`), which UTF-8 cannot encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise MismatchError(f"has a lone surrogate{' at ' + where[1:] if where else ''}") from None
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
    if number and number.adjusted() > MAX_DIGITS:  # quantize would write up to a million zeros for 1e999999
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
    return _encodable(str(text), "")


def _binary(given: Any, kind: SparkType) -> bytes:
    if not isinstance(given, str) or isinstance(given, Number):
        raise ValueError
    return binascii.a2b_base64(given.encode("ascii"), strict_mode=True)


def _time(given: Any, kind: SparkType) -> str:
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
    **dict.fromkeys(PATTERNS, _time),
}


def _written(given: Any) -> str:
    """Convert parsed JSON back to text. Numbers are written as in the original text."""
    if isinstance(given, Number):
        return str(given)
    if isinstance(given, dict):
        return "{" + ",".join(f"{_written(key)}:{_written(item)}" for key, item in given.items()) + "}"
    if isinstance(given, list):
        return "[" + ",".join(map(_written, given)) + "]"
    return json.dumps(given, ensure_ascii=False)
