"""Avro schemas as trees, parsed as Java parses them: names, aliases, defaults, logical types and references.

fastavro decodes values with a schema that `plain` makes of a tree. The plain form of a value is what fastavro returns
for it: numbers and bytes without logical types, enums as numbers, and items of a union of several types in a dict whose
only key names the branch. A plain schema has the same binary encoding as the schema it is made of.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kconsumer._core.codec import AvroCheck
from kconsumer.errors import ConfigError

__all__ = [
    "MISSING",
    "AvroField",
    "AvroSchema",
    "as_float",
    "parse",
    "plain",
    "plain_default",
    "with_aliases",
    "with_valid_defaults",
]

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
WIDTHS = {"float": 4, "double": 8}
NAMED = {"record": "record", "error": "record", "enum": "enum", "fixed": "fixed"}
_NUMBER = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)", re.ASCII)
MISSING: Any = object()  # the default of a field that has none

# Logical type -> the types that may have it. Java ignores a logical type elsewhere, and so do we.
LOGICAL_TYPES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
}


class AvroField(NamedTuple):
    """A field of a record."""

    name: str
    schema: AvroSchema
    default: Any  # as parsed JSON, or MISSING
    aliases: tuple[str, ...]


@dataclass(eq=False)
class AvroSchema:
    """A schema. Recursive records contain themselves; two schemas are equal only if they are the same object."""

    kind: str  # a primitive type, record, enum, fixed, array, map or union
    name: str = ""  # full name
    aliases: tuple[str, ...] = ()  # full names
    fields: list[AvroField] = field(default_factory=list)
    parts: list[AvroSchema] = field(default_factory=list)  # branches of a union; what an array or a map contains
    symbols: tuple[str, ...] = ()
    default: str | None = None  # symbol of an enum
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0
    source: object = None  # what it was parsed from

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def inner(self) -> list[AvroSchema]:
        """The schemas of branches, items and fields."""
        return [*self.parts, *(part.schema for part in self.fields)]

    @property
    def tagged(self) -> bool:
        """True if the plain form of items of this union names the branch."""
        return self.kind == "union" and sum(part.kind != "null" for part in self.parts) > 1

    def walk(self) -> Iterator[AvroSchema]:
        """Yield this schema and all that it contains, each once."""
        seen: dict[AvroSchema, None] = {}
        left = [self]
        while left:
            schema = left.pop()
            if schema not in seen:
                seen[schema] = None
                left.extend(reversed(schema.inner))
        yield from seen

    def check(self) -> AvroCheck:
        """Returns the check of values of this schema in the binary encoding."""
        number = {schema: index for index, schema in enumerate(self.walk())}
        sizes = (WIDTHS.get(schema.kind, schema.size or len(schema.symbols)) for schema in number)
        parts = ([number[part] for part in schema.inner] for schema in number)
        return AvroCheck([*zip((schema.kind for schema in number), sizes, parts, strict=True)])


def parse(given: Any, referred: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema, which is JSON text or parsed JSON. `referred` contains the text of schemas that it refers to.

    Raises ConfigError if it is not an Avro schema.
    """
    parser = _Parser()
    try:
        for text in referred:
            parser.parse(_document(text), "")
        document = _document(given) if isinstance(given, str) else given
        found = parser.parse(document, "")
        parser.check_defined()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"not an Avro schema: {type(error).__name__} {error}") from None
    found.source = (document, tuple(referred))
    return found


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if text in PRIMITIVES:  # a registry may return the name of a primitive type without quotation marks
            return text
        raise ConfigError(f"an Avro schema must be JSON: {error}") from None


class _Parser:
    """Parses schemas that share the names that they define."""

    def __init__(self) -> None:
        self._named: dict[str, AvroSchema] = {}
        self._used: dict[str, AvroSchema] = {}  # types that are used, and not defined yet

    def check_defined(self) -> None:
        """Raise ConfigError if a type that is used was not defined."""
        for name in self._used:
            raise ConfigError(f"not an Avro schema: the type {name!r} is not defined")

    def parse(self, given: Any, space: str) -> AvroSchema:
        if isinstance(given, str):
            return self._named_type(given, space)
        if isinstance(given, list):
            parts = [self.parse(part, space) for part in given]
            _check_distinct("a union", [part.name or part.kind for part in parts])
            if any(part.kind == "union" for part in parts):
                raise ConfigError("not an Avro schema: a union contains another one")
            return AvroSchema("union", parts=parts)
        kind = given["type"]
        if not isinstance(kind, str):
            return self.parse(kind, space)
        if kind in NAMED:
            return self._define(kind, given, space)
        if kind in ("array", "map"):
            return AvroSchema(kind, parts=[self.parse(given["items" if kind == "array" else "values"], space)])
        found = self._named_type(kind, space)
        if kind in PRIMITIVES:
            _add_logical_type(found, given)
        return found

    def _named_type(self, name: str, space: str) -> AvroSchema:
        if name in PRIMITIVES:
            return AvroSchema(name)
        full = _full_name(name, space)
        found = self._named.get(full) or self._named.get(name)
        return found or self._used.setdefault(full, AvroSchema("", full))

    def _define(self, kind: str, given: Any, space: str) -> AvroSchema:
        own_space = given.get("namespace")
        name = _full_name(given["name"], space if own_space is None else own_space)
        if name in self._named:
            raise ConfigError(f"not an Avro schema: the type {name!r} is defined twice")
        space = name.rpartition(".")[0]
        aliases = tuple(_full_name(alias, space) for alias in given.get("aliases", ()))
        found = self._named[name] = self._used.pop(name, AvroSchema("", name))
        found.kind, found.aliases = NAMED[kind], aliases
        if kind == "fixed":
            found.size = int(given["size"])
            _add_logical_type(found, given)
        elif kind == "enum":
            found.symbols, found.default = tuple(given["symbols"]), given.get("default")
            _check_distinct(name, found.symbols)
            if found.default is not None and found.default not in found.symbols:
                raise ConfigError(f"not an Avro schema: {name} has no symbol {found.default!r}, which is its default")
        else:
            found.fields = [self._field(part, space) for part in given["fields"]]
            _check_distinct(name, [part.name for part in found.fields])
        return found

    def _field(self, given: Any, space: str) -> AvroField:
        schema, default = self.parse(given["type"], space), given.get("default", MISSING)
        if schema.kind in WIDTHS and isinstance(default, str) and _NUMBER.fullmatch(default):
            default = float(default.rstrip("fFdD"))  # as in Java, also NaN and Infinity
        return AvroField(given["name"], schema, default, tuple(given.get("aliases", ())))


def _check_distinct(place: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ConfigError(f"not an Avro schema: {place} contains {max(names, key=list(names).count)!r} twice")


def _full_name(name: str, space: str) -> str:
    """Returns a name with its namespace, which is `space` unless the name has one. A dot first stands for none."""
    return name.removeprefix(".") if "." in name or not space else f"{space}.{name}"


def _add_logical_type(schema: AvroSchema, given: Any) -> None:
    """Set the logical type of a schema if it is valid there."""
    logical = given.get("logicalType")
    if not isinstance(logical, str) or schema.kind not in LOGICAL_TYPES.get(logical, ()):
        return
    if logical == "decimal":
        precision, scale = given.get("precision"), given.get("scale", 0)
        bound = math.floor(math.log10(2) * (8 * schema.size - 1)) if schema.kind == "fixed" else (1 << 31) - 1
        if type(precision) is not int or type(scale) is not int or not 0 < precision <= bound:
            return
        if not 0 <= scale <= precision:
            return
        schema.precision, schema.scale = precision, scale
    if logical != "uuid" or schema.kind == "string" or schema.size == 16:
        schema.logical = logical


# --- the plain form --------------------------------------------------------------------------------------------------


def plain(schema: AvroSchema, names: dict[object, str]) -> Any:
    """Returns the schema for fastavro. `names` is empty; it receives the names of types that have been defined."""
    if schema.kind in PRIMITIVES:
        return schema.kind
    if schema.kind == "enum":
        return "int"  # has the same encoding
    if schema.kind in ("array", "map"):
        return {"type": schema.kind, "items" if schema.kind == "array" else "values": plain(schema.parts[0], names)}
    if schema.kind == "union":
        return [
            _tagged(index, part, names) if schema.tagged and part.kind != "null" else plain(part, names)
            for index, part in enumerate(schema.parts)
        ]
    if schema in names:
        return names[schema]
    found = {"type": schema.kind, "name": names.setdefault(schema, f"T{len(names)}")}
    if schema.kind == "fixed":
        return found | {"size": schema.size}
    return found | {"fields": [{"name": part.name, "type": plain(part.schema, names)} for part in schema.fields]}


def _tagged(index: int, schema: AvroSchema, names: dict[object, str]) -> Any:
    """Returns a record around a branch of a union. A record is encoded as its fields are, without any byte more."""
    name = names.setdefault(object(), f"T{len(names)}")
    return {"type": "record", "name": name, "fields": [{"name": f"b{index}", "type": plain(schema, names)}]}


def with_aliases(writer: AvroSchema, reader: AvroSchema) -> AvroSchema:
    """Returns the writer's schema with the reader's names in place of the reader's aliases.

    Raises ValueError if a record then has two fields of the same name.
    """
    schemas = list(reader.walk())
    names = {alias: schema.name for schema in schemas for alias in schema.aliases}
    fields = {(schema.name, alias): part.name for schema in schemas for part in schema.fields for alias in part.aliases}
    if writer.source == reader.source or not (names or fields):
        return writer
    copies: dict[AvroSchema, AvroSchema] = {}

    def renamed(schema: AvroSchema) -> AvroSchema:
        found = copies.get(schema)
        if found is None:
            name = names.get(schema.name, schema.name)
            found = copies[schema] = dataclasses.replace(schema, name=name)
            found.parts = [renamed(part) for part in schema.parts]
            found.fields = [
                part._replace(name=fields.get((name, part.name), part.name), schema=renamed(part.schema))
                for part in schema.fields
            ]
            if len({part.name for part in found.fields}) < len(found.fields):
                raise ValueError(f"by the aliases of the reader's schema, two fields of {name} have the same name")
        return found

    return renamed(writer)


# --- defaults --------------------------------------------------------------------------------------------------------

BITS = {"int": 32, "long": 64}


def with_valid_defaults(schema: AvroSchema) -> AvroSchema:
    """Returns a reader's schema. Raises ConfigError if a default does not fit its type.

    A writer's schema is not checked: its defaults are not used, and old registries contain wrong ones.
    """
    for part in schema.walk():
        for given in part.fields:
            if given.default is not MISSING and not _fits(given.schema, given.default):
                raise ConfigError(f"not an Avro schema: field {given.name}: {_no_default(given.schema, given.default)}")
    return schema


def plain_default(schema: AvroSchema, given: Any) -> Any:
    """Returns the plain form of a default, which is parsed JSON. Raises ValueError if it does not fit the schema."""
    if not _fits(schema, given):
        raise _no_default(schema, given)
    return _converted(schema, given)


def _no_default(schema: AvroSchema, given: Any) -> ValueError:
    shown = "that is missing" if given is MISSING else json.dumps(given)[:80]
    return ValueError(f"the default {shown} does not fit its type {schema.name or schema.kind}")


def _alike(kind: str, given: Any) -> bool:
    """Returns True if parsed JSON has the JSON type of a kind of Avro type."""
    if kind in ("string", "bytes", "enum", "fixed"):
        return isinstance(given, str)
    if kind in ("int", "long", "float", "double"):
        return isinstance(given, (int, float)) and not isinstance(given, bool)
    if kind == "array":
        return isinstance(given, list)
    if kind in ("map", "record"):
        return isinstance(given, dict)
    return given is None if kind == "null" else isinstance(given, bool)


def _fits(schema: AvroSchema, given: Any) -> bool:
    if schema.kind == "union":
        return any(_fits(part, given) for part in schema.parts)
    if not _alike(schema.kind, given):
        return False
    if schema.kind in BITS:
        limit = 1 << (BITS[schema.kind] - 1)
        return isinstance(given, int) and -limit <= given < limit
    if schema.kind == "record":
        return all(_fits(part.schema, given.get(part.name, part.default)) for part in schema.fields)
    items = given if schema.kind == "array" else given.values() if schema.kind == "map" else ()
    return all(_fits(schema.parts[0], item) for item in items)


def _converted(schema: AvroSchema, given: Any) -> Any:
    """Returns the plain form of a default that fits the schema, or another branch of the union around it."""
    kind = schema.kind
    if kind == "union":
        return _of_union(schema, given)
    if kind == "record":
        row = given if isinstance(given, dict) else {}
        return {part.name: _converted(part.schema, row.get(part.name, part.default)) for part in schema.fields}
    if kind == "array":
        items = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
        return [_converted(schema.parts[0], item) for item in items]
    if kind == "map":
        if isinstance(given, list) and given:  # Java counts its items, and finds no keys
            raise _no_default(schema, given)
        row = given if isinstance(given, dict) else {}
        return {key: _converted(schema.parts[0], item) for key, item in row.items()}
    if not _alike(kind, given) or (kind == "enum" and given not in schema.symbols):
        raise _no_default(schema, given)
    return _of_scalar(schema, given)


def _of_scalar(schema: AvroSchema, given: Any) -> Any:
    kind = schema.kind
    if kind == "enum":
        return schema.symbols.index(given)
    if kind in ("bytes", "fixed"):
        data = given.encode("latin-1", "replace")
        return data if kind == "bytes" else data.ljust(schema.size, b"\0")[: schema.size]
    if kind in BITS:
        return _whole(given, 1 << (BITS[kind] - 1))
    if kind == "float":
        return as_float(float(given))
    return float(given) if kind == "double" else given


def _of_union(schema: AvroSchema, given: Any) -> Any:
    """Returns a default as a value of the first branch that Java considers for it.

    Java compares only the types of scalars. So the branch may reject the default although another one fits, 1.5 is 1 in
    a union of int and double, and text is an empty array in one of array and string.
    """
    for index, part in enumerate(schema.parts):
        if part.kind in ("record", "enum", "array", "map") or _alike(part.kind, given):
            item = _converted(part, given)
            return {f"b{index}": item} if schema.tagged and part.kind != "null" else item
    raise _no_default(schema, given)


def _whole(given: float, limit: int) -> int:
    if isinstance(given, float):
        return int(max(-limit, min(limit - 1, given)))
    return (given + limit) % (2 * limit) - limit


def as_float(number: float) -> float:
    """Returns the number of 32 bits that is nearest to a number. An int is rounded once only."""
    if isinstance(number, int) and abs(number) >> 53:
        # The last bit that a double keeps becomes 1 if bits after it are lost, so that a half is not taken for less.
        number = (number >> 11 | (number & 0x7FF != 0)) << 11
    try:
        found: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        found = math.copysign(math.inf, number)
    return found
