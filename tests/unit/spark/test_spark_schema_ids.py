"""Schema ids in the headers of records, which the Spark source finds as `poll_arrow(decode=…)` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from google.protobuf import descriptor_pb2, timestamp_pb2

from kconsumer.arrow import SparkBatch, choose_spark
from kconsumer.decode import decode_batches
from kconsumer.spark.columns import Converter
from kconsumer.spark.options import parse
from kconsumer.spark.schema import Projection, default_projection
from kconsumer.testing.batches import Rec, build_batch
from support.registry import values
from support.registry.server import registry_server

MINIMAL = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "valueFraming": "confluent"}
HEADER = "__value_schema_id"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a registry."""
    with registry_server() as address:
        yield address


@pytest.fixture
def client(registry: str) -> Iterator[Any]:
    """confluent-kafka's client of the registry."""
    with SchemaRegistryClient({"url": registry}) as found:
        yield found


def projection_of(**options: str) -> Projection:
    """Returns the columns of a query with these options and Confluent's framing."""
    return default_projection(parse({**MINIMAL, **options}, "batch"))


def convert(projection: Projection, records: list[Rec]) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Convert records as a task does that reads them from the offset 10 on. Checks the schema of the result."""
    read = dict.fromkeys([*projection.record_columns, "offset"])
    batch = decode_batches(build_batch(records, base_offset=10)).to_arrow(choose_spark(list(read)))
    found, bad = Converter(projection).convert(pa.record_batch(SparkBatch(batch)))
    assert projection.arrow_schema() == found.schema
    found.validate(full=True)
    return found, bad


def in_all_places(data: bytes, headers: list[tuple[str, bytes]]) -> list[Rec]:
    """Returns records with the id in a header, before the value, in both, and without a value."""
    other = [("other", b"\0\0\0\0\1"), ("null", None)]
    [(_, key)] = headers
    return [
        Rec(value=data, headers=[*other, *headers]),
        Rec(value=key + data, headers=other),
        Rec(value=key + data),
        Rec(value=None, headers=headers),
        Rec(value=data, headers=[(HEADER, b"\0\0\0\0\x63"), *headers]),  # the last one counts
        Rec(value=key + data, headers=[*headers, (HEADER, None)]),  # a null header: the id is before the value
    ]


@pytest.mark.parametrize("includes", ["false", "true"])
@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        ({}, b"x", b"x"),
        ({"valueFormat": "string"}, b"x", "x"),
        ({"valueFormat": "json", "valueSchema": "number long"}, b'{"number": 1}', {"number": 1}),
    ],
)
def test_ids_in_headers(options: dict[str, str], data: bytes, expected: object, includes: str) -> None:
    """Values with the id in a header have no frame, in every format. The query has the headers only if it asks."""
    projection = projection_of(**options, includeHeaders=includes)
    records = in_all_places(data, [(HEADER, b"\0\0\0\0\7")])
    found, bad = convert(projection, records)
    assert ([expected] * 3 + [None] + [expected] * 2, []) == (found.column("value").to_pylist(), bad)
    assert ("headers" in found.schema.names) == (includes == "true")


def test_ids_of_a_registry(registry: str, client: Any) -> None:
    """With valueRegistry, values are decoded with the schemas that headers name: by a number, and by a GUID."""
    avro = {"valueFormat": "avro", "valueSchema": values.NEW, "valueRegistry": registry}
    projection = projection_of(columns="value", **avro)
    old, by_guid = values.in_header(client, values.OLD, {"number": 1})
    framed = values.avro(client, values.OLD, {"number": 1})
    new, newer = values.in_header(client, values.NEW, {"number": 2, "text": "b"})
    by_number = [(HEADER, framed[:5])]
    assert (b"\1", b"\0") == (by_guid[0][1][:1], framed[:1])
    expected = {"number": 1, "text": "none", "time": None}
    for headers in (by_guid, by_number):
        records = [*in_all_places(old, headers), Rec(value=new, headers=newer), Rec(value=framed)]
        found, bad = convert(projection, records)
        rows = found.column("value").to_pylist()
        assert ([expected] * 3 + [None] + [expected] * 2, []) == (rows[:6], bad)
        assert [{"number": 2, "text": "b", "time": None}, expected] == rows[6:]


def test_message_indexes_in_headers(client: Any, tmp_path: Path) -> None:
    """In Protocol Buffers, the header has the indexes of the message, too."""
    _, line = values.message_types()
    files = descriptor_pb2.FileDescriptorSet()
    for file in (timestamp_pb2.DESCRIPTOR, line.DESCRIPTOR.file):
        file.CopyToProto(files.file.add())
    path = tmp_path / "set"
    path.write_bytes(files.SerializeToString())
    projection = projection_of(valueFormat="protobuf", valueSchema=str(path), valueMessage="shop.Envelope.Line")
    data, headers = values.in_header(client, line, line(text="x"))
    found, bad = convert(projection, in_all_places(data, headers))
    expected = {"text": "x", "time": None}
    assert ([expected] * 3 + [None] + [expected] * 2, []) == (found.column("value").to_pylist(), bad)


def test_malformed_ids_in_headers() -> None:
    """Such a value is undecodable, with its bytes for the dead letter. With valueError, the column has the reason."""
    records = [Rec(value=b"a", headers=[(HEADER, b"\2\3")]), Rec(value=b"b", headers=[(HEADER, b"\0\0\0\0\7")])]
    reason = f"has no id of a schema in the header {HEADER}, which begins with 02 03"
    found, bad = convert(projection_of(columns="value"), records)
    assert [{"value": b"b"}] == found.to_pylist()
    assert [{"value": b"a", "offset": 10, "column": "value", "reason": reason}] == bad
    found, bad = convert(projection_of(columns="value,valueBytes,valueError", valueFormat="string"), records)
    assert [
        {"value": None, "valueBytes": b"a", "valueError": reason},
        {"value": "b", "valueBytes": b"b", "valueError": None},
    ] == found.to_pylist()
    assert [] == bad
