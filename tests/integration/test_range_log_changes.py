"""Ranges of logs that change: compacted, led by another broker, cut short."""

from __future__ import annotations

import time
from typing import Any

from kconsumer import RangeClient, TopicPartition, read_range
from kconsumer.ranges import EARLIEST, LATEST, RangeReader
from support.kafka import Kafka, KafkaCluster
from support.kafka_admin import wait_until


def offsets(reader: RangeReader) -> list[int]:
    """The offsets of all rows that are left."""
    return [offset for batch in reader for offset in batch.to_pyarrow()["offset"].to_pylist()]


def test_a_compacted_partition(kafka: Kafka, topic_name: str) -> None:
    """Every offset is a row, or in a gap: compacted away, or a marker that is still there."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    kafka.create_topic(topic_name, config=config)
    transactions = kafka.producer({"transactional.id": topic_name})
    transactions.init_transactions(30)
    for turn in range(4):
        keys = [b"key-%d" % (number % 7) for number in range(50)]
        kafka.produce(topic_name, [b"%d" % turn] * 50, keys=keys)
        transactions.begin_transaction()
        for key in (b"a", b"b", b"c"):
            transactions.produce(topic_name, b"in a transaction", key)
        transactions.flush(30)
        if turn % 2:
            transactions.abort_transaction(30)
        else:
            transactions.commit_transaction(30)
        time.sleep(0.15)  # a segment ends by the time of its records
    kafka.produce(topic_name, [b"last"], keys=[b"last"])
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed") as client:
        tp = TopicPartition(topic_name, 0)

        def compacted() -> bool:
            reader = client.read_range(tp, EARLIEST, LATEST)
            return len(offsets(reader)) < 60

        wait_until(compacted, 60, "compaction")
        reader = client.read_range(tp, EARLIEST, LATEST, columns=["offset"], max_rows=3)
        rows = offsets(reader)
        assert 4 * 50 + 4 * 4 + 1 == reader.end_offset == len(rows) + sum(reader.skipped.values())
        assert reader.skipped["compaction"] > 100
        gaps = [offset for gap in reader.gaps for offset in range(gap.start, gap.end)]
        assert list(range(reader.end_offset)) == sorted([*rows, *gaps])


def test_a_leader_dies_during_a_range(kafka_cluster3: KafkaCluster, topic_name: str) -> None:
    """Reading goes on with the next leader, exact as before."""
    kafka_cluster3.create_topic(topic_name, replication=3)
    kafka_cluster3.produce(topic_name, [b"x" * 1000] * 600, config={"batch.num.messages": 10})
    options: dict[str, Any] = {"max_partition_fetch_bytes": 20_000, "max_rows": 20}
    servers = kafka_cluster3.bootstrap_servers
    reader = read_range((topic_name, 0), 5, 595, bootstrap_servers=servers, **options)
    with reader:
        first = next(reader).to_pyarrow()["offset"].to_pylist()
        leader = kafka_cluster3.node(kafka_cluster3.leader_of(topic_name))
        leader.kill()
        try:
            assert list(range(5, 595)) == first + offsets(reader)
        finally:
            leader.start()
    assert ((), 595) == (reader.gaps, reader.next_offset)
