"""Values of random writers' schemas, read with a later schema: objects and columns are what Java reads."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kconsumer.deserializers import SerializationContext
from kconsumer.errors import ConfigError
from kconsumer.formats.avro_columns import AvroDecoder
from kconsumer.formats.avro_schemas import parse
from kconsumer.registry import AvroDeserializer
from support.oracles.avro_cases import RECORDED, Case, random_case, recorded, shown

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
    read = AvroDeserializer(OneSchema(case.writer), case.reader)
    found: list[Any] = []
    for data in case.values:
        try:
            found.append(read(FRAME + data, CONTEXT))
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
