"""Values with schemas of a registry into Arrow columns."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kconsumer._client.decoded_columns import BadRow, DecodedBatch, checked, decode_batch
from kconsumer.arrow import RecordBatch
from kconsumer.decode import decode_batches
from kconsumer.errors import ConfigError, RecordDeserializationError
from kconsumer.formats.avro_columns import AvroDecoder
from kconsumer.formats.avro_schemas import parse
from kconsumer.formats.decoders import TextDecoder
from kconsumer.registry import AvroColumns, JsonColumns, ProtobufColumns, Schemas, decode
from kconsumer.testing.batches import Rec, build_batch
from support.registry import values

TIME = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


@pytest.fixture
def client() -> Iterator[Any]:
    """A registry in memory."""
    with SchemaRegistryClient.new_client({"url": "mock://"}) as found:
        yield found


def batch_of(*given: bytes | None, key: bytes | None = None) -> RecordBatch:
    """Returns a batch with these values, at the offsets from 10."""
    data = build_batch([Rec(value=value, key=key) for value in given], base_offset=10)
    return decode_batches(data, topic="orders").to_arrow()


def test_avro_of_several_schemas(client: Any) -> None:
    """Values of an older and a newer schema become one column of the reader's type; null stays null."""
    old = values.avro(client, values.OLD, {"number": 1})
    new = values.avro(client, values.NEW, {"number": 2, "text": "b", "time": TIME})
    for column in (AvroColumns(client, values.NEW), AvroColumns(client, subject="orders-value")):
        table = decode(batch_of(old, None, new), value=column)
        fields = [("number", pa.int64()), ("text", pa.string()), ("time", pa.timestamp("us", tz="UTC"))]
        assert pa.struct(fields) == table.schema.field("value").type
        assert [
            {"number": 1, "text": "none", "time": None},
            None,
            {"number": 2, "text": "b", "time": TIME},
        ] == table.column("value").to_pylist()
    assert [10, 11, 12] == table.column("offset").to_pylist()


def test_the_type_does_not_depend_on_the_rows(client: Any) -> None:
    """An empty batch, and one without values, have the column of the reader's type."""
    values.avro(client, values.NEW, {"number": 2})
    column = AvroColumns(client, subject="orders-value")
    types = {decode(batch, value=column).schema.field("value").type for batch in (batch_of(), batch_of(None))}
    assert {AvroDecoder(parse(values.NEW)).type.arrow()} == types


def test_avro_schemas_that_refer_to_others(client: Any) -> None:
    """A schema that refers to another one becomes a struct within a struct."""
    data = values.avro(client, values.customer_schema(client), {"home": {"city": "A"}, "work": None})
    for column in (AvroColumns(client, subject="orders-value"), AvroColumns(client, values.customer_schema(client))):
        assert [{"home": {"city": "A"}, "work": None}] == decode(batch_of(data), value=column)["value"].to_pylist()


def test_json_and_protobuf(client: Any) -> None:
    """Both skip the frame, and need no schema of the registry."""
    data = values.json_value(client, {"number": 1})
    assert [{"number": 1}] == decode(batch_of(data), value=JsonColumns("number long"))["value"].to_pylist()
    _, line = values.message_types()
    message = line(text="x")
    message.time.FromDatetime(TIME)
    table = decode(batch_of(values.protobuf(client, message)), value=ProtobufColumns(line))
    assert [{"text": "x", "time": TIME}] == table["value"].to_pylist()


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_ids_in_headers(client: Any, kind: str) -> None:
    """Ids in headers are found for keys and values, among records with the id before the value, and null."""
    _, line = values.message_types()
    message = line(text="x")
    schema, column, framed, value, expected = {
        "avro": (
            values.OLD,
            AvroColumns(client, values.OLD),
            values.avro(client, values.OLD, {"number": 1}),
            {"number": 1},
            {"number": 1},
        ),
        "json": (
            values.ORDER_JSON,
            JsonColumns("number long"),
            values.json_value(client, {"number": 1}),
            {"number": 1},
            {"number": 1},
        ),
        "protobuf": (
            line,
            ProtobufColumns(line),
            values.protobuf(client, message),
            message,
            {"text": "x", "time": None},
        ),
    }[kind]
    key, of_key = values.in_header(client, schema, value, "key")
    data, of_value = values.in_header(client, schema, value)
    other = [("other", b"\0\0\0\0\1"), ("null", None)]
    records = [
        Rec(key=key, value=data, headers=[*of_key, *other, *of_value]),
        Rec(key=framed, value=framed, headers=other),
        Rec(key=None, value=None, headers=[*of_key, *of_value]),
        Rec(key=framed, value=data, headers=of_value),
    ]
    table = decode(decode_batches(build_batch(records)).to_arrow(), key=column, value=column)
    assert [expected, expected, None, expected] == table["key"].to_pylist()
    assert [expected, expected, None, expected] == table["value"].to_pylist()


def test_headers_of_slices(client: Any) -> None:
    """Rows and headers of a table stay together, whatever the chunks of its columns are."""
    records = []
    for number in range(6):
        schema = values.OLD if number % 2 else values.NEW
        data, headers = values.in_header(client, schema, {"number": number})
        records.append(Rec(value=data, headers=headers))
    table = pa.table(decode_batches(build_batch(records)).to_arrow())
    headers = pa.chunked_array([table["headers"].chunk(0).slice(0, 4), table["headers"].chunk(0).slice(4)])
    table = table.set_column(table.schema.get_field_index("headers"), "headers", headers)
    found = decode(table.slice(1), value=AvroColumns(client, values.NEW))["value"].to_pylist()
    assert list(range(1, 6)) == [row["number"] for row in found]


def test_the_last_header_counts(client: Any) -> None:
    """As with objects: of several headers the last one has the id, and a null there means that the value has it."""
    _, old = values.in_header(client, values.OLD, {"number": 1})
    data, new = values.in_header(client, values.NEW, {"number": 2, "text": "b"})
    framed = values.avro(client, values.NEW, {"number": 3, "text": "c"})
    records = [Rec(value=data, headers=[*old, *new]), Rec(value=framed, headers=[*old, ("__value_schema_id", None)])]
    table = decode(decode_batches(build_batch(records)).to_arrow(), value=AvroColumns(client, values.NEW))
    assert [(2, "b"), (3, "c")] == [(row["number"], row["text"]) for row in table["value"].to_pylist()]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "has no id of a schema in the header __value_schema_id, which begins with nothing"),
        (b"\1\2\3", "has no id of a schema in the header __value_schema_id, which begins with 01 02 03"),
        (b"\1" + bytes(16), "the registry has no schema with the id 00000000-0000-0000-0000-000000000000"),
    ],
)
def test_malformed_ids_in_headers(client: Any, header: bytes, reason: str) -> None:
    """The error has the place and the value of the record; with on_error="null" the value becomes null."""
    data, headers = values.in_header(client, values.OLD, {"number": 1})
    records = [Rec(value=data, headers=headers), Rec(value=data, headers=[("__value_schema_id", header)])]
    batch = decode_batches(build_batch(records, base_offset=10), topic="orders").to_arrow()
    column = AvroColumns(client, values.OLD)
    with pytest.raises(RecordDeserializationError, match="orders-0 at offset 11 ") as caught:
        decode(batch, value=column)
    assert reason in str(caught.value)
    assert data == caught.value.value
    assert [{"number": 1}, None] == decode(batch, value=column, on_error="null")["value"].to_pylist()


def test_decoders_of_applications_get_the_values_only(client: Any) -> None:
    """A decoder that does not read schema ids gets the values as they are, whatever their headers."""
    _, headers = values.in_header(client, values.OLD, {"number": 1})
    batch = decode_batches(build_batch([Rec(value=b"text", headers=headers)])).to_arrow()
    assert ["text"] == decode(batch, value=TextDecoder())["value"].to_pylist()


def test_guids_before_values(client: Any) -> None:
    """JSON and Protocol Buffers skip a frame with a GUID, too."""
    data = values.json_value(client, {"number": 1})
    column = JsonColumns("number long")
    assert [{"number": 1}] == decode(batch_of(b"\1" + bytes(16) + data[5:]), value=column)["value"].to_pylist()


def test_keys_and_values(client: Any) -> None:
    """Keys and values are decoded by decoders of their own."""
    key = values.json_value(client, {"number": 7})
    value = values.avro(client, values.OLD, {"number": 1})
    table = decode(
        batch_of(value, key=key), key=JsonColumns("number int"), value=AvroColumns(client, subject="orders-value")
    )
    assert [({"number": 7}, {"number": 1})] == list(
        zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"not Avro", "has no Confluent header with the id of a schema; it begins with 6e 6f 74 20 41"),
        (b"\0\0\0\0\x63\2", "the registry has no schema with the id 99"),
        (b"\0\0\0\0\1", "is not Avro of this schema: the bytes end"),
        (b"\0\0\0\0\1\2\2", "is not Avro of this schema: 1 bytes follow the value"),
    ],
)
def test_values_that_cannot_be_decoded(client: Any, value: bytes, reason: str) -> None:
    """The error has the place of the record; with on_error="null" the value becomes null."""
    good = values.avro(client, values.OLD, {"number": 1})
    column = AvroColumns(client, values.OLD)
    with pytest.raises(RecordDeserializationError, match="orders-0 at offset 11 ") as caught:
        decode(batch_of(good, value, good), value=column)
    assert reason in str(caught.value)
    assert (("orders", 0), 11, value) == (caught.value.topic_partition, caught.value.offset, caught.value.value)
    table = decode(batch_of(good, value, good), value=column, on_error="null")
    assert [{"number": 1}, None, {"number": 1}] == table["value"].to_pylist()
    with pytest.raises(ValueError, match=r"the value of row 1 .*; read topic, partition and offset, too"):
        decode(pa.table({"value": [good, value]}), value=column)


class Unavailable:
    """A client of a registry that cannot be reached."""

    def get_schema(self, schema_id: int) -> Any:
        raise ConnectionError("refused")


def test_a_registry_that_cannot_be_reached_is_no_bad_value(client: Any) -> None:
    """Errors of the client are raised as they are, also with on_error="null"."""
    data = values.avro(client, values.OLD, {"number": 1})
    with pytest.raises(ConnectionError, match="refused"):
        decode(batch_of(data), value=AvroColumns(Unavailable(), values.OLD), on_error="null")


def test_a_schema_is_requested_once(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns share the schemas that a `Schemas` has loaded."""
    data = values.avro(client, values.OLD, {"number": 1})
    schemas, requested = Schemas(client), []
    load = client.get_schema
    monkeypatch.setattr(client, "get_schema", lambda key: requested.append(key) or load(key))
    for _ in range(2):
        decode(batch_of(data, data), value=AvroColumns(schemas, values.NEW))
    assert [1] == requested


def test_batches_of_a_poll(client: Any) -> None:
    """`decode_batch` returns a batch that keeps its offsets, or the first bad row of any column."""
    good = values.avro(client, values.OLD, {"number": 1})
    columns = checked({"value": AvroColumns(client, values.OLD), "key": JsonColumns("a int")}, ("key", "value"))
    data = build_batch(
        [Rec(value=good), Rec(value=b"bad", key=b"\0\0\0\0\1{}"), Rec(value=good, key=b"bad")], base_offset=10
    )
    found = decode_batch(decode_batches(data).to_arrow(), columns)
    assert isinstance(found, BadRow)
    assert (1, "value") == found[:2]
    batch = decode_batch(batch_of(good), {"value": columns["value"]})
    assert isinstance(batch, DecodedBatch)
    assert 1 == batch.num_rows
    assert [{"number": 1}] == batch.to_polars()["value"].to_list()
    assert pa.schema(batch).field("value").type == pa.struct([("number", pa.int32())])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"topic": JsonColumns("a int")}, ValueError, "only key and value can be decoded"),
        ({"key": JsonColumns("a int")}, ValueError, "add it to columns"),
        ("avro", TypeError, "decode takes an object such as kconsumer.registry.AvroColumns"),
        (JsonColumns, TypeError, "decode takes an object"),
    ],
)
def test_what_is_no_decoder(given: Any, error: type[Exception], message: str) -> None:
    """Wrong decoders raise before anything is read."""
    with pytest.raises(error, match=message):
        checked(given, ("value",))


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: AvroColumns("mock://"), "either the schema of the column, or the subject"),
        (lambda: AvroColumns("mock://", "{}", subject="a"), "either the schema of the column, or the subject"),
        (lambda: AvroColumns("mock://", '["int", "string"]'), "values cannot be decoded to a union"),
        (lambda: JsonColumns("a in"), "values cannot be decoded to 'in'"),
        (lambda: ProtobufColumns(int), "message_type must be a class of messages"),
    ],
)
def test_wrong_arguments(create: Any, message: str) -> None:
    """Wrong arguments raise a ConfigError before anything is read."""
    with pytest.raises(ConfigError, match=message):
        create()


def test_arguments_of_decode() -> None:
    """A column that does not exist, and an unknown `on_error`, raise ValueError."""
    with pytest.raises(ValueError, match="there is no column key; there are value"):
        decode(pa.table({"value": [b""]}), key=JsonColumns("a int"))
    given: Any = "skip"
    with pytest.raises(ValueError, match="on_error is raise or null, not 'skip'"):
        decode(pa.table({"value": [b""]}), on_error=given)


def test_pyarrow_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the module, the extra, and how to install it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pyarrow, which is not installed: .*pip install '.\[registry\]'"):
        JsonColumns("a int")
