"""Tasks of the Spark source read from a real broker, without Spark: corrupt batches, early ends, large records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer.spark.executor import read
from kconsumer.spark.loss import DataLossError
from kconsumer.spark.options import SourceConfig, parse
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.schema import default_projection
from support.brokers.kafka import Kafka, KafkaCluster
from support.harnesses.polling import numbered

TOPIC = "damaged"
FINE = "fine"


def config(kafka: Kafka, **options: Any) -> SourceConfig:
    """Returns the configuration of a batch query of a topic."""
    return parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": TOPIC, **options}, "batch")


def offsets(kafka: Kafka, task: OffsetRange, **options: Any) -> list[int]:
    """Returns the offsets of a task's rows."""
    return [offset for _, _, offset in rows(kafka, [task], **options)]


def rows(kafka: Kafka, task: list[OffsetRange], **options: Any) -> list[tuple[str, int, int]]:
    """Returns topic, partition and offset of a task's rows."""
    chosen = config(kafka, **options)
    batches = read(chosen, default_projection(chosen), task, ("query", "3"))
    return [(row["topic"], row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def all_of(ranges: list[OffsetRange]) -> list[tuple[str, int, int]]:
    """Returns topic, partition and offset of all records in ranges without gaps."""
    return sorted((item.topic, item.partition, offset) for item in ranges for offset in range(item.start, item.end))


@pytest.fixture(scope="module")
def damaged() -> Iterator[Kafka]:
    """A broker with a batch, at offsets 10 to 14, in which one byte is changed."""
    with KafkaCluster() as kafka:
        kafka.create_topic(TOPIC)
        for start in range(0, 30, 5):
            kafka.produce(TOPIC, [b"value-%02d" % number for number in range(start, start + 5)])
        kafka.create_topic(FINE)
        kafka.produce(FINE, numbered(5))
        (node,) = kafka.nodes
        node.stop()
        (segment,) = (node.folder / "data" / f"{TOPIC}-0").glob("*.log")
        data = segment.read_bytes()
        assert 1 == data.count(b"value-12")
        segment.write_bytes(data.replace(b"value-12", b"value-xx"))
        node.start()
        kafka.wait_for_partitions(TOPIC, 1)
        yield kafka


def test_early_end_and_next_task(kafka: Kafka) -> None:
    """A task that Spark ends early closes its range; the process reads its next range over the same connections."""
    topic = kafka.create_topic(f"early-{uuid.uuid4().hex[:8]}")
    kafka.produce(topic, [b"x" * 1000] * 3000)
    chosen = config(kafka, batchRows="100")
    for _ in range(3):
        batches = read(chosen, default_projection(chosen), [OffsetRange(topic, 0, 0, 3000)], ())
        assert 100 == next(batches).num_rows
        batches.close()
    assert list(range(5, 2995)) == offsets(kafka, OffsetRange(topic, 0, 5, 2995), batchRows="100")


def test_large_records_and_small_batches(kafka: Kafka) -> None:
    """A record of ten megabytes is read; a batch ends with the row that reaches batchBytes."""
    topic = kafka.create_topic(f"large-{uuid.uuid4().hex[:8]}", config={"max.message.bytes": "20000000"})
    big = {"message.max.bytes": 15_000_000}
    kafka.produce(topic, [b"y" * 10_000_000, b"small", b"z" * 9_000_000], config=big)
    chosen = config(kafka)
    batches = list(read(chosen, default_projection(chosen), [OffsetRange(topic, 0, 0, 3)], ()))
    assert 1 == batches[0].num_rows
    assert [10_000_000, 5, 9_000_000] == [len(value.as_py()) for batch in batches for value in batch.column("value")]


def test_what_is_gone(kafka: Kafka) -> None:
    """Deleted records fail the task with the words of Spark's own source, or are skipped."""
    topic = kafka.create_topic(f"gone-{uuid.uuid4().hex[:8]}")
    kafka.produce(topic, numbered(50))
    kafka.delete_records(topic, {0: 20})
    task = OffsetRange(topic, 0, 10, 30)
    with pytest.raises(
        DataLossError, match=r"KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE.*Some data may have been lost"
    ):
        offsets(kafka, task)
    assert list(range(20, 30)) == offsets(kafka, task, failOnDataLoss="false")
    assert [] == offsets(kafka, OffsetRange(topic, 0, 10, 15), failOnDataLoss="false")


def test_several_ranges_in_a_task(kafka: Kafka) -> None:
    """A task reads several small ranges, all of them and in order; without ranges it reads no rows."""
    topic = kafka.create_topic(f"shared-{uuid.uuid4().hex[:8]}", 3)
    for partition in range(3):
        kafka.produce(topic, numbered(10), partition=partition)
    chosen = config(kafka)
    ranges = [OffsetRange(topic, 2, 3, 5), OffsetRange(topic, 0, 0, 1), OffsetRange(topic, 2, 9, 10)]
    batches = list(read(chosen, default_projection(chosen), ranges, ()))
    found = [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]
    assert [(2, 3), (2, 4), (0, 0), (2, 9)] == found
    assert [] == list(read(chosen, default_projection(chosen), [], ()))


def test_a_task_of_many_partitions(kafka: Kafka) -> None:
    """A task reads the small ranges of a hundred partitions, each record once, whether their bounds are offsets or not,
    also if records of some have been deleted.
    """
    topic = kafka.create_topic(f"many-{uuid.uuid4().hex[:8]}", 100)
    for partition in range(100):
        kafka.produce(topic, numbered(4), partition=partition)
    ranges = [OffsetRange(topic, partition, 1, 4) for partition in range(100)]
    assert all_of(ranges) == sorted(rows(kafka, ranges))
    unbound = [item._replace(start=-2, end=-1) for item in ranges]
    assert all_of([item._replace(start=0) for item in ranges]) == sorted(rows(kafka, unbound, batchRows="7"))
    assert all_of(ranges) == sorted(rows(kafka, ranges, includeHeaders="true", headers="map"))
    kafka.delete_records(topic, {10: 3, 20: 4})
    with pytest.raises(DataLossError, match=f"{topic}-10"):
        rows(kafka, ranges)
    kept = {10: 3, 20: 4}
    left = [item._replace(start=kept.get(item.partition, 1)) for item in ranges]
    assert all_of(left) == sorted(rows(kafka, ranges, failOnDataLoss="false"))
    assert all_of(left) == sorted(rows(kafka, [*unbound[:1], *left[1:]], failOnDataLoss="false"))[1:]
