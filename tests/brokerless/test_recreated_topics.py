"""A topic that is deleted and created again under a subscription is read again, with brokers of each generation."""

from __future__ import annotations

import time

import pytest

from kconsumer import Consumer
from kconsumer.testing import FakeCluster


@pytest.mark.parametrize("version", ["2.1", "2.7", "2.8", "4.4"])
def test_a_recreated_topic_with_older_leader_epochs_is_read(version: str) -> None:
    """The old topic had a leader epoch of 4, and the new one begins with 0. Metadata of Kafka 2.4 to 2.7 has reliable
    leader epochs and no topic ids, so that only the time without the topic shows that it is a new one.
    """
    with FakeCluster(brokers=2, version=version) as cluster:
        cluster.create_topic("t", replication_factor=2)
        for broker in (1, 2, 1, 2, 1):
            cluster.move_leader("t", 0, broker)
        cluster.produce("t", ["old"] * 5)
        with Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        ) as consumer:
            assert [b"old"] * 5 == read(consumer, 5)
            cluster.delete_topic("t")
            gone = time.monotonic() + 4
            while consumer.partitions_for("t") and time.monotonic() < gone:
                consumer.poll(timeout=0.1)
            for _ in range(20):
                consumer.poll(timeout=0.1)
            cluster.create_topic("t", replication_factor=2)
            cluster.produce("t", ["new"] * 7)
            assert [b"new"] * 7 == read(consumer, 7)


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Returns the values of the next records."""
    values: list[bytes] = []
    give_up = time.monotonic() + 30
    while len(values) < count and time.monotonic() < give_up:
        values += [record.value for record in consumer.poll(timeout=0.2)]
    return values
