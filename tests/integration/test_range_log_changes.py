"""Ranges of logs that change: compacted, moved to another leader, truncated."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import RangeClient, TopicPartition, read_range
from kconsumer.ranges import EARLIEST, LATEST, RangeReader
from support.brokers.compaction import END, write_compacted
from support.brokers.kafka import Kafka, KafkaCluster
from support.brokers.kafka_admin import wait_until

pytestmark = pytest.mark.usefixtures("form")


def offsets(reader: RangeReader) -> list[int]:
    """Returns the offsets of all remaining rows."""
    return [offset for batch in reader for offset in batch.to_pyarrow()["offset"].to_pylist()]


def test_a_compacted_partition(kafka: Kafka, topic_name: str) -> None:
    """Every offset is a row or in a gap, whose reason is compaction or a marker."""
    write_compacted(kafka, topic_name)
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed") as client:
        tp = TopicPartition(topic_name, 0)

        def compacted() -> bool:
            reader = client.read_range(tp, EARLIEST, LATEST)
            return len(offsets(reader)) < 60

        wait_until(compacted, 60, "compaction")
        reader = client.read_range(tp, EARLIEST, LATEST, columns=["offset"], max_rows=3)
        rows = offsets(reader)
        assert END == reader.end_offset == len(rows) + sum(reader.skipped.values())
        assert reader.skipped["compaction"] > 100
        gaps = [offset for gap in reader.gaps for offset in range(gap.start, gap.end)]
        assert list(range(reader.end_offset)) == sorted([*rows, *gaps])


def test_a_leader_dies_during_a_range(kafka_cluster3: KafkaCluster, topic_name: str) -> None:
    """After the leader has died, reading continues exactly with the next leader."""
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
