"""Unusual logs: with gaps, mostly empty, with very large records, with very many partitions."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.brokers.compaction import write_compacted
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered
from support.spark.spark_parity import OURS, THEIRS, Options, Outcome, Stream, read_batch

MANY = 2000  # partitions
EVERY = 40  # every 40th of them has records


def options(kafka: Kafka, topic: str, **more: str) -> dict[str, str]:
    """Returns the options of queries."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }


def same(spark: Any, folder: Path, given: Options) -> Outcome:
    """Check that our stream reads the same as Spark's own source in the same micro-batches, and the same as a batch."""
    batches = [read_batch(spark, source, given) for source in (THEIRS, OURS)]
    assert batches[0].rows == batches[1].rows
    theirs, ours = (Stream(spark, source, given, folder).run().outcome() for source in (THEIRS, OURS))
    assert theirs.rows == ours.rows
    assert theirs.batches == ours.batches
    assert len(batches[1].rows) == len(ours.rows)
    return ours


@pytest.mark.parity
@pytest.mark.long
def test_a_compacted_topic(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Micro-batches over a compacted topic count offsets, and gaps are not reported as data loss."""
    write_compacted(kafka, topic_name)
    given = options(kafka, topic_name, **{"kafka.isolation.level": "read_committed"})
    wait_until(lambda: len(read_batch(spark, OURS, given).rows) < 60, 60, "compaction")
    (end,) = kafka.end_offsets(topic_name).values()
    outcome = same(spark, tmp_path, {**given, "maxOffsetsPerTrigger": "40"})
    assert len(outcome.rows) < 60 < end
    assert -(-end // 40) == len(outcome.batches)


@pytest.mark.parity
def test_mostly_empty_partitions(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Of twelve partitions two have records, and one has only deleted records; the micro-batches equal those of Spark's
    source.
    """
    kafka.create_topic(topic_name, 12)
    for partition in (3, 7, 11):
        kafka.produce(topic_name, numbered(20), partition=partition)
    kafka.delete_records(topic_name, {11: 20})
    outcome = same(spark, tmp_path, options(kafka, topic_name, maxOffsetsPerTrigger="30"))
    assert {3: 20, 7: 20} == Counter(row[0][1] for row in outcome.rows)


def test_records_of_ten_megabytes(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Records of ten megabytes are returned complete, among small ones, in a batch and in a stream."""
    kafka.create_topic(topic_name, config={"max.message.bytes": "12000000"})
    sizes = [10_000_000, 5, 9_000_000, 10_000_000, 0, 10_000_000]
    values = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    kafka.produce(topic_name, values, config={"message.max.bytes": 12_000_000})
    given = options(kafka, topic_name)
    frame = spark.read.format(OURS).options(**given).load()
    rows = frame.selectExpr("offset", "length(value)", "md5(value)").sort("offset").collect()
    sums = [hashlib.md5(value).hexdigest() for value in values]
    assert list(zip(range(6), sizes, sums, strict=True)) == [tuple(row) for row in rows]
    outcome = Stream(spark, OURS, {**given, "maxOffsetsPerTrigger": "2"}, tmp_path).run().outcome()
    assert values == [row[3][1] for row in outcome.rows]
    assert 3 == len(outcome.batches)


@pytest.mark.long
def test_thousands_of_partitions(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A batch and a stream over two thousand partitions read each record once; empty partitions get no tasks."""
    kafka.create_topic(topic_name, MANY)
    filled = range(0, MANY, EVERY)
    producer = kafka.producer()
    for number in range(10):
        for partition in filled:
            producer.produce(topic_name, b"%d" % number, partition=partition)
    assert 0 == producer.flush(30)
    given = options(kafka, topic_name)
    frame = spark.read.format(OURS).options(**given).load()
    found = {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert dict.fromkeys(filled, 10) == found
    assert frame.rdd.getNumPartitions() <= MANY // 100
    stream = Stream(spark, OURS, given, tmp_path)
    assert 10 * len(filled) == len(stream.run().outcome().rows)
    kafka.produce(topic_name, numbered(5), partition=MANY - 1)
    started = time.monotonic()
    rows = stream.run().outcome().rows
    assert 5 == len([row for row in rows if row[0][1] == MANY - 1])
    assert 10 * len(filled) + 5 == len({row[:2] for row in rows}) == len(rows)
    assert time.monotonic() - started < 60, "a micro-batch of one partition costs as if all were read"
