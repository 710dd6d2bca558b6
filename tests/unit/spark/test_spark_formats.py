"""The formats of values: combinations of options, the frames of Confluent's serializers, and invalid rows."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kconsumer.errors import ConfigError
from kconsumer.formats.decoders import TextDecoder
from kconsumer.spark import formats
from kconsumer.spark.columns import decode
from kconsumer.spark.options import parse
from kconsumer.spark.schema import default_projection
from support.registry import values
from support.registry.server import registry_server

MINIMAL = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"valueFormat": "xml"}, "one of raw, string, json, avro, protobuf"),
        ({"valueFormat": "json"}, "valueFormat=json needs valueSchema"),
        ({"valueFormat": "raw", "valueRegistry": "http://a"}, "valueRegistry needs valueFormat=avro, json or protobuf"),
        ({"valueRegistry.ssl.ca.location": "a"}, "valueRegistry is missing, the address"),
        ({"keyFormat": "json"}, "keyFormat=json needs keySchema"),
        ({"keySchema": "id long"}, "keySchema has no meaning with keyFormat=raw"),
        (
            {"keyFormat": "avro", "keySchema": '"int"', "keyRegistry": "http://a", "keyFraming": "none"},
            "keyRegistry needs the ids of schemas: omit keyFraming=none",
        ),
        (
            {"valueFormat": "avro", "valueRegistry": "http://a", "subscribe": "t,u"},
            "set valueSchema, or valueRegistry.subject",
        ),
        ({"valueFormat": "avro", "valueRegistry": "ftp://a"}, "latest schema of the subject 't-value': ConfigError"),
        ({"valueSchema": "id long"}, "valueSchema has no meaning with valueFormat=raw"),
        ({"valueFormat": "string", "valueSchema": "id long"}, "no meaning with valueFormat=string"),
        ({"valueFormat": "json", "valueSchema": "id lon"}, "valueSchema='id lon' cannot be used: values cannot be"),
        ({"valueFormat": "json", "valueSchema": "id lon" * 99}, "...' cannot be used"),
        ({"valueFormat": "json", "valueSchema": "id long", "valueMessage": "m"}, "valueMessage has no meaning"),
        ({"valueFormat": "avro", "valueSchema": "{"}, "an Avro schema must be JSON"),
        ({"valueFormat": "protobuf", "valueSchema": "x"}, "valueFormat=protobuf needs valueMessage"),
        (
            {"valueFormat": "protobuf", "valueSchema": "/no/file", "valueMessage": "m"},
            "the file with a FileDescriptorSet",
        ),
        ({"valueFraming": "x"}, "one of none, confluent"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], words: str) -> None:
    """Invalid combinations are refused before any request, with advice."""
    with pytest.raises(ConfigError) as caught:
        parse({**MINIMAL, **options}, "any")
    assert words in str(caught.value)


def test_a_format_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    entry = formats.FORMATS["json"]._replace(module="no_such_module", package="no-such")
    monkeypatch.setitem(formats.FORMATS, "json", entry)
    with pytest.raises(ConfigError, match=r"no_such_module, which is not installed; .*pip install no-such"):
        parse({**MINIMAL, "valueFormat": "json", "valueSchema": "id long"}, "any")


@pytest.mark.parametrize(
    ("options", "good", "expected"),
    [
        ({}, b"x", b"x"),
        ({"valueFormat": "string"}, b"x", "x"),
        ({"valueFormat": "json", "valueSchema": "a long"}, b'{"a":1}', {"a": 1}),
    ],
)
def test_confluent_frames(options: dict[str, str], good: bytes, expected: object) -> None:
    """In every format the five bytes of the frame are removed; a value without a frame is invalid, and
    null is valid.
    """
    config = parse({**MINIMAL, **options, "valueFraming": "confluent"}, "batch")
    decoder = default_projection(config).decoders()["value"]
    values = [b"\0\0\0\0\7" + good, good, None, b"\0\0\0\7", b"", b"\0\0\0\1\7" + good]
    column, bad = decoder.decode(pa.array(values, pa.binary()))
    assert [expected, None, None, None, None, expected] == column.to_pylist()
    assert dict.fromkeys([1, 3, 4], "has no Confluent header") == bad
    column, bad = decoder.decode(pa.array([], pa.binary()))
    assert ([], {}) == (column.to_pylist(), bad)


def test_a_bad_frame_and_a_bad_value() -> None:
    """An invalid frame and an invalid value are both found, each with its reason."""
    options = {**MINIMAL, "valueFormat": "string", "valueFraming": "confluent"}
    decoder = default_projection(parse(options, "batch")).decoders()["value"]
    _, bad = decoder.decode(pa.array([b"x", b"\0\0\0\0\0\xff"], pa.binary()))
    assert {0: "has no Confluent header", 1: "is not UTF-8"} == bad


def test_invalid_rows_are_removed_whole() -> None:
    """A row with an invalid key or value is removed once, with both as bytes; the order of columns is unchanged."""
    batch = pa.record_batch(
        {"offset": [1, 2, 3, 4], "value": [b"a", b"\xff", b"c", b"\xff"], "key": [b"\xfe", b"", b"k", b"\xfe"]}
    )
    kept, bad = decode(batch, {"key": TextDecoder(), "value": TextDecoder()})
    assert [{"offset": 3, "value": "c", "key": "k"}] == kept.to_pylist()
    assert ["offset", "value", "key"] == kept.schema.names
    assert [(1, "key", b"a"), (2, "value", b"\xff"), (4, "key", b"\xff")] == [
        (row["offset"], row["column"], row["value"]) for row in bad
    ]


def test_writers_schemas_of_a_registry() -> None:
    """With valueRegistry, values of an older schema are converted to valueSchema, after the query was pickled."""
    options = {"valueFormat": "avro", "valueFraming": "confluent", "valueSchema": values.NEW}
    with registry_server() as address, SchemaRegistryClient({"url": address}) as client:
        old = values.avro(client, values.OLD, {"number": 1})
        chosen = default_projection(parse({**MINIMAL, **options, "valueRegistry": address}, "any")).value
        decoder = pickle.loads(pickle.dumps(chosen)).decoder()
        found = decoder.decode(pa.array([old, None, b"x"], pa.binary()))
        del decoder
    assert [{"number": 1, "text": "none", "time": None}, None, None] == found.column.to_pylist()
    assert {2: "has no Confluent header with the id of a schema; it begins with 78"} == found.bad


LINE = "shop.Envelope.Line"


@pytest.mark.parametrize("column", ["key", "value"])
@pytest.mark.parametrize(
    ("name", "options", "expected", "reason"),
    [
        ("avro", {}, [1, 2, None], "the registry has no schema with the id 99"),
        ("json", {"Schema": "number long"}, [1, None, None], "'number' is a required property"),
        ("protobuf", {}, [7, None, None], f"is a message {LINE}, not shop.Order"),
        ("protobuf", {"Message": LINE}, [None, "x", None], f"is a message shop.Order, not {LINE}"),
    ],
)
def test_formats_of_a_registry(
    column: str, name: str, options: dict[str, str], expected: list[Any], reason: str, tmp_path: Path
) -> None:
    """Keys and values have a format and a registry; without a schema, the latest one of the subject is the type.

    Each id is requested once, whatever number of decoders needs it, and so is one that the registry does not have.
    """
    requested: list[str] = []
    with registry_server(requested) as address, SchemaRegistryClient({"url": address}) as client:
        order, line = values.message_types()
        data = {
            "avro": [values.avro(client, values.OLD, {"number": 1}), values.avro(client, values.NEW, {"number": 2})],
            "json": [values.json_value(client, {"number": 1}), values.json_value(client, {"number": 1})[:5] + b"{}"],
            "protobuf": [values.protobuf(client, order(number=7)), values.protobuf(client, line(text="x"))],
        }[name]
        (tmp_path / "address").write_text(address)
        subject = {"protobuf": "orders-protobuf-value"}.get(name, "orders-value")
        given = {"Format": name, "Registry": f"file:{tmp_path}/address", "Registry.subject": subject, **options}
        given["Registry.timeout"] = "20"
        config = parse({**MINIMAL, **{column + option: text for option, text in given.items()}}, "any")
        projection = pickle.loads(pickle.dumps(default_projection(config)))
        requested.clear()
        for _ in range(3):
            decoder = projection.decoders()[column]
            found = decoder.decode(pa.array([*data, b"\0\0\0\0\x63\0\0"]))
    fields = [None if row is None else row.get("number", row.get("text")) for row in found.column.to_pylist()]
    assert (expected, True) == (fields, reason in str(found.bad))
    assert len(set(requested)) == len(requested)
    assert address not in repr(projection)


def test_a_registry_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and where."""
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    options = {
        "valueFormat": "avro",
        "valueFraming": "confluent",
        "valueSchema": values.NEW,
        "valueRegistry": "http://a",
    }
    with pytest.raises(ConfigError, match=r"valueRegistry needs .* on the driver and on all executors"):
        default_projection(parse({**MINIMAL, **options}, "any"))
