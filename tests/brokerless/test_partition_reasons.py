"""`partition_states()` says what stops a partition, of a real consumer."""

from __future__ import annotations

import time

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_an_open_transaction(engine: str) -> None:
    """A transaction that stays open holds the last stable offset: the reason names both ends of the log."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", ["before"] * 3)
        with cluster.transaction() as transaction:
            transaction.produce("t", ["open"])
            cluster.produce("t", ["after"] * 4)
            with Consumer(
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                engine=engine,
            ) as consumer:
                consumer.assign([TP])
                give_up = time.monotonic() + 30
                while consumer.position(TP) < 3 and time.monotonic() < give_up:
                    consumer.poll(timeout=0.1)
                consumer.poll(timeout=0.1)
                reason = consumer.partition_states()[TP].reason
    assert "at the last stable offset 3: a transaction is open (high watermark 8)" in reason
