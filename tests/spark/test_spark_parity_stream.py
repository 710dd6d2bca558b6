"""Streams through Spark's own Kafka source and ours have the same offsets in every micro-batch, and the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered
from support.spark.recorded_source import Parity
from support.spark.spark_parity import Stream

T0 = 1_700_000_000_000
Script = Callable[[Kafka, str, list[Stream]], None]


def once(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Run each stream to its end."""
    for stream in streams:
        stream.run()


def trigger_once(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Run with Trigger.Once, to which no limit applies."""
    for stream in streams:
        stream.run(once=True)


def restarted(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Write records and continue from the checkpoint with other starting offsets, which have no effect."""
    once(kafka, topic, streams)
    kafka.produce(topic, numbered(25), partition=0)
    for stream in streams:
        stream.options["startingOffsets"] = "latest"
        stream.run()


def enlarged(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Add partitions between two runs; they are read from their beginning."""
    once(kafka, topic, streams)
    kafka.add_partitions(topic, 5)
    for partition in (3, 4):
        kafka.produce(topic, numbered(8), partition=partition)
    once(kafka, topic, streams)


def nothing_new(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Run without new records, which changes nothing."""
    once(kafka, topic, streams)
    once(kafka, topic, streams)


def other_topic(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Create another topic that matches the pattern."""
    once(kafka, topic, streams)
    kafka.create_topic(f"{topic}-more", 2)
    kafka.produce(f"{topic}-more", numbered(9), partition=1)
    once(kafka, topic, streams)


def from_latest(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Read only records that were written after the first start."""
    once(kafka, topic, streams)
    kafka.produce(topic, numbered(12), partition=1)
    once(kafka, topic, streams)


def cut_tolerated(kafka: Kafka, topic: str, streams: list[Stream]) -> None:
    """Delete records past the position between two runs, with failOnDataLoss=false."""
    once(kafka, topic, streams)
    kafka.produce(topic, numbered(20), partition=2)
    kafka.delete_records(topic, {2: 15})
    once(kafka, topic, streams)


EARLIEST = {"startingOffsets": "earliest"}

CASES: dict[str, tuple[dict[str, str], Script]] = {
    "a cap, in proportion": ({**EARLIEST, "subscribe": "TOPIC", "maxOffsetsPerTrigger": "40"}, once),
    "a cap below the partitions": ({**EARLIEST, "subscribe": "TOPIC", "maxOffsetsPerTrigger": "50"}, restarted),
    "a cap that is not needed": ({**EARLIEST, "subscribe": "TOPIC", "maxOffsetsPerTrigger": "100000"}, once),
    "Trigger.Once with a cap": ({**EARLIEST, "subscribe": "TOPIC", "maxOffsetsPerTrigger": "10"}, trigger_once),
    "starting offsets": (
        {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC":{"0":90,"1":-2,"2":-1}}', "maxOffsetsPerTrigger": "9"},
        once,
    ),
    "starting timestamp": ({"subscribe": "TOPIC", "startingTimestamp": str(T0 + 2)}, once),
    "starting timestamps": (
        {
            "subscribe": "TOPIC",
            "startingOffsetsByTimestamp": json.dumps({"TOPIC": {"0": T0 + 50, "1": T0 + 8, "2": T0}}),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        once,
    ),
    "assign": ({**EARLIEST, "assign": '{"TOPIC":[0,2]}', "maxOffsetsPerTrigger": "30"}, once),
    "pattern": ({**EARLIEST, "subscribePattern": "TOPIC.*"}, other_topic),
    "earliest, and a restart": ({**EARLIEST, "subscribe": "TOPIC"}, restarted),
    "restart without new records": ({**EARLIEST, "subscribe": "TOPIC"}, nothing_new),
    "new partitions": ({**EARLIEST, "subscribe": "TOPIC", "maxOffsetsPerTrigger": "70"}, enlarged),
    "from latest": ({"subscribe": "TOPIC"}, from_latest),
    "tasks": ({**EARLIEST, "subscribe": "TOPIC", "minPartitions": "6", "maxRecordsPerPartition": "20"}, once),
    "retention, tolerated": ({**EARLIEST, "subscribe": "TOPIC", "failOnDataLoss": "false"}, cut_tolerated),
    "min and max": (
        {**EARLIEST, "subscribe": "TOPIC", "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "60"},
        once,
    ),
}


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_same_micro_batches(
    spark: Any, kafka: Kafka, parity: Parity, topic_name: str, tmp_path: Path, name: str
) -> None:
    """Every micro-batch has the same start and end offsets and equally many rows, and all rows are the same in
    the end.
    """
    given, script = CASES[name]
    kafka.create_topic(topic_name, 3, config={"retention.ms": "-1"})
    for partition, count in enumerate((100, 20, 3)):
        stamps = [T0 + i for i in range(count)]
        kafka.produce(topic_name, numbered(count), partition=partition, timestamps=stamps)
    options = {key: value.replace("TOPIC", topic_name) for key, value in given.items()}
    options["kafka.bootstrap.servers"] = kafka.bootstrap_servers
    streams = [Stream(spark, source, options, tmp_path) for source in parity.sources]
    script(kafka, topic_name, streams)
    theirs, ours = parity.outcomes([stream.outcome() for stream in streams])
    assert theirs.rows == ours.rows
    assert theirs.batches == ours.batches


@pytest.mark.parity
def test_transactions_in_a_stream(spark: Any, kafka: Kafka, parity: Parity, topic_name: str, tmp_path: Path) -> None:
    """With read_committed both sources stop at the last stable offset and skip aborted records."""
    kafka.create_topic(topic_name, 1)
    kafka.produce_transaction(topic_name, numbered(5))
    kafka.produce_transaction(topic_name, numbered(5), commit=False)
    producer = kafka.producer({"transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"open", partition=0)
    producer.flush(30)
    kafka.produce(topic_name, numbered(3))
    options = {
        **EARLIEST,
        "subscribe": topic_name,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
    }
    streams = [Stream(spark, source, options, tmp_path) for source in parity.sources]
    once(kafka, topic_name, streams)
    producer.commit_transaction(30)
    once(kafka, topic_name, streams)
    theirs, ours = parity.outcomes([stream.outcome() for stream in streams])
    assert 9 == ours.rows[0][0]
    assert theirs.rows == ours.rows
    assert theirs.batches == ours.batches
