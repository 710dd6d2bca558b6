"""Values that the source decodes, on a real session and broker: the column, the policies, and Spark's own decoding for
comparison.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer

from support.brokers.kafka import Kafka
from support.registry import values
from support.registry.server import registry_server
from support.spark.spark_parity import OURS, Stream, failure

#: Documents that Spark's `from_json` decodes, or rejects, as we do.
EQUAL = [
    "{}", '{"t": null, "o": {}, "l": [], "m": {}}', '{"V": 1, "v": 2, "T": "x"}', '{"v": 1, "v": null}', '{"v": -0}',
    '{"o": {"a": 1, "a": 2, "A": 3}}', '{"l": [null], "m": {"": null}}', '{"x": 1e999, "y": "\\ud800", "v": 1}',
    '{"v": 9223372036854775807, "i": 127}', '{"v": 1.0}', '{"v": "1"}', '{"v": 9223372036854775808}', '{"i": -129}',
    '{"d": 1}', '{"d": 1e400}', '{"d": NaN}', '{"d": "-INF"}', '{"d": "1.5"}', '{"d": Inf}', '{"d": 01}', '{"d": .5}',
    '{"p": 99999999.994}', '{"p": 99999999.995}', '{"p": "1.005"}', '{"p": 1e-999}', '{"p": NaN}', '{"t": true}',
    '{"t": {"b": [1, null], "a": "é"}}', '{"t": "\\ud83d\\ude00\\u0000"}', '{"o": [{"a": 1}]}', '{"l": {"0": 1}}',
    '{"l": [1, "x"]}', '{"m": {"a": "x"}}', '{"o": "{}"}', '{"v": ""}', '{"s": ""}', "[]", "null", "1", '{"v":',
    '{"v":1', '{"t":"a', '{"v":1,}', "{v:1}", '\ufeff{"v":1}', '/* c */{"v":1}', '{"x": tru}', '{"t": "\\q"}',
    '{"s": "2024-01-02T03:04:05.1234567+0230"}', '{"s": "2024-01-02 03:04:05Z"}', '{"s": "1900-01-01"}',
    '{"s": "2024-02-30"}', '{"s": "2024-01-02T25:00:00Z"}', '{"c": "2024-02-29"}', '{"n": "2024-01-02T03:04"}',
    '{"n": "2024-01-02T03:04:05Z"}', '{"b": "aGk="}', '{"b": "aGk"}',
]  # fmt: skip
NO = "invalid"
#: The differences: the document, the value of its field by `from_json`, and ours.
DIFFERENT = [
    ('{"v": 1} x', 1, NO), ('{"v": 1}{"v": 2}', 1, NO), ("{'v': 1}", 1, NO), ('{"v": "a", "v": 2}', NO, 2),
    ('{"t": "\\ud800"}', "?", NO), ('{"t": "\xff"}', "\ufffd", NO), ('{"d": +INF}', float("inf"), NO),
    ('{"i": 255}', -1, NO), ('{"t": 1.50}', "1.5", "1.50"), ('{"t": NaN}', '"NaN"', "NaN"),
    ('{"p": "1,234.5"}', Decimal("1234.50"), NO), ('{"b": "aGk=\\n"}', b"hi", NO),
    ('{"t": {"a": 1, "a": 2}}', '{"a":1,"a":2}', '{"a":2}'), ('{"s": 1}', datetime(1970, 1, 1, 0, 0, 1), NO),
    ('{"s": "2024"}', datetime(2024, 1, 1), NO), ('{"s": "2024-01-02T03:04Z"}', NO, datetime(2024, 1, 2, 3, 4)),
    ('{"c": "2024-01-02 x"}', date(2024, 1, 2), NO), ('{"v": 1, "x": ' + "1" * 1001 + "}", NO, 1),
]  # fmt: skip
SCHEMA = (
    "v long, i tinyint, d double, p decimal(10,2), t string, o struct<a:int>, l array<int>, m map<string,int>,"
    " s timestamp, c date, n timestamp_ntz, b binary"
)


@pytest.fixture
def options(kafka: Kafka, topic_name: str) -> dict[str, str]:
    """A topic with a document, one without the field, a tombstone, and two invalid values."""
    kafka.create_topic(topic_name)
    values = [b'{"id": 1}', b'{"name": null}', None, b'{"id":', b'{"id": "seven"}', b'{"id": 6}']
    kafka.produce(topic_name, values, keys=[b"k%d" % n for n in range(len(values))])
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}


def load(spark: Any, options: dict[str, str], **more: str) -> Any:
    """Returns a batch query over the topic."""
    return spark.read.format(OURS).options(**options, **more).load()


def test_json_as_from_json(spark: Any, kafka: Kafka, topic_name: str) -> None:
    """The column has the type and the values of `from_json`, except for the differences that docs/spark.md lists."""
    documents = [*EQUAL, *(document for document, _, _ in DIFFERENT)]
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [*(text.encode("latin-1" if "\xff" in text else "utf-8") for text in documents), None])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
    asked = {"valueFormat": "json", "valueSchema": SCHEMA, "columns": "offset,value,valueError"}
    ours = load(spark, options, **asked).sort("offset")
    decoded = f"from_json(cast(value as string), '{SCHEMA}, bad string', map('columnNameOfCorruptRecord', 'bad')) AS v"
    whole = load(spark, options).sort("offset").selectExpr(decoded)
    assert whole.schema["v"].dataType.fields[:-1] == ours.schema["value"].dataType.fields
    theirs = [NO if row.v and row.v.bad else row.v and row.v[:-1] for row in whole.collect()]
    found = [NO if row.valueError else row.value and tuple(row.value) for row in ours.collect()]
    assert (None, None, 45) == (theirs.pop(), found.pop(), found.count(NO)), "the last one is a tombstone"
    for at, document in enumerate(EQUAL):
        assert repr(theirs[at]) == repr(found[at]), document
    for at, (document, of_spark, of_us) in enumerate(DIFFERENT, len(EQUAL)):
        for row, expected in ((theirs[at], of_spark), (found[at], of_us)):
            assert row == NO if expected == NO else expected in row, (document, row)


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
