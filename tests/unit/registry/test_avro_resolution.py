"""Values of random writers' schemas, read with a later schema: objects and columns are what Java reads."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kconsumer.deserializers import SerializationContext
from kconsumer.errors import ConfigError
from kconsumer.formats.avro_columns import AvroDecoder
from kconsumer.formats.avro_resolution import reader_of
from kconsumer.formats.avro_schemas import parse
from kconsumer.registry import AvroDeserializer
from kconsumer.registry.avro import OBJECTS
from support.oracles.avro_cases import (
    DAMAGED,
    DAMAGED_VALUES_OF_JAVA,
    RECORDED,
    Case,
    damaged_case,
    is_other,
    random_case,
    recorded,
    shown,
)

CONTEXT = SerializationContext("orders", "value", [])
FRAME = b"\0\0\0\0\1"


class OneSchema:
    """A client of a registry that has one schema."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_schema(self, schema_id: int) -> Any:
        return Schema(self._text, "AVRO")


def objects(case: Case) -> list[Any]:
    """Returns the objects of a case. An exception stands for a value that cannot be read."""
    read = None
    found: list[Any] = []
    for data in case.values:
        try:
            read = read or reader_of(parse(case.writer), parse(case.reader), OBJECTS)
            found.append(read(data, 0))
        except Exception as error:  # of many classes
            found.append(error)
    return found


def printed(value: Any) -> str:
    """Returns a result as the recorded results have it."""
    return "!" if isinstance(value, Exception) else shown(value)


def test_objects_are_those_of_java() -> None:
    """Each value is read as Avro's GenericDatumReader reads it, or refused as there."""
    wrong = []
    for seed, results in zip(RECORDED, recorded(), strict=True):
        found = map(printed, objects(random_case(seed)))
        wrong += [(seed, got, want) for got, want in zip(found, results, strict=True) if want not in (got, "?")]
    assert [] == wrong[:3]


def test_damaged_values_are_never_other_values() -> None:
    """A value with damaged bytes is refused, or is what Java reads."""
    wrong, refused, here_only = [], 0, 0
    for seed, results, whole in zip(DAMAGED, recorded(DAMAGED_VALUES_OF_JAVA), recorded(), strict=False):
        if "?" in whole:  # Java refuses whole values
            continue
        for got, want in zip(objects(damaged_case(seed)), results, strict=True):
            refused += isinstance(got, Exception)
            here_only += isinstance(got, Exception) and want[0] not in "!?"
            wrong += [(seed, got, want)] * is_other(got, want)
    assert [] == wrong[:3]
    assert 20 * here_only < refused < 8000


LIST = '{"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}'


@pytest.mark.parametrize(
    ("schema", "data", "words"),
    [
        ('"bytes"', b"\1abc", "a length is negative"),
        ('"string"', b"\x81" + b"\x80" * 8 + b"\1abc", "a length is negative"),
        ('"bytes"', b"\x08abc", "end before the value"),
        ('["null", "int"]', b"\1", "no such symbol or branch"),
        ('["null", "int"]', b"\4", "no such symbol or branch"),
        ('"boolean"', b"\2", "neither 0 nor 1"),
        ('"int"', b"\x80\x80\x80\x80\x20", "more than 32 bits"),
        ('"long"', b"\x80" * 10 + b"\1", "more than ten bytes"),
        ('"long"', b"\x80" * 9 + b"\2", "more than 64 bits"),
        ('{"type": "array", "items": "null"}', b"\x80\x80\x80\x80\x80\x20\0", "too many items without bytes"),
        ('{"type": "array", "items": "int"}', b"\1\4\2\0", "not the size"),
        ('{"type": "array", "items": "int"}', b"\1\1\2\0", "longer than the value"),
        ('{"type": "map", "values": "int"}', b"\xfe\xff\xff\xff\x1f\2a\2", "end before the value"),
        (LIST, b"\2" * 1_000_000 + b"\0", "nested too deeply"),
        ('"null"', b"\0", "1 bytes follow the value"),
    ],
)
def test_bytes_that_are_no_value(schema: str, data: bytes, words: str) -> None:
    """Bytes that are no value of the schema are refused with the reason, in a moment."""
    (found,) = objects(Case(schema, schema, [data]))
    assert isinstance(found, ValueError)
    assert words in str(found)


def test_blocks_with_their_size() -> None:
    """An array may have several blocks, each with its size or without."""
    kind = '{"type": "array", "items": "int"}'
    assert [[1, 2, 3], []] == objects(Case(kind, kind, [b"\3\4\2\4\2\6\0", b"\0"]))


def cell(column: pa.Array, row: int) -> str:
    """Returns a value of a column as the recorded results have it."""
    try:
        return shown(column[row].as_py(maps_as_pydicts="strict"))
    except OverflowError:  # a time outside the range of Python
        return "!"


def without(logical: tuple[str, ...], schema: Any) -> Any:
    """Returns a schema without some logical types."""
    if isinstance(schema, list):
        return [without(logical, part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: without(logical, part) if key != "default" else part for key, part in schema.items()}
    if kept.get("logicalType") in logical:
        del kept["logicalType"]
    return kept


def test_columns_are_the_objects() -> None:
    """A column has the values that the objects have, for all schemas that have a type of columns.

    Columns of times and UUIDs are numbers and text, as in Spark.
    """
    compared, wrong = 0, []
    for seed in RECORDED:
        case = random_case(seed)
        reader = json.dumps(without(("time-millis", "time-micros", "uuid"), json.loads(case.reader)))
        try:
            decoder = AvroDecoder(parse(reader), lambda key, case=case: parse(case.writer))
        except ConfigError:
            continue
        if parse(case.writer).kind == "bytes":  # after an id, they have no length before them
            continue
        column, bad = decoder.decode(pa.array([FRAME + data for data in case.values]))
        for row, value in enumerate(objects(case._replace(reader=reader))):
            expected = printed(value)
            if "does not fit" in bad.get(row, ""):  # a decimal with more digits than its type
                continue
            got = "!" if row in bad else cell(column, row)
            compared += 1
            if got != expected:
                wrong.append((seed, got, expected))
    assert [] == wrong[:3]
    assert compared > len(RECORDED) / 2


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
LEVEL = {"type": "enum", "name": "shop.Level", "symbols": ["LOW", "HIGH"]}
KEY = {"type": "fixed", "name": "Key", "namespace": "shop", "size": 2}
DEEP = {"type": "record", "name": "Deep", "fields": [{"name": "a", "type": {"type": "array", "items": ADDRESS}}]}


@pytest.mark.parametrize(
    ("referred", "used", "data", "expected"),
    [
        ([ADDRESS], "Address", b"\2A", {"city": "A"}),
        ([LEVEL], "shop.Level", b"\2", "HIGH"),
        ([KEY], "shop.Key", b"ab", b"ab"),
        (["null", KEY, LEVEL], "shop.Level", b"\0", "LOW"),
        ([{"type": "map", "values": ADDRESS}], "Address", b"\2A", {"city": "A"}),
        ([DEEP], "Address", b"\2A", {"city": "A"}),
        (["string", LEVEL, DEEP], "Deep", b"\2\2A\0", {"a": [{"city": "A"}]}),
    ],
)
def test_references_to_any_schema(referred: list[Any], used: str, data: bytes, expected: Any) -> None:
    """A schema may use all names that the schemas it refers to define, wherever they are defined there."""
    with SchemaRegistryClient.new_client({"url": "mock://"}) as client:
        text = json.dumps(referred if len(referred) > 1 else referred[0])
        client.register_schema("referred", Schema(text, "AVRO"))
        schema = Schema(json.dumps({"type": "array", "items": used}), "AVRO", [SchemaReference("r", "referred", 1)])
        key = client.register_schema("array", schema)
        found = AvroDeserializer(client)(b"\0" + key.to_bytes(4, "big") + b"\2" + data + b"\0", CONTEXT)
    assert [expected] == found


INNER = {"type": "fixed", "name": "F", "size": 1}


def record_of(*fields: Any, name: str = "a.R", **more: Any) -> dict[str, Any]:
    """Returns the schema of a record with these types, or types and defaults."""
    rows = [dict(zip(("name", "type", "default"), (f"f{i}", *given), strict=False)) for i, given in enumerate(fields)]
    return {"type": "record", "name": name, "fields": rows, **more}


@pytest.mark.parametrize(
    ("writer", "reader", "data", "expected"),
    [
        (record_of(["F"], [INNER]), None, b"\1\2", {"f0": b"\1", "f1": b"\2"}),
        (record_of([["null", "q.F"]], [{**INNER, "name": "q.F"}]), None, b"\2\1\2", {"f0": b"\1", "f1": b"\2"}),
        (record_of(["F"], [{**INNER, "namespace": ""}]), None, b"\1\2", "the type 'a.F' is not defined"),
        (
            record_of([{"type": "array", "items": "S"}], [record_of([["null", "R"]], name="S")]),
            None,
            b"\2\0\0\0",
            {"f0": [{"f0": None}], "f1": {"f0": None}},
        ),
        (record_of(["int"], name="R"), record_of(["int"], aliases=[".R"]), b"\2", {"f0": 1}),
        (
            record_of([INNER], name=".R"),
            record_of([{**INNER, "name": "b.G", "aliases": [".F"]}], aliases=["R"]),
            b"\1",
            {"f0": b"\1"},
        ),
        (record_of(), record_of(["double", "-Infinity"]), b"", {"f0": float("-inf")}),
        (record_of(), record_of(["float", "1.5"]), b"", {"f0": 1.5}),
        (record_of(), record_of(["double", "many"]), b"", 'default "many" does not fit'),
        (record_of(), record_of([["double", "null"], "1.5"]), b"", 'default "1.5" does not fit'),
    ],
)
def test_schemas_as_java_parses_them(writer: Any, reader: Any, data: bytes, expected: Any) -> None:
    """Types may be used before they are defined; a dot first stands for no namespace; text may be a default number."""
    wrong = pytest.raises(ConfigError, match=expected) if isinstance(expected, str) else contextlib.nullcontext()
    with wrong:
        assert expected == AvroDeserializer(OneSchema(json.dumps(writer)), reader)(FRAME + data, CONTEXT)


def test_a_default_of_another_branch() -> None:
    """Java takes a list for a default of a map if that is the first branch, and then cannot read it if it has items."""
    kinds = [{"type": "map", "values": "int"}, {"type": "array", "items": "int"}]
    cases = [Case(json.dumps(record_of()), json.dumps(record_of([kinds, default])), [b""]) for default in ([], [1])]
    assert ["{s6630:{}}", "!"] == [printed(*objects(case)) for case in cases]


def test_defaults_are_new_objects() -> None:
    """A default that can be changed belongs to one value only."""
    reader = '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"int"},"default":[1]}]}'
    writer = '{"type":"record","name":"r","fields":[]}'
    first, second = itertools.islice(objects(Case(writer, reader, [b"", b""])), 2)
    first["a"].append(2)
    assert {"a": [1]} == second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("1-2-3-4-5", "00000001-0002-0003-0004-000000000005"),
        ("123e4567e89b12d3a456426614174000", None),
        ("{123e4567-e89b-12d3-a456-426614174000}", None),
    ],
)
def test_text_that_is_a_uuid(text: str, expected: str | None) -> None:
    """Text is a UUID if it is one for Java."""
    data = bytes([2 * len(text)]) + text.encode()
    (found,) = objects(Case('"string"', '{"type": "string", "logicalType": "uuid"}', [data]))
    assert expected == (None if isinstance(found, Exception) else str(found))


@pytest.mark.parametrize("kind", ['"int"', '["null", "int"]', '{"type": "array", "items": "int"}'])
def test_a_wrong_default_of_a_writer_does_not_matter(kind: str) -> None:
    """A default that does not fit its type is refused in a reader's schema, and ignored in a writer's."""
    text = f'{{"type": "record", "name": "r", "fields": [{{"name": "a", "type": {kind}, "default": "x"}}]}}'
    reader = text.replace(', "default": "x"', "")
    assert not isinstance(objects(Case(text, reader, [b"\0"]))[0], Exception)
    with pytest.raises(ConfigError, match='field a: the default "x" does not fit its type'):
        AvroDeserializer(OneSchema(text), text)
