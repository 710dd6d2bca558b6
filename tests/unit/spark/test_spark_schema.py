"""The columns of the Spark source."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.options import parse
from kconsumer.spark.schema import default_projection, project

MINIMAL = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}


def test_default_columns_are_those_of_spark() -> None:
    """There are seven columns by default, and headers on request."""
    seven = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert seven == default_projection(parse(MINIMAL, "batch")).ddl
    with_headers = default_projection(parse({**MINIMAL, "includeHeaders": "true"}, "batch")).ddl
    assert seven + ", headers array<struct<key:string,value:binary>>" == with_headers


def test_arrow_types_are_to_the_letter() -> None:
    """Timestamps are microseconds in UTC, other types are plain, and all columns are nullable."""
    schema = default_projection(parse({**MINIMAL, "includeHeaders": "true"}, "batch")).arrow_schema()
    assert ["binary", "binary", "string", "int32", "int64", "timestamp[us, tz=UTC]", "int32"] == [
        str(field.type) for field in schema
    ][:7]
    assert pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])) == schema.field("headers").type
    assert all(field.nullable for field in schema)


def test_text_and_header_map() -> None:
    """With valueFormat=string key and value are text; headers=map makes headers a map and adds the column."""
    projection = default_projection(parse({**MINIMAL, "valueFormat": "string", "headers": "map"}, "batch"))
    assert ("string", "string", "map<string,binary>") == tuple(map(projection.type_of, ("key", "value", "headers")))
    assert "headers" == projection.columns[-1]


def test_chosen_columns() -> None:
    """`columns` and a schema each select columns and their order."""
    assert (
        "offset bigint, value binary" == default_projection(parse({**MINIMAL, "columns": "offset,VALUE"}, "batch")).ddl
    )
    wanted = [("offset", "bigint"), ("headers", "array<struct<key:string,value:binary>>")]
    assert ("offset", "headers") == project(parse(MINIMAL, "batch"), wanted).columns


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([], "has no columns"),
        ([("price", "double")], "no column 'price'; it has key, value"),
        ([("value", "string")], "value has type binary, not string; cast it"),
        ([("Offset", "bigint")], "write the column Offset of the schema as offset"),
        ([("offset", "bigint"), ("offset", "bigint")], "twice"),
    ],
)
def test_schemas_that_do_not_fit(wanted: list[tuple[str, str]], words: str) -> None:
    """A user's schema is checked by the source, because Spark does not check it."""
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        project(parse(MINIMAL, "batch"), wanted)


JSON = {**MINIMAL, "valueFormat": "json", "valueSchema": "id long, `a b` array<date>"}


def test_decoded_values() -> None:
    """With valueFormat=json the value, and not the key, is the struct of valueSchema, in Spark's and Arrow's types."""
    projection = default_projection(parse(JSON, "batch"))
    assert "key binary, value struct<`id`:bigint,`a b`:array<date>>" == projection.ddl.split(", topic")[0]
    assert "struct<id:bigint,a b:array<date>>" == projection.type_of("value")
    fields = pa.struct([("id", pa.int64()), ("a b", pa.list_(pa.field("element", pa.date32())))])
    assert fields == projection.arrow_schema().field("value").type
    assert ["value"] == list(projection.decoders())
    assert projection == pickle.loads(pickle.dumps(projection))
