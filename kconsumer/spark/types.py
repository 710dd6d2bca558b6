"""Spark's types as plain data: read from Spark's DDL or its JSON, written as DDL and as the Arrow types they travel as.

Spark itself reads DDL in its JVM, which the processes that plan Python sources do not have. Only what values can be
decoded to is known here: no intervals, no variants, no char. Everything is nullable, as `from_json` makes it.
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

__all__ = ["MOST_DIGITS", "SparkType", "array_of", "decimal", "map_of", "parse_type", "struct"]

MOST_DIGITS = 38
DEEPEST = 100  # Spark's own parser gives up far later; nobody means it

# What users write -> the name Spark prints.
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
    """A type: its kind as Spark prints it, and the types within.

    `fields` of a struct are its own; an array has one (`element`), a map two (`key`, `value`).
    """

    kind: str
    fields: tuple[tuple[str, SparkType], ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def element(self) -> SparkType:
        """What an array has, and the values of a map are."""
        return self.fields[-1][1]

    @property
    def simple(self) -> str:
        """As `simpleString` has it."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{kind.simple}" for name, kind in self.fields) + ">"
        inner = ",".join(kind.simple for _, kind in self.fields)
        return f"{self.kind}<{inner}>" if inner else self.kind

    @property
    def ddl(self) -> str:
        """As Spark reads it, whatever the names of fields are."""
        if self.kind == "struct":
            return "struct<" + ",".join(f"`{name.replace('`', '``')}`:{kind.ddl}" for name, kind in self.fields) + ">"
        inner = ",".join(kind.ddl for _, kind in self.fields)
        if self.kind == "timestamp":
            return "timestamp_ltz"  # whatever a session takes `timestamp` for
        return f"{self.kind}<{inner}>" if inner else self.simple

    def arrow(self) -> pyarrow.DataType:
        """As Spark wants it from a Python source."""
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
        """This type and all within."""
        yield self
        for _, kind in self.fields:
            yield from kind.walk()


def struct(fields: list[tuple[str, SparkType]]) -> SparkType:
    """A struct. ConfigError without a field, or with two of one name."""
    names = [name for name, _ in fields]
    if not names:
        raise ConfigError("a struct has no field")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"the field {twice!r} is there twice")
    return SparkType("struct", tuple(fields))


def array_of(element: SparkType) -> SparkType:
    """An array."""
    return SparkType("array", (("element", element),))


def map_of(value: SparkType) -> SparkType:
    """A map with strings as keys."""
    return SparkType("map", (("key", SparkType("string")), ("value", value)))


def decimal(precision: int, scale: int) -> SparkType:
    """A decimal. ConfigError for one that Spark has not."""
    if not 0 < precision <= MOST_DIGITS or not 0 <= scale <= precision:
        raise ConfigError(f"decimal({precision},{scale}) is beyond Spark's {MOST_DIGITS} digits")
    return SparkType("decimal", (), precision, scale)


def parse_type(text: str) -> SparkType:
    """A type from DDL (`id long, tags array<string>`, or one type such as `struct<id:long>`) or from Spark's JSON.

    ConfigError says where it goes wrong.
    """
    try:
        if text.lstrip().startswith(("{", '"')):
            return _from_json(json.loads(text), 0)
        return _Ddl(text).whole()
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"no JSON: {error}") from None


# --- Spark's JSON ----------------------------------------------------------------------------------------------------


def _from_json(given: Any, depth: int) -> SparkType:
    if depth > DEEPEST:
        raise ConfigError("types within types, too deep")
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
    raise ConfigError(f"{json.dumps(given)[:80]} is no type of Spark's JSON")


def _named(name: str) -> SparkType:
    """A type without others in it."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*", name, re.ASCII)
    word = match[1].lower() if match else ""
    if match and word in DECIMALS:
        return decimal(int(match[2] or 10), int(match[3] or 0))
    if match and match[2] is None and word in NAMES:
        return SparkType(NAMES[word])
    raise ConfigError(f"values cannot be decoded to {name.strip()!r}; there are {', '.join(dict.fromkeys(NAMES))}")


def _checked_map(key: SparkType, value: SparkType) -> SparkType:
    if key.kind != "string":
        raise ConfigError(f"the keys of a map are strings, not {key.simple}")
    return map_of(value)


# --- DDL -------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(.))", re.DOTALL)


class _Ddl:
    """Reads DDL word by word."""

    def __init__(self, text: str) -> None:
        self._words = [match[0].strip() for match in TOKEN.finditer(text.strip())]
        self._at = 0

    def whole(self) -> SparkType:
        """One type, or the fields of a struct, and nothing behind."""
        following = self._words[1:2]
        one_type = len(self._words) == 1 or following == ["<"]
        one_type = one_type or (following == ["("] and self._words[-1:] == [")"] and self._words[0].lower() in DECIMALS)
        found = self._type(0) if one_type else self._fields(None, 0)
        if self._at != len(self._words):
            raise ConfigError(f"{self._words[self._at]!r} is not expected behind {self._behind()}")
        return found

    def _behind(self) -> str:
        return repr(" ".join(self._words[max(0, self._at - 4) : self._at]) or "the beginning")

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self, *expected: str) -> str:
        word = self._peek()
        if not word or (expected and word not in expected):
            raise ConfigError(f"{' or '.join(expected) or 'a word'} is missing behind {self._behind()}")
        self._at += 1
        return word

    def _fields(self, end: str | None, depth: int) -> SparkType:
        fields = []
        while True:
            name = self._take()
            if not re.fullmatch(r"`.+`|\w+", name, re.DOTALL):
                raise ConfigError(f"{name!r} is no name of a field; put it between backticks")
            if self._peek() == ":":
                self._take()
            name = name[1:-1].replace("``", "`") if name[0] == "`" else name
            fields.append((name, self._type(depth)))
            self._trailer()
            if self._peek() != ",":
                break
            self._take()
        if end is not None:
            self._take(end)
        return struct(fields)

    def _trailer(self) -> None:
        """NOT NULL and COMMENT say nothing about how a value is decoded."""
        if self._peek().upper() == "NOT":
            self._take()
            if self._take().upper() != "NULL":
                raise ConfigError(f"NULL is missing behind {self._behind()}")
        if self._peek().upper() == "COMMENT":
            self._take()
            self._take()

    def _type(self, depth: int) -> SparkType:
        if depth > DEEPEST:
            raise ConfigError("types within types, too deep")
        word = self._take()
        kind = word.lower()
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
                word += self._take()
            word += self._take(")")
        return _named(word)
