"""Topics that are deleted, re-created, enlarged or shortened between the runs of a stream and while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered
from support.spark.spark_again import undo_last
from support.spark.spark_live import running, wait_for_all
from support.spark.spark_parity import OURS, THEIRS, Stream, failure, has_words

Change = Callable[[Kafka, str], object]
LOST = "Some data may have been lost because they are not available in Kafka any more"


def deleted(kafka: Kafka, topic: str) -> None:
    """Delete the topic."""
    kafka.delete_topic(topic)


def shorter(kafka: Kafka, topic: str) -> None:
    """Re-create the topic with fewer records than were read."""
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    kafka.produce(topic, numbered(5, 1000), partition=0)


def longer(kafka: Kafka, topic: str) -> None:
    """Re-create the topic with more records than were read, so that offsets do not show the difference."""
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    for partition in range(2):
        kafka.produce(topic, numbered(50, 1000), partition=partition)


def fewer_partitions(kafka: Kafka, topic: str) -> None:
    """Re-create the topic with one partition, which has as many records as were read."""
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    kafka.produce(topic, numbered(40, 1000), partition=0)


def cut(kafka: Kafka, topic: str) -> None:
    """Delete records past the position of one partition."""
    kafka.produce(topic, numbered(20, 1000), partition=0)
    kafka.delete_records(topic, {0: 45})


def cut_to_the_end(kafka: Kafka, topic: str) -> None:
    """Delete all new records of one partition."""
    kafka.produce(topic, numbered(20, 1000), partition=0)
    kafka.delete_records(topic, {0: 50})


def cut_new_partition(kafka: Kafka, topic: str) -> None:
    """Add a partition and delete its first records before they are read."""
    kafka.add_partitions(topic, 3)
    kafka.produce(topic, numbered(20, 1000), partition=2)
    kafka.delete_records(topic, {2: 5})


NAMED, PATTERN = {"subscribe": "TOPIC"}, {"subscribePattern": "TOPIC.*"}

# name -> (options, change, words of the failure, words of the failure with failOnDataLoss=false or None)
CASES: dict[str, tuple[dict[str, str], Change, str | None, str | None]] = {
    "deleted": (NAMED, deleted, "UnknownTopicOrPartition", "UnknownTopicOrPartition"),
    "deleted, of a pattern": (PATTERN, deleted, LOST, None),
    "re-created, shorter": (NAMED, shorter, LOST, None),
    "re-created, longer": (NAMED, longer, None, None),
    "re-created with fewer partitions": (NAMED, fewer_partitions, LOST, None),
    "retention": (NAMED, cut, LOST, None),
    "retention of all": (NAMED, cut_to_the_end, LOST, None),
    "retention in a new partition": (NAMED, cut_new_partition, LOST, None),
}


@pytest.mark.parity
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_between_two_runs(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, name: str) -> None:
    """Both sources fail with the same words. With failOnDataLoss=false both continue, for two runs, with the
    same rows.
    """
    given, change, words, tolerated_words = CASES[name]
    kafka.create_topic(topic_name, 2)
    kafka.create_topic(f"{topic_name}-other")
    for partition, count in enumerate((30, 10)):
        kafka.produce(topic_name, numbered(count), partition=partition)
    kafka.produce(f"{topic_name}-other", numbered(3))
    options = {key: value.replace("TOPIC", topic_name) for key, value in given.items()}
    options |= {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest"}
    options |= {"fetchOffset.numRetries": "1", "kafkaConsumer.pollTimeoutMs": "20000"}
    streams = {
        (source, fails): Stream(spark, source, {**options, "failOnDataLoss": fails}, tmp_path / fails)
        for source in (THEIRS, OURS)
        for fails in ("true", "false")
    }
    for stream in streams.values():
        stream.run()
    change(kafka, topic_name)
    for (source, fails), stream in streams.items():
        expected = words if fails == "true" else tolerated_words
        if expected is not None:
            text = failure(stream.run)
            assert has_words(text, expected), f"{source}, {fails}: {' '.join(text.split())[:1500]}"
        else:
            stream.run()
    if tolerated_words is None:
        kafka.produce(f"{topic_name}-other" if change is deleted else topic_name, numbered(9, 2000), partition=0)
        for source in (THEIRS, OURS):
            streams[source, "false"].run()
    for fails in ("true", "false"):
        theirs, ours = (streams[source, fails].outcome() for source in (THEIRS, OURS))
        assert theirs.rows == ours.rows
        assert theirs.batches == ours.batches


@pytest.mark.parity
@pytest.mark.long
def test_retention_passes_a_planned_micro_batch(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """The records of a planned micro-batch are deleted before its tasks run. Both sources fail, or read the remaining
    records; ours also writes dead letters for the lost ones.
    """
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, numbered(40), partition=partition)
    given = {
        "subscribe": topic_name,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    dead = tmp_path / "dead"
    policies = {
        (THEIRS, "fail"): {"failOnDataLoss": "true"},
        (OURS, "fail"): {"failOnDataLoss": "true"},
        (THEIRS, "warn"): {"failOnDataLoss": "false"},
        (OURS, "warn"): {"failOnDataLoss": "false"},
        (OURS, "deadletter"): {"onDataLoss": "deadletter", "deadLetterPath": str(dead)},
    }
    streams = {key: Stream(spark, key[0], {**given, **more}, tmp_path / key[1]) for key, more in policies.items()}
    for stream in streams.values():
        stream.run()
        undo_last(stream)  # offsets 20 to 39 of partitions 0 and 1
    kafka.delete_records(topic_name, {0: 33, 1: 40})
    for key, stream in streams.items():
        if key[1] == "fail":
            assert has_words(failure(stream.run), LOST), key
        else:
            stream.run()
    assert [] == [key for key, stream in streams.items() if lost_rows(stream) != ([] if key[1] == "fail" else LEFT)]
    letters = [json.loads(line) for file in dead.rglob("*.jsonl") for line in file.read_text().splitlines()]
    found = sorted((letter["kind"], letter["partition"], letter["start"], letter["end"]) for letter in letters)
    assert [("lost", 0, 20, 33), ("lost", 1, 20, 40)] == found


LEFT = [(0, offset) for offset in range(33, 40)]


def lost_rows(stream: Stream) -> list[tuple[int, int]]:
    """Returns partition and offset of the rows of the former second micro-batch."""
    return [(row[0][1], row[1][1]) for row in stream.outcome().rows if row[1][1] >= 20]


def test_changes_under_a_running_stream(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A topic that was enlarged, shortened or re-created is read by processes that have metadata of the old one."""
    kafka.create_topic(topic_name, 1)
    options = {
        "subscribe": topic_name,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "fetchOffset.numRetries": "20",  # the topic is missing for a moment
        "fetchOffset.retryIntervalMs": "100",
    }
    stream = Stream(spark, OURS, options, tmp_path)
    with running(stream) as query:
        kafka.produce(topic_name, numbered(30), partition=0)
        wait_for_all(query, kafka, topic_name)
        kafka.add_partitions(topic_name, 3)
        kafka.produce(topic_name, numbered(20, 100), partition=2)
        wait_for_all(query, kafka, topic_name)
        kafka.produce(topic_name, numbered(20, 200), partition=2)
        kafka.delete_records(topic_name, {0: 30, 2: 35})
        wait_for_all(query, kafka, topic_name)
        kafka.delete_topic(topic_name)
        kafka.create_topic(topic_name, 2)
        kafka.produce(topic_name, numbered(5, 300), partition=0)
        wait_for_all(query, kafka, topic_name)
        kafka.produce(topic_name, numbered(10, 400), partition=0)
        wait_for_all(query, kafka, topic_name)
    values = [int(row[3][1]) for row in stream.outcome().rows]
    assert len(values) == len(set(values))
    certain = {*range(30), *range(100, 120), *range(215, 220), *range(400, 410)}
    assert certain <= set(values) <= certain | set(range(200, 215)) | set(range(300, 305))
