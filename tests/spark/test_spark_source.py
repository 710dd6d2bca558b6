"""Features of the source that Spark's own does not have, on a real session and broker."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import kconsumer.spark
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered
from support.spark.recorded_source import Parity
from support.spark.spark_parity import OURS, Outcome, Stream, failure, plain


@pytest.fixture
def options(kafka: Kafka, topic_name: str) -> dict[str, str]:
    """Returns options for a topic of three partitions with 100, 20 and 3 records."""
    kafka.create_topic(topic_name, 3)
    for partition, count in enumerate((100, 20, 3)):
        kafka.produce(topic_name, numbered(count), partition=partition)
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}


def load(spark: Any, options: dict[str, str], **more: str) -> Any:
    """Returns a batch query over the topic."""
    return spark.read.format(OURS).options(**options, **more).load()


def test_found_without_registering(spark: Any, options: dict[str, str]) -> None:
    """A session finds the format without registration, in Python and in SQL."""
    session = spark.newSession()
    assert 123 == session.read.format(OURS).options(**options).load().count()
    written = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
    session.sql(f"CREATE TEMPORARY VIEW records USING kconsumer OPTIONS ({written})")
    assert 20 == session.sql("SELECT count(*) FROM records WHERE partition = 1").first()[0]


def environment(spark: Any) -> dict[str, str]:
    """Returns the environment variables that the session's queries pass to the source's Python workers."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    return dict(sources.lookupDataSource(OURS).dataSourceCls().envVars())


def test_a_stream_adds_no_variable_to_the_shared_environment(
    spark: Any, options: dict[str, str], tmp_path: Path
) -> None:
    """Streams that start at the same time replace values in their shared map and add no key, so none of them sees the
    map while it changes.
    """
    session = spark.newSession()
    kconsumer.spark.register(session)
    before = environment(session)
    frame = session.readStream.format(OURS).options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query.start().awaitTermination(60)
    after = environment(session)
    assert before != after
    assert before.keys() == after.keys()
    assert "SPARK_BUFFER_SIZE" not in spark.sparkContext.environment


def test_only_chosen_columns_are_read(spark: Any, options: dict[str, str]) -> None:
    """A schema or the option `columns` selects columns and their order; a schema that does not fit raises an error."""
    chosen = spark.read.format(OURS).schema("offset long, value binary").options(**options).load()
    assert ["offset", "value"] == chosen.columns
    assert [(0, b"0"), (1, b"1")] == [
        tuple(row) for row in chosen.filter("offset < 2").distinct().sort("offset").take(2)
    ]
    assert ["partition", "offset"] == load(spark, options, columns="partition,offset").columns
    wrong = spark.read.format(OURS).schema("offset int").options(**options)
    assert "offset has type bigint, not int" in failure(lambda: wrong.load().collect())


@pytest.mark.parity
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_give_the_same_rows_pushed_or_not(
    spark: Any, options: dict[str, str], parity: Parity, pushdown: str
) -> None:
    """With and without pushdown the rows equal those of Spark's own source; with pushdown fewer partitions are read."""
    filters = [
        "partition = 1",
        "partition in (0, 2) and offset >= 2 and offset < 5",
        "offset = 7",
        "topic like 'test%' and partition <> 0",
        "timestamp > current_timestamp() - interval 1 hour and offset in (1, 3)",
        "timestamp > current_timestamp() + interval 1 hour",
        "partition = 0 or offset = 1",
        "cast(value as string) = '2'",
    ]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        for condition in filters:
            readers = (spark.read.format(source).options(**options) for source in parity.sources)
            found = [Outcome(sorted(map(plain, reader.load().filter(condition).collect()))) for reader in readers]
            theirs, ours = parity.outcomes(found)
            assert theirs.rows == ours.rows, condition
        tasks = load(spark, options).filter("partition = 1").rdd.getNumPartitions()
        assert (1 if pushdown == "true" else 3) == tasks
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_limit_leaves_the_source_usable(spark: Any, options: dict[str, str]) -> None:
    """After a query that stops early, the next one reads all records."""
    for _ in range(2):
        assert 5 == len(load(spark, options).limit(5).collect())
    assert 123 == load(spark, options).count()


def test_text_and_header_map(spark: Any, kafka: Kafka, topic_name: str) -> None:
    """Values are returned as text and headers as a map, which has the last value of a repeated key."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, ["olé".encode()], headers=[("a", b"1"), ("b", None), ("a", b"2")])
    kafka.produce(topic_name, [None])
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
    rows = load(spark, given, valueFormat="string", headers="map").select("value", "headers").collect()
    assert [("olé", {"a": b"2", "b": None}), (None, None)] == [tuple(row) for row in rows]


def test_values_that_are_no_text(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Values that are not text fail the query, are skipped, or become dead letters with their place."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"a", b"\xff\xfe", b"c"], keys=[b"k1", b"k2", b"k3"])
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic_name,
        "valueFormat": "string",
        "deadLetterPath": str(tmp_path),
    }
    text = failure(lambda: load(spark, given).collect())
    assert f"value at offset 1 of {topic_name}-0 is not UTF-8" in text
    assert ["a", "c"] == [row.value for row in load(spark, given, onCorrupt="skip").collect()]
    assert [] == list(tmp_path.iterdir())
    assert ["a", "c"] == [row.value for row in load(spark, given, onCorrupt="deadletter").collect()]
    (file,) = tmp_path.rglob("*.jsonl")
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert ("undecodable", 1, b"\xff\xfe") == (letter["kind"], letter["start"], base64.b64decode(letter["value"]))


def test_lost_offsets_as_dead_letters(spark: Any, kafka: Kafka, options: dict[str, str], tmp_path: Path) -> None:
    """onDataLoss=deadletter reads the remaining records and writes dead letters for the lost ones."""
    topic = options["subscribe"]
    kafka.delete_records(topic, {0: 40})
    start = json.dumps({topic: {"0": 10, "1": 0, "2": 0}})
    given = {"startingOffsets": start, "onDataLoss": "deadletter", "deadLetterPath": str(tmp_path)}
    assert 83 == load(spark, options, **given).count()
    (file,) = tmp_path.rglob("*.jsonl")
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert ("lost", 10, 40, "retention") == tuple(letter[name] for name in ("kind", "start", "end", "reason"))


def test_planners_by_name(spark: Any, options: dict[str, str]) -> None:
    """All planners read all records, with different partitions."""
    tasks = {}
    for name in ("spark", "even", "bytes"):
        frame = load(spark, options, planner=name, minPartitions="6")
        tasks[name] = frame.rdd.getNumPartitions()
        assert 123 == frame.count()
    assert {"spark": 6, "even": 7, "bytes": 7} == tasks


def test_bytes_per_trigger(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A limit in bytes gives micro-batches of about that size."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"x" * 1000] * 100)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic_name,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": "30000",
    }
    outcome = Stream(spark, OURS, given, tmp_path).run().outcome()
    assert 100 == len(outcome.rows)
    assert 4 == len(outcome.batches)
    assert all(20 <= rows <= 30 for *_, rows in outcome.batches[:3])


def test_offsets_committed_for_lag_tools(spark: Any, kafka: Kafka, options: dict[str, str], tmp_path: Path) -> None:
    """The source commits the offsets of completed micro-batches, a listener commits the last one, too, and the lag is
    known.
    """
    topic, servers = options["subscribe"], kafka.bootstrap_servers
    listener = kconsumer.spark.lag_listener(spark, f"{topic}-listener", bootstrap_servers=servers)
    try:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "70", "commitGroupId": f"{topic}-group"}
        Stream(spark, OURS, {**options, **given}, tmp_path).run()
        wait_until(lambda: len(listener.committed) == 3 and listener.committed.get((topic, 0)) == 100, 20, "commits")
    finally:
        spark.streams.removeListener(listener)
    assert {0: 100, 1: 20, 2: 3} == kafka.committed(f"{topic}-listener", topic)
    assert kafka.committed(f"{topic}-group", topic)[0] >= 50
    (lag,) = listener.lags.values()
    assert 0 == lag.total


def test_a_group_with_members_does_not_fail_the_stream(
    spark: Any, kafka: Kafka, options: dict[str, str], tmp_path: Path
) -> None:
    """The broker rejects a commit to a group with members; the stream continues, and the group's offsets do not
    change.
    """
    from kconsumer import Consumer

    topic = options["subscribe"]
    with Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic, enable_auto_commit=False) as member:
        wait_until(lambda: [member.poll(0.2)] and member.assignment(), 30, "an assignment")
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "70", "commitGroupId": topic}
        assert 123 == len(Stream(spark, OURS, {**options, **given}, tmp_path).run().outcome().rows)
    assert {} == kafka.committed(topic, topic)


def test_continuous_processing_is_refused(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    """Continuous processing raises an error that says Spark does not support it for Python sources."""
    frame = spark.readStream.format(OURS).options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    text = failure(lambda: writer.trigger(continuous="1 second").start().awaitTermination(30))
    assert "continuous" in text
