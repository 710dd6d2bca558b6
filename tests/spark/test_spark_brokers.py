"""Brokers that die, restart, and restart with damaged logs while a stream and a batch read from them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered
from support.spark.spark_live import running, wait_for_all, wait_for_count
from support.spark.spark_parity import OURS, THEIRS, Options, Stream, failure, has_words

pytestmark = pytest.mark.long
DAMAGED = "damaged"
BAD = range(10, 15)  # offsets of the batch in which one byte is changed


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A cluster of three nodes that the tests may kill; each test starts them again."""
    with KafkaCluster(nodes=3) as cluster:
        yield cluster


def options(cluster: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    """Returns the options of queries."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return {**given, **more}


def test_leaders_die(spark: Any, cluster: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    """A stream whose partition leaders are killed one after the other continues with the next leaders and returns every
    record once.
    """
    cluster.create_topic(topic_name, 3, replication=3)
    written = 0
    stream = Stream(spark, OURS, options(cluster, topic_name), tmp_path)
    with running(stream) as query:
        for number in range(3):
            cluster.produce(topic_name, numbered(300, written), config={"acks": "all", "partitioner": "random"})
            written += 300
            if number:
                wait_for_count(query, topic_name, written)
            leader = cluster.node(cluster.leader_of(topic_name, number))
            leader.kill()
            try:
                wait_until(
                    lambda gone=leader.node_id, at=number: cluster.leader_of(topic_name, at) not in (gone, -1),
                    60,
                    "another leader",
                )
                cluster.produce(topic_name, numbered(300, written), config={"acks": "all", "partitioner": "random"})
                written += 300
                wait_for_count(query, topic_name, written)
            finally:
                leader.start()
    values = Counter(int(row[3][1]) for row in stream.outcome().rows)
    assert set(range(written)) == set(values)
    assert {1} == set(values.values())


def test_the_only_replica_restarts(spark: Any, cluster: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    """While the only replica of a partition is down, a stream and a batch wait; then they read all its records,
    once.
    """
    cluster.create(NewTopic(topic_name, 2, replica_assignment=[[2], [3]]))
    for partition in range(2):
        cluster.produce(topic_name, numbered(200), partition=partition)
    stream = Stream(spark, OURS, options(cluster, topic_name), tmp_path)
    counts: list[int] = []

    def count() -> None:
        frame = spark.read.format(OURS).options(**options(cluster, topic_name)).load()
        counts.append(frame.count())

    with running(stream) as query:
        wait_for_all(query, cluster, topic_name)
        node = cluster.node(2)
        node.stop()
        waiting = threading.Thread(target=count)
        waiting.start()
        cluster.produce(topic_name, numbered(100, 200), partition=1)
        node.start()
        cluster.wait_for_partitions(topic_name, 2)
        cluster.produce(topic_name, numbered(100, 200), partition=0)
        wait_for_all(query, cluster, topic_name)
        waiting.join(90)
    assert 1 == len(counts)
    assert counts[0] in (500, 600), "the batch ends where partitions ended when it bound them"
    found = Counter((row[0][1], int(row[3][1])) for row in stream.outcome().rows)
    assert {(partition, number): 1 for partition in range(2) for number in range(300)} == found


@pytest.fixture(scope="module")
def damaged(cluster: KafkaCluster) -> KafkaCluster:
    """A topic of 30 records in batches of five, of which the third is damaged."""
    cluster.create(NewTopic(DAMAGED, 1, replica_assignment=[[2]]))
    for start in range(0, 30, 5):
        cluster.produce(DAMAGED, [b"value-%02d" % number for number in range(start, start + 5)])
    node = cluster.node(2)
    node.stop()
    (segment,) = (node.folder / "data" / f"{DAMAGED}-0").glob("*.log")
    data = segment.read_bytes()
    assert 1 == data.count(b"value-12")
    segment.write_bytes(data.replace(b"value-12", b"value-xx"))
    node.start()
    cluster.wait_for_partitions(DAMAGED, 1)
    return cluster


def offsets_of(spark: Any, given: Options) -> list[int]:
    """Returns the offsets that a batch query reads."""
    return sorted(row.offset for row in spark.read.format(OURS).options(**given).load().select("offset").collect())


def letters(folder: Path) -> list[tuple[str, int, int]]:
    """Returns kind, start offset and end offset of the dead letters in a folder."""
    lines = [json.loads(line) for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return [(line["kind"], line["start"], line["end"]) for line in lines]


@pytest.mark.parity
def test_corrupt_batches_under_each_policy(spark: Any, damaged: KafkaCluster, tmp_path: Path) -> None:
    """Corrupt batches fail a batch and a stream, as in Spark's own source, or are skipped, or are skipped and reported;
    the rows of the last two are the same.
    """
    good = [offset for offset in range(30) if offset not in BAD]
    for source in (THEIRS, OURS):
        text = failure(
            lambda source=source: spark.read.format(source).options(**options(damaged, DAMAGED)).load().collect()
        )
        assert has_words(text, "corrupt|crc"), f"{source}: {text[:1500]}"
    assert "CorruptRecordError" in failure(Stream(spark, OURS, options(damaged, DAMAGED), tmp_path / "fails").run)
    assert good == offsets_of(spark, options(damaged, DAMAGED, onCorrupt="skip"))
    kept = options(damaged, DAMAGED, onCorrupt="deadletter", deadLetterPath=str(tmp_path / "dead-batch"))
    assert good == offsets_of(spark, kept)
    assert [("corrupt", BAD.start, BAD.stop)] == letters(tmp_path / "dead-batch")
    for policy in ("skip", "deadletter"):
        dead = tmp_path / f"dead-{policy}"
        given = options(damaged, DAMAGED, onCorrupt=policy, deadLetterPath=str(dead), maxOffsetsPerTrigger="12")
        rows = Stream(spark, OURS, given, tmp_path / policy).run().outcome().rows
        assert good == [row[1][1] for row in rows]
    assert [] == letters(tmp_path / "dead-skip")
    # A micro-batch ends within the damaged batch, so two dead letters share its offsets.
    assert [("corrupt", 10, 12), ("corrupt", 12, 15)] == sorted(letters(tmp_path / "dead-deadletter"))
