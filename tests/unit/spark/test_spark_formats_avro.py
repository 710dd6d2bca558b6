"""Avro values decoded to Arrow columns."""

from __future__ import annotations

import datetime
import io
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer.errors import ConfigError
from kconsumer.formats.avro_columns import AvroDecoder, type_of
from kconsumer.formats.avro_schemas import parse

UTC = zoneinfo.ZoneInfo("UTC")


def encode(schema: Any, value: Any) -> bytes:
    """Returns a value as a producer encodes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decode(schema: Any, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    """Returns the rows and the invalid ones, and checks that the column is valid and has the expected type."""
    parsed = parse(schema)
    column, bad = AvroDecoder(parsed).decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    assert (type_of(parsed).arrow(), len(values)) == (column.type, len(column))
    return column.to_pylist(), bad


MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, UTC)


@pytest.mark.parametrize(
    ("kind", "simple", "given_", "expected"),
    [
        ("boolean", "boolean", True, True),
        ("int", "int", -5, -5),
        ("long", "bigint", 2**40, 2**40),
        ("float", "float", 0.5, 0.5),
        ("double", "double", 0.1, 0.1),
        ("string", "string", "olé", "olé"),
        ("bytes", "binary", b"\xff", b"\xff"),
        ({"type": "fixed", "name": "f", "size": 2}, "binary", b"ab", b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "string", "B", "B"),
        ({"type": "int", "logicalType": "date"}, "date", datetime.date(1960, 2, 3), datetime.date(1960, 2, 3)),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp", MOMENT, MOMENT),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp", MOMENT, MOMENT),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            "timestamp_ntz",
            MOMENT.replace(tzinfo=None),
            MOMENT.replace(tzinfo=None),
        ),
        ({"type": "int", "logicalType": "time-millis"}, "int", datetime.time(0, 0, 1), 1000),
        ({"type": "string", "logicalType": "uuid"}, "string", uuid.UUID(int=7), str(uuid.UUID(int=7))),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            "decimal(5,2)",
            Decimal("-1.5"),
            Decimal("-1.50"),
        ),
        ({"type": "array", "items": ["null", "int"]}, "array<int>", [1, None], [1, None]),
        ({"type": "map", "values": "int"}, "map<string,int>", {"a": 1}, [("a", 1)]),
        (
            {"type": "array", "items": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}},
            "array<map<string,timestamp>>",
            [{"a": MOMENT}],
            [[("a", MOMENT)]],
        ),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}], "timestamp", MOMENT, MOMENT),
        (["int", "long"], "bigint", 2**40, 2**40),
        (["null", "float", "double"], "double", 0.5, 0.5),
        (["string"], "string", "x", "x"),
    ],
)
def test_each_type(kind: Any, simple: str, given_: Any, expected: Any) -> None:
    """Each type is decoded as `from_avro` does, alone and as a field; null is null."""
    assert simple == type_of(parse(kind)).simple
    assert ([expected, None], {}) == decode(kind, [encode(kind, given_), None])
    record = {"type": "record", "name": "r", "namespace": "n", "fields": [{"name": "v", "type": kind}]}
    assert ([{"v": expected}], {}) == decode(record, [encode(record, {"v": given_})])


def test_names_of_types() -> None:
    """A type that was defined once can be used by its name, with and without its namespace."""
    point = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": point}, {"name": "b", "type": "n.p"}, {"name": "c", "type": ["null", "p"]}]
    record = {"type": "record", "name": "r", "namespace": "n", "fields": fields}
    value = {"a": {"x": 1}, "b": {"x": 2}, "c": None}
    assert ([value], {}) == decode(record, [encode(record, value)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "an Avro schema must be JSON"),
        ('{"type": "record"}', "not an Avro schema"),
        ('"strin"', "not an Avro schema"),
        ('["int", "int"]', "a union contains 'int' twice"),
        ('["null", ["int"]]', "a union contains another one"),
        ('{"type":"enum","name":"e","symbols":["A","A"]}', "e contains 'A' twice"),
        ('["null", {"type":"fixed","name":"n.f","size":1}, {"type":"fixed","name":"n.f","size":2}]', "defined twice"),
        ('["int", "string"]', 'a union of ["int", "string"]'),
        ('"null"', "Avro's null"),
        ('{"type":"record","name":"r","fields":[{"name":"n","type":["null","r"]}]}', "recursive types"),
        ('{"type":"record","name":"r","fields":[]}', "no field"),
        ('{"type":"bytes","logicalType":"decimal","precision":50}', "precision is 1 to 38"),
    ],
)
def test_what_is_no_schema(text: str, words: str) -> None:
    """An invalid schema is refused with the reason."""
    with pytest.raises(ConfigError) as caught:
        type_of(parse(text))
    assert words in str(caught.value)


RECORD = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    ],
}


def test_garbage() -> None:
    """Only values that are truncated, too long, or have invalid bytes or numbers are invalid."""
    good = encode(RECORD, {"id": 1, "name": "x", "price": Decimal("1.00")})
    large = encode(
        {**RECORD, "fields": [{"name": "id", "type": "long"}, *RECORD["fields"][1:]]},
        {"id": 2**40, "name": None, "price": Decimal("1.00")},
    )
    costly = encode(
        {**RECORD, "fields": [*RECORD["fields"][:2], {"name": "price", "type": "bytes"}]},
        {"id": 1, "name": None, "price": (100_000).to_bytes(3, "big")},
    )
    values = [
        good,
        b"",
        good[:-1],
        good + b"\0",
        None,
        b"\xff" * 20,
        good[:3] + b"\xff" + good[4:],
        large,
        costly,
        good,
    ]
    rows, bad = decode(RECORD, values)
    assert [1, 2, 3, 5, 6, 7, 8] == sorted(bad)
    assert all(rows[row] is None for row in [*bad, 4])
    assert rows[0] == rows[9] == {"id": 1, "name": "x", "price": Decimal("1.00")}
    assert "1 bytes follow the value" in bad[3]
    assert "more than 32 bits" in bad[7]
    assert "does not fit decimal(5,2)" in bad[8]


@settings(deadline=None)  # the first one imports
@given(st.lists(st.binary(max_size=40)))
def test_any_bytes(values: list[bytes]) -> None:
    """Any bytes are either a row or invalid."""
    rows, bad = decode(RECORD, list(values))
    assert all((rows[row] is None) == (row in bad) for row in range(len(values)))
