"""TopicTable of a topic that a broker compacts, with transactions and new partitions."""

from __future__ import annotations

from typing import Any

from kconsumer import TopicTable
from support.brokers.compaction import write_compacted
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until

READY_S = 60.0
OPTIONS: dict[str, Any] = {"isolation_level": "read_committed", "metadata_max_age_ms": 300, "key_deserializer": "str"}


def test_a_compacted_topic(kafka: Kafka, topic_name: str) -> None:
    """The table has the newest committed value of each key, follows deletions, and gets new partitions."""
    write_compacted(kafka, topic_name)
    expected: dict[str, bytes] = {f"key-{number}": b"3" for number in range(7)}
    expected |= dict.fromkeys("abc", b"in a transaction") | {"last": b"last"}
    with TopicTable(topic_name, bootstrap_servers=kafka.bootstrap_servers, **OPTIONS) as table:
        table.wait_ready(READY_S)
        assert expected == dict(table)
        kafka.add_partitions(topic_name, 2)
        kafka.produce(topic_name, [b"new"], partition=1, keys=[b"new"])
        wait_until(lambda: "new" in table, READY_S, "the new partition")
