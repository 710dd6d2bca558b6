"""Spark's types parsed from DDL and from Spark's JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kconsumer.errors import ConfigError
from kconsumer.formats.column_types import parse_type


@pytest.mark.parametrize(
    ("ddl", "simple"),
    [
        ("id long", "struct<id:bigint>"),
        ("id LONG, amount: Double", "struct<id:bigint,amount:double>"),
        ("a boolean, b byte, c short, d integer, e real", "struct<a:boolean,b:tinyint,c:smallint,d:int,e:float>"),
        ("price decimal(12, 2), sum numeric", "struct<price:decimal(12,2),sum:decimal(10,0)>"),
        ("tags array<string>, m map<string, array<int>>", "struct<tags:array<string>,m:map<string,array<int>>>"),
        ("who struct<name string, born: date>", "struct<who:struct<name:string,born:date>>"),
        ("id long NOT NULL COMMENT 'a, b' , `odd ``name` binary", "struct<id:bigint,odd `name:binary>"),
        ("at timestamp, local timestamp_ntz", "struct<at:timestamp,local:timestamp_ntz>"),
        ("array<int>", "array<int>"),
        ("struct<a:int>", "struct<a:int>"),
        ("decimal(3,1)", "decimal(3,1)"),
        ("decimal decimal(3,1)", "struct<decimal:decimal(3,1)>"),
        ("string", "string"),
    ],
)
def test_ddl(ddl: str, simple: str) -> None:
    """Types are printed as Spark prints them, and that text is parsed as the same type."""
    found = parse_type(ddl)
    assert simple == found.simple
    assert found == parse_type(found.ddl)
    assert "timestamp" not in found.ddl.replace("timestamp_", "")


def test_json() -> None:
    """The result of `df.schema.json()` is parsed; nullability is ignored."""
    given = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "l", "type": {"type": "array", "elementType": "decimal(5,2)", "containsNull": False}},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "timestamp"}},
        ],
    }
    assert "struct<id:bigint,l:array<decimal(5,2)>,m:map<string,timestamp>>" == parse_type(json.dumps(given)).simple
    assert "bigint" == parse_type('"long"').simple


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id", "decoded to 'id'; the types are boolean"),
        ("id long, id int", "field 'id' is repeated"),
        ("id long name", "'name' is not expected after 'id long'"),
        ("id long,", "a word is missing after 'id long ,'"),
        ("m map<int,int>", "keys of a map must be strings, not int"),
        ("a array<int", "> is missing"),
        ("a decimal(40,2)", "precision is 1 to 38"),
        ("a decimal(4,5)", "precision is 1 to 38"),
        ("a interval", "decoded to 'interval'"),
        ("a varchar(3)", "decoded to 'varchar(3)'"),
        ("a int(3)", "decoded to 'int(3)'"),
        ("a decimal(3", "a word is missing"),
        ("a long NOT", "a word is missing"),
        ("a-b long", "decoded to '-'"),
        ("- long", "'-' is not a name"),
        ("a struct<>", "'>' is not a name"),
        ('{"type":"struct"}', "the struct in Spark's JSON lacks 'fields'"),
        ('{"type":"struct","fields":[]}', "no field"),
        ('{"type":"variant"}', "is not a type in Spark's JSON"),
        ('{"type":', "not JSON"),
        ("a " + "array<" * 2000 + "int" + ">" * 2000, "nested deeper than 100"),
    ],
)
def test_what_is_no_schema(text: str, words: str) -> None:
    """The error has the place where parsing stopped."""
    with pytest.raises(ConfigError) as caught:
        parse_type(text)
    assert words in str(caught.value)


def test_arrow_types() -> None:
    """Types are those of Spark's own conversion: microseconds in UTC, and all nullable except for map keys."""
    kind = parse_type("a array<timestamp>, m map<string,timestamp_ntz>, d decimal(5,2), t tinyint, f float, y date")
    assert [
        pa.list_(pa.field("element", pa.timestamp("us", tz="UTC"))),
        pa.map_(pa.string(), pa.timestamp("us")),
        pa.decimal128(5, 2),
        pa.int8(),
        pa.float32(),
        pa.date32(),
    ] == [field.type for field in kind.arrow()]
