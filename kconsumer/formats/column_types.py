"""Spark's types as plain data: parsed from Spark's DDL or JSON, printed as DDL, converted to Arrow types.

Spark's own parser runs in the JVM, which the processes that plan Python sources do not have. Only types that values can
be decoded to are supported, so no intervals, variants or char. All types are nullable, as in `from_json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["MAX_DIGITS", "SparkType", "array_of", "decimal", "map_of", "parse_type", "struct"]

MAX_DIGITS = 38  # maximum precision of a decimal
MAX_DEPTH = 100  # maximum nesting of types; Spark's own limit is far above

# Names that Spark accepts -> the name that Spark prints.
NAMES = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
DECIMALS = ("decimal", "dec", "numeric")


@dataclass(frozen=True)
class SparkType:
    """A type of Spark, with the types that it contains."""

    kind: str  # as Spark prints it
    fields: tuple[tuple[str, SparkType], ...] = ()  # an array has the field `element`, a map `key` and `value`
    precision: int = 0
    scale: int = 0

    @property
    def element(self) -> SparkType:
        """The type of the elements of an array, or of the values of a map."""
        return self.fields[-1][1]

    @property
    def simple(self) -> str:
        """The type as Spark's `simpleString` prints it."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{kind.simple}" for name, kind in self.fields) + ">"
        inner = ",".join(kind.simple for _, kind in self.fields)
        return f"{self.kind}<{inner}>" if inner else self.kind

    @property
    def ddl(self) -> str:
        """The type as DDL that Spark parses, with the names of fields in backticks."""
        if self.kind == "struct":
            return "struct<" + ",".join(f"`{name.replace('`', '``')}`:{kind.ddl}" for name, kind in self.fields) + ">"
        inner = ",".join(kind.ddl for _, kind in self.fields)
        if self.kind == "timestamp":
            return "timestamp_ltz"  # the meaning of `timestamp` depends on the session
        return f"{self.kind}<{inner}>" if inner else self.simple

    def arrow(self) -> pyarrow.DataType:
        """Returns the Arrow type that Spark expects from a Python source."""
        import pyarrow as pa

        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "struct":
            return pa.struct([(name, kind.arrow()) for name, kind in self.fields])
        if self.kind == "array":
            return pa.list_(pa.field("element", self.element.arrow()))
        if self.kind == "map":
            return pa.map_(self.fields[0][1].arrow(), self.element.arrow())
        plain = {
            "boolean": pa.bool_(),
            "tinyint": pa.int8(),
            "smallint": pa.int16(),
            "int": pa.int32(),
            "bigint": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "string": pa.string(),
            "binary": pa.binary(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestamp_ntz": pa.timestamp("us"),
        }
        return plain[self.kind]

    def walk(self) -> Iterator[SparkType]:
        """Yield this type and all types that it contains."""
        yield self
        for _, kind in self.fields:
            yield from kind.walk()


def struct(fields: list[tuple[str, SparkType]]) -> SparkType:
    """Returns a struct type. Raises ConfigError if there is no field, or if two fields have the same name."""
    names = [name for name, _ in fields]
    if not names:
        raise ConfigError("a struct has no field")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError(f"the field {repeated!r} is repeated")
    return SparkType("struct", tuple(fields))


def array_of(element: SparkType) -> SparkType:
    return SparkType("array", (("element", element),))


def map_of(value: SparkType) -> SparkType:
    """Returns a map type with strings as keys."""
    return SparkType("map", (("key", SparkType("string")), ("value", value)))


def decimal(precision: int, scale: int) -> SparkType:
    """Returns a decimal type. Raises ConfigError if Spark does not allow the precision or the scale."""
    if not 0 < precision <= MAX_DIGITS or not 0 <= scale <= precision:
        raise ConfigError(
            f"decimal({precision},{scale}) is not a type of Spark: the precision is 1 to {MAX_DIGITS}, the scale at"
            " most the precision"
        )
    return SparkType("decimal", (), precision, scale)


def parse_type(text: str) -> SparkType:
    """Parse a type in DDL or in Spark's JSON. Raises ConfigError with the place of a mistake.

    DDL is a list of fields, such as `id long, tags array<string>`, or one type, such as `struct<id:long>`.
    """
    try:
        if text.lstrip().startswith(("{", '"')):
            return _from_json(json.loads(text), 0)
        return _DdlParser(text).parse()
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from None


# --- Spark's JSON ----------------------------------------------------------------------------------------------------


def _from_json(given: Any, depth: int) -> SparkType:
    if depth > MAX_DEPTH:
        raise ConfigError(f"the types are nested deeper than {MAX_DEPTH} levels")
    if isinstance(given, str):
        return _named(given)
    kind = given.get("type") if isinstance(given, dict) else None
    try:
        if kind == "struct":
            return struct([(str(field["name"]), _from_json(field["type"], depth + 1)) for field in given["fields"]])
        if kind == "array":
            return array_of(_from_json(given["elementType"], depth + 1))
        if kind == "map":
            return _checked_map(_from_json(given["keyType"], depth + 1), _from_json(given["valueType"], depth + 1))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"the {kind} in Spark's JSON lacks {error}") from None
    raise ConfigError(f"{json.dumps(given)[:80]} is not a type in Spark's JSON")


def _named(name: str) -> SparkType:
    """Returns the type with a name such as `long` or `decimal(10,2)`. It is not an array, a map or a struct."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*", name, re.ASCII)
    word = match[1].lower() if match else ""
    if match and word in DECIMALS:
        return decimal(int(match[2] or 10), int(match[3] or 0))
    if match and match[2] is None and word in NAMES:
        return SparkType(NAMES[word])
    raise ConfigError(
        f"values cannot be decoded to {name.strip()!r}; the types are {', '.join(dict.fromkeys(NAMES))}, decimal,"
        " array, map and struct"
    )


def _checked_map(key: SparkType, value: SparkType) -> SparkType:
    if key.kind != "string":
        raise ConfigError(f"the keys of a map must be strings, not {key.simple}")
    return map_of(value)


# --- DDL -------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(.))", re.DOTALL)


class _DdlParser:
    """Parses DDL token by token."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[0].strip() for match in TOKEN.finditer(text.strip())]
        self._at = 0

    def parse(self) -> SparkType:
        """Parse the whole text: one type, or the fields of a struct."""
        second = self._tokens[1:2]
        one_type = len(self._tokens) == 1 or second == ["<"]
        one_type = one_type or (second == ["("] and self._tokens[-1:] == [")"] and self._tokens[0].lower() in DECIMALS)
        found = self._type(0) if one_type else self._fields(None, 0)
        if self._at != len(self._tokens):
            raise ConfigError(f"{self._tokens[self._at]!r} is not expected after {self._previous()}")
        return found

    def _previous(self) -> str:
        return repr(" ".join(self._tokens[max(0, self._at - 4) : self._at]) or "the beginning")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if not token or (expected and token not in expected):
            raise ConfigError(f"{' or '.join(expected) or 'a word'} is missing after {self._previous()}")
        self._at += 1
        return token

    def _fields(self, end: str | None, depth: int) -> SparkType:
        fields = []
        while True:
            name = self._take()
            if not re.fullmatch(r"`.+`|\w+", name, re.DOTALL):
                raise ConfigError(f"{name!r} is not a name of a field; put it between backticks")
            if self._peek() == ":":
                self._take()
            name = name[1:-1].replace("``", "`") if name[0] == "`" else name
            fields.append((name, self._type(depth)))
            self._skip_attributes()
            if self._peek() != ",":
                break
            self._take()
        if end is not None:
            self._take(end)
        return struct(fields)

    def _skip_attributes(self) -> None:
        """Skip NOT NULL and COMMENT, which do not affect decoding."""
        if self._peek().upper() == "NOT":
            self._take()
            if self._take().upper() != "NULL":
                raise ConfigError(f"NULL is missing after {self._previous()}")
        if self._peek().upper() == "COMMENT":
            self._take()
            self._take()

    def _type(self, depth: int) -> SparkType:
        if depth > MAX_DEPTH:
            raise ConfigError(f"the types are nested deeper than {MAX_DEPTH} levels")
        name = self._take()
        kind = name.lower()
        if kind in ("array", "map", "struct"):
            self._take("<")
            if kind == "struct":
                return self._fields(">", depth + 1)
            inner = self._type(depth + 1)
            if kind == "map":
                self._take(",")
                inner = _checked_map(inner, self._type(depth + 1))
            self._take(">")
            return inner if kind == "map" else array_of(inner)
        if self._peek() == "(":
            while self._peek() != ")":
                name += self._take()
            name += self._take(")")
        return _named(name)
