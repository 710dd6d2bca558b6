"""Converts values of a writer's Avro schema to the reader's schema, by the rules of Java's GenericDatumReader.

fastavro decodes the bytes to the plain form of the writer's schema (see avro_schemas.py). The functions that are built
here convert that form to the objects of the reader: fields by name, defaults, promotions, enums, branches of unions.
A part that cannot be converted raises ValueError only for values that have it, as in Java: an array of such items may
be empty.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, NamedTuple

from kconsumer.formats.avro_schemas import (
    MISSING,
    AvroField,
    AvroSchema,
    as_float,
    plain,
    plain_default,
    with_aliases,
)

__all__ = ["Convert", "Read", "Shapes", "reader_of", "to_decimal"]

Convert = Callable[[Any], Any] | None  # None: the value stays as it is
Read = Callable[[bytes, int], Any]  # (data, start of the value) -> object
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

PROMOTIONS: dict[tuple[str, str], Convert] = {
    ("int", "long"): None,
    ("int", "float"): as_float,
    ("int", "double"): float,
    ("long", "float"): as_float,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}


class Shapes(NamedTuple):
    """The objects that a reader wants."""

    scalar: Callable[[AvroSchema], Convert]  # converts the plain form of a type that contains no other
    pairs: bool = False  # True: maps become lists of pairs


def to_decimal(scale: int) -> Callable[[bytes], Decimal]:
    """Returns the function that converts bytes to decimals."""

    def convert(data: bytes) -> Decimal:
        if not data:
            raise ValueError("a decimal has no bytes")
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, EXACT)

    return convert


def reader_of(writer: AvroSchema, reader: AvroSchema, shapes: Shapes, *, framed: bool = False) -> Read:
    """Returns a function that reads values of one schema as values of another.

    `framed`: the values are those of Confluent's serializers, which write a value that is bytes without its length.
    It raises ValueError, or another exception for what only conversions detect, if the bytes are not such a value.
    """
    import fastavro

    writer = with_aliases(writer, reader)
    check, parsed = writer.check(), fastavro.parse_schema(plain(writer, {}))
    convert = _Resolution(shapes).build(writer, reader)
    if framed and writer.kind == "bytes":
        return lambda data, start: data[start:] if convert is None else convert(data[start:])

    def read(data: bytes, start: int) -> Any:
        check(data, start)
        source = io.BytesIO(data)
        source.seek(start)
        found = fastavro.schemaless_reader(source, parsed, None)
        return found if convert is None else convert(found)

    return read


class _Mismatch:
    """Raises ValueError for each value."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema, reason: str = "") -> None:
        names = [schema.name or schema.kind for schema in (writer, reader)]
        self._message = f"the writer's {names[0]} cannot be read as the reader's {names[1]}{reason}"

    def __call__(self, value: Any) -> Any:
        raise ValueError(self._message)


class _Symbols(dict[int, str]):
    """The reader's symbol for each symbol of the writer, by number."""

    def __missing__(self, number: int) -> str:
        raise ValueError(f"the enum has no symbol for {number}")


def _then(first: Convert, second: Convert) -> Convert:
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


class _Resolution:
    """Builds the functions for one writer's and one reader's schema."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._records: dict[tuple[AvroSchema, AvroSchema], Convert] = {}
        self._unfit: set[tuple[AvroSchema, AvroSchema]] = set()  # records of which a field never fits

    def build(self, writer: AvroSchema, reader: AvroSchema) -> Convert:
        """Returns the function that converts the plain form of the writer to objects of the reader."""
        if writer.kind == "union":
            return self._from_union(writer, reader)
        if writer.kind == reader.kind:
            return self._same_kind(writer, reader)
        if reader.kind == "union":
            branch = self._branch(writer, reader)
            return _Mismatch(writer, reader) if branch is None else self.build(writer, branch)
        if (writer.kind, reader.kind) not in PROMOTIONS:
            return _Mismatch(writer, reader)
        return _then(PROMOTIONS[writer.kind, reader.kind], self._shapes.scalar(reader))

    def _same_kind(self, writer: AvroSchema, reader: AvroSchema) -> Convert:
        kind = reader.kind
        if kind == "record":
            return self._record(writer, reader)
        if kind in ("array", "map"):
            convert = self.build(writer.parts[0], reader.parts[0])
            return _each(convert) if kind == "array" else _entries(convert, self._shapes.pairs)
        if kind in ("enum", "fixed") and (writer.short_name != reader.short_name or writer.size != reader.size):
            return _Mismatch(writer, reader)
        if kind == "enum":
            symbols = [name if name in reader.symbols else reader.default for name in writer.symbols]
            return _Symbols({n: name for n, name in enumerate(symbols) if name in reader.symbols}).__getitem__
        return self._shapes.scalar(reader)

    # --- records -----------------------------------------------------------------------------------------------------

    def _record(self, writer: AvroSchema, reader: AvroSchema) -> Convert:
        pair = (writer, reader)
        if pair not in self._records:
            self._records[pair] = lambda row: found(row)  # for a record that contains itself, and so is not None
            found: Any = self._fields(writer, reader)
            self._records[pair] = found
        return self._records[pair]

    def _fields(self, writer: AvroSchema, reader: AvroSchema) -> Convert:
        given = {field.name: self.build(field.schema, wanted.schema) for field, wanted in _common(writer, reader)}
        if any(isinstance(convert, _Mismatch) for convert in given.values()):
            self._unfit.add((writer, reader))
        added: dict[str, Callable[[], Any]] = {}
        for field in reader.fields:
            if field.name not in given:
                if field.default is MISSING:
                    self._unfit.add((writer, reader))
                    return _Mismatch(writer, reader, f": there is no field {field.name}, and it has no default")
                added[field.name] = self._default(field)
        changed = [(name, convert) for name, convert in given.items() if convert is not None]
        if [field.name for field in writer.fields] == [field.name for field in reader.fields]:
            return _changed_fields(changed) if changed else None
        names = [field.name for field in reader.fields]
        return _selected_fields(names, given, added)

    def _default(self, field: AvroField) -> Callable[[], Any]:
        """Returns a function that creates the default of a field."""
        # Not with `self.build`, whose functions are not complete yet if the record around the field is in the default.
        convert = _Resolution(self._shapes).build(field.schema, field.schema)
        value = plain_default(field.schema, field.default)

        def create() -> Any:
            found = copy.deepcopy(value)
            return found if convert is None else convert(found)

        try:
            first = create()
        except Exception:  # it then fails for each record that needs the default
            return create
        return create if isinstance(first, (dict, list)) else lambda: first

    # --- unions ------------------------------------------------------------------------------------------------------

    def _from_union(self, writer: AvroSchema, reader: AvroSchema) -> Convert:
        targets = reader.parts if _equivalent(writer, reader, set()) else [reader] * len(writer.parts)
        converts = [self.build(part, target) for part, target in zip(writer.parts, targets, strict=True)]
        nulls = [convert for part, convert in zip(writer.parts, converts, strict=True) if part.kind == "null"]
        of_null = nulls[0] if nulls else None
        if writer.tagged:
            return _tagged(of_null, {f"b{index}": convert for index, convert in enumerate(converts)})
        others = [convert for part, convert in zip(writer.parts, converts, strict=True) if part.kind != "null"]
        return _optional(of_null, others[0] if others else None)

    def _branch(self, writer: AvroSchema, reader: AvroSchema) -> AvroSchema | None:
        """Returns the branch of the reader's union for a writer's type, or None."""
        named = writer.kind in ("record", "enum", "fixed")
        alike: list[AvroSchema] = []  # records with fields that fit
        for part in reader.parts:
            if part.kind == writer.kind:
                if not named or part.name == writer.name:
                    return part
                if writer.kind == "record":
                    self._record(writer, part)
                    if (writer, part) not in self._unfit:
                        alike.append(part)
        if alike:
            same = [part for part in alike if part.short_name == writer.short_name]
            return same[-1] if same else alike[0]
        return next((part for part in reader.parts if (writer.kind, part.kind) in PROMOTIONS), None)


def _common(writer: AvroSchema, reader: AvroSchema) -> list[tuple[AvroField, AvroField]]:
    wanted = {field.name: field for field in reader.fields}
    return [(field, wanted[field.name]) for field in writer.fields if field.name in wanted]


def _equivalent(writer: AvroSchema, reader: AvroSchema, seen: set[tuple[AvroSchema, AvroSchema]]) -> bool:
    """Returns True if two unions have the same branches in the same order."""
    if (writer.kind, writer.short_name, writer.size, writer.symbols) != (
        reader.kind,
        reader.short_name,
        reader.size,
        reader.symbols,
    ):
        return False
    if (writer, reader) in seen:
        return True
    seen.add((writer, reader))
    names = [field.name for field in writer.fields] == [field.name for field in reader.fields]
    return (
        names
        and len(writer.inner) == len(reader.inner)
        and all(_equivalent(part, other, seen) for part, other in zip(writer.inner, reader.inner, strict=True))
    )


# --- functions that convert ------------------------------------------------------------------------------------------


def _each(convert: Convert) -> Convert:
    return None if convert is None else lambda items: [convert(item) for item in items]


def _entries(convert: Convert, pairs: bool) -> Convert:
    if convert is None:
        return (lambda items: list(items.items())) if pairs else None
    if pairs:
        return lambda items: [(key, convert(item)) for key, item in items.items()]
    return lambda items: {key: convert(item) for key, item in items.items()}


def _changed_fields(changed: list[tuple[str, Any]]) -> Callable[[Any], Any]:
    def convert_all(row: dict[str, Any]) -> dict[str, Any]:
        for name, convert in changed:
            row[name] = convert(row[name])
        return row

    return convert_all


def _selected_fields(
    names: list[str], given: dict[str, Convert], added: dict[str, Callable[[], Any]]
) -> Callable[[Any], Any]:
    def convert_all(row: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name in names:
            if name in added:
                found[name] = added[name]()
            else:
                convert = given[name]
                found[name] = row[name] if convert is None else convert(row[name])
        return found

    return convert_all


def _optional(of_null: Convert, convert: Convert) -> Convert:
    if of_null is None and convert is None:
        return None

    def convert_one(item: Any) -> Any:
        chosen = of_null if item is None else convert
        return item if chosen is None else chosen(item)

    return convert_one


def _tagged(of_null: Convert, converts: dict[str, Convert]) -> Convert:
    def convert_one(item: dict[str, Any] | None) -> Any:
        if item is None:
            return item if of_null is None else of_null(item)
        ((tag, value),) = item.items()
        convert = converts[tag]
        return value if convert is None else convert(value)

    return convert_one
