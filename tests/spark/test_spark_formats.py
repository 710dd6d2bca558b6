"""Values that the source decodes, on a real session and broker: the column, the policies, and Spark's own decoding for
comparison.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer

from support.brokers.kafka import Kafka
from support.registry import values
from support.registry.server import registry_server
from support.spark.spark_parity import OURS, Stream, failure

SCHEMA = (
    "id long, amount double, price decimal(10,2), name string, tags array<string>, at timestamp, day date,"
    " who struct<age: int>, scores map<string,float>, blob binary"
)
FULL = {
    "id": 1,
    "amount": 2.5,
    "price": 3.25,
    "name": "olé",
    "tags": ["a", None],
    "at": "2024-01-02T03:04:05.678Z",
    "day": "2024-02-29",
    "who": {"age": 4, "unknown": [1]},
    "scores": {"x": 0.5},
    "blob": "aGk=",
    "unknown": {"id": 9},
}


@pytest.fixture
def options(kafka: Kafka, topic_name: str) -> dict[str, str]:
    """A topic with a full document, a sparse one, a tombstone, and two invalid values."""
    kafka.create_topic(topic_name)
    values = [json.dumps(FULL).encode(), b'{"name": null}', None, b'{"id":', b'{"id": "seven"}', b'{"id": 6}']
    kafka.produce(topic_name, values, keys=[b"k%d" % n for n in range(len(values))])
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}


def load(spark: Any, options: dict[str, str], **more: str) -> Any:
    """Returns a batch query over the topic."""
    return spark.read.format(OURS).options(**options, **more).load()


def test_json_as_spark_decodes_it(spark: Any, options: dict[str, str]) -> None:
    """The column is a struct of the schema, and its values equal those of Spark's `from_json`."""
    asked = {"valueFormat": "json", "valueSchema": SCHEMA, "onCorrupt": "skip"}
    ours = load(spark, options, **asked).select("offset", "key", "value")
    raw = spark.read.format(OURS).options(**options).load()
    theirs = raw.selectExpr("offset", "key", f"from_json(cast(value as string), '{SCHEMA}') AS value")
    assert theirs.schema == ours.schema
    rows = ours.sort("offset").collect()
    assert theirs.filter("offset not in (3, 4)").sort("offset").collect() == rows
    assert [5] == [row.offset for row in ours.filter("value.id = 6 and value is not null").collect()]
    (full, sparse, tombstone, last) = (row.value for row in rows)
    assert (Decimal("3.25"), datetime(2024, 1, 2, 3, 4, 5, 678000), b"hi") == (full.price, full["at"], full.blob)
    assert (None, None, 6) == (tombstone, sparse.name, last.id)


def test_json_that_is_none(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    """An invalid document fails the query with its place, is skipped, or becomes a dead letter. A query that does not
    select the values does not decode it.
    """
    asked = {**options, "valueFormat": "json", "valueSchema": "id long", "deadLetterPath": str(tmp_path / "letters")}
    text = failure(lambda: load(spark, asked).collect())
    assert f"value at offset 3 of {options['subscribe']}-0 is not JSON" in text
    assert 6 == spark.read.format(OURS).schema("offset long, key binary").options(**asked).load().count()
    assert [1, None, None, 6] == [row.id for row in load(spark, asked, onCorrupt="skip").select("value.id").collect()]
    given = {**asked, "startingOffsets": "earliest", "onCorrupt": "deadletter"}
    outcome = Stream(spark, OURS, given, tmp_path).run().outcome()
    assert 4 == len(outcome.rows)
    (file,) = (tmp_path / "letters").rglob("*.jsonl")
    first, second = map(json.loads, file.read_text().splitlines())
    assert ("undecodable", 3, b'{"id":') == (first["kind"], first["start"], base64.b64decode(first["value"]))
    assert (4, 'value has "seven" at id, which is not bigint') == (second["start"], second["reason"])


def test_schemas_that_do_not_fit(spark: Any, options: dict[str, str]) -> None:
    """A schema for the column must equal the schema of the values, apart from nullability."""
    reader = spark.read.format(OURS).options(**options, valueFormat="json", valueSchema="id long")
    assert "has type struct<id:bigint>, not struct<id:int>" in failure(
        lambda: reader.schema("value struct<id: int>").load().collect()
    )
    assert "omit NOT NULL" in failure(lambda: reader.schema("value struct<id: long NOT NULL>").load().collect())


def test_binary_formats(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Avro and Protocol Buffers become columns, too, with their packages on the executors; invalid values become dead
    letters.
    """
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    kafka.create_topic(topic_name)
    # The values: a timestamp of 5 s and 6 ns as a message; an int of 9 and a string of three letters as an Avro record.
    kafka.produce(topic_name, [b"\x08\x05\x10\x06", b"\x12\x06abc", None])
    file = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    file.message_type[0].name, file.package = "Moment", "t"
    (tmp_path / "set").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    fields = [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic_name,
        "columns": "value",
        "onCorrupt": "deadletter",
    }
    avro = {"valueFormat": "avro", "valueSchema": json.dumps({"type": "record", "name": "r", "fields": fields})}
    frame = load(spark, given, **avro, deadLetterPath=str(tmp_path / "avro"))
    assert [(9, "abc"), (None, None)] == [tuple(row) for row in frame.select("value.*").collect()]
    (letter,) = (tmp_path / "avro").rglob("*.jsonl")
    assert "is not Avro of this schema" in json.loads(letter.read_text())["reason"]
    protobuf = {"valueFormat": "protobuf", "valueSchema": str(tmp_path / "set"), "valueMessage": "t.Moment"}
    frame = load(spark, given, **protobuf, deadLetterPath=str(tmp_path / "protobuf"))
    assert (5, 6) in [tuple(row) for row in frame.select("value.*").collect()]


def test_avro_with_a_registry(spark: Any, kafka: Kafka, topic_name: str) -> None:
    """Tasks request the schemas of the writers; older values are converted to valueSchema. Keys have one, too."""
    kafka.create_topic(topic_name)
    with registry_server() as address, SchemaRegistryClient({"url": address}) as client:
        old = values.avro(client, values.OLD, {"number": 1}, topic_name)
        new = values.avro(client, values.NEW, {"number": 2, "text": "b"}, topic_name)
        key = values.protobuf(client, values.message_types()[0](number=7), topic_name)
        kafka.produce(topic_name, [old, new, None], keys=[key, None, key])
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
        options |= {"keyFormat": "protobuf", "keyRegistry": address, "keyRegistry.subject": f"{topic_name}-value"}
        asked = {
            "valueFormat": "avro",
            "valueFraming": "confluent",
            "valueSchema": values.NEW,
            "valueRegistry": address,
        }
        query = load(spark, options, **asked)
        rows = query.sort("offset").select("key.number", "value.number", "value.text").collect()
    assert [(7, 1, "none"), (None, 2, "b"), (7, None, None)] == [tuple(row) for row in rows]


@pytest.mark.parametrize("serializer", [header_schema_id_serializer, values.number_in_header])
def test_avro_with_ids_in_headers(spark: Any, kafka: Kafka, topic_name: str, serializer: Any) -> None:
    """Ids of schemas are found in headers, as GUIDs and as numbers, and before values."""
    kafka.create_topic(topic_name)
    with registry_server() as address, SchemaRegistryClient({"url": address}) as client:
        for schema, value in ((values.OLD, {"number": 1}), (values.NEW, {"number": 2, "text": "b"})):
            data, headers = values.in_header(client, schema, value, topic=topic_name, serializer=serializer)
            kafka.produce(topic_name, [data, None], headers=[("other", b"x"), *headers])
        kafka.produce(topic_name, [values.avro(client, values.NEW, {"number": 3}, topic_name)])
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
        asked = {
            "valueFormat": "avro",
            "valueFraming": "confluent",
            "valueSchema": values.NEW,
            "valueRegistry": address,
        }
        query = load(spark, options, **asked)
        assert "headers" not in query.columns
        rows = query.sort("offset").select("value.number", "value.text").collect()
        with_headers = load(spark, options, **asked, includeHeaders="true").sort("offset").collect()
    assert [(1, "none"), (None, None), (2, "b"), (None, None), (3, "none")] == [tuple(row) for row in rows]
    assert [["other", "__value_schema_id"]] * 4 == [[h.key for h in row.headers] for row in with_headers[:4]]
    assert [1, 2, 3] == [row.value.number for row in with_headers if row.value is not None]
