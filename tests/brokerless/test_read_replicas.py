"""A preferred read replica that the consumer cannot reach does not stop it from reading (KIP-392)."""

from __future__ import annotations

import time

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_an_unreachable_replica_does_not_stop_reading(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only the client cannot reach the replica, so the leader continues to prefer it: records come from the leader,
    and one warning says so.
    """
    with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.move_leader("t", 0, 1)
        cluster.produce("t", ["x"] * 5)
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            client_rack="b",
            engine=engine,
            request_timeout_ms=1000,
        ) as consumer:
            consumer.assign([("t", 0)])
            assert list(range(5)) == read(consumer, 5)
            cluster.interrupt_network(2)
            cluster.produce("t", ["y"] * 5)
            assert list(range(5, 10)) == read(consumer, 5)
    warnings = [record.getMessage() for record in caplog.records if "from the leader" in record.getMessage()]
    assert ["reading t-0 from the leader"] == [text[:27] for text in warnings]


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_the_replica_is_read_again_after_the_lease(engine: str) -> None:
    """When the lease has ended and the replica can be reached again, it is read again, also by a consumer that polls
    in the steady state.
    """
    with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.move_leader("t", 0, 1)
        cluster.produce("t", ["x"] * 5)
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            client_rack="b",
            engine=engine,
            request_timeout_ms=1000,
            metadata_max_age_ms=3000,
            fetch_max_wait_ms=100,
        ) as consumer:
            consumer.assign([("t", 0)])
            assert list(range(5)) == read(consumer, 5)
            cluster.interrupt_network(2)
            cluster.produce("t", ["y"] * 5)
            assert list(range(5, 10)) == read(consumer, 5)
            cluster.restore_network(2)
            give_up = time.monotonic() + 30
            while not is_read_from(consumer, 2) and time.monotonic() < give_up:
                consumer.poll(timeout=0.2)
            assert is_read_from(consumer, 2)


def is_read_from(consumer: Consumer, broker: int) -> bool:
    """Returns whether a fetch is in flight to this broker."""
    text = consumer.partition_states()[TP].reason.split(";")[0]
    return "a fetch is in flight to" in text and f"(id {broker})" in text


def read(consumer: Consumer, count: int) -> list[int]:
    """Returns the offsets of the next records."""
    offsets: list[int] = []
    give_up = time.monotonic() + 30
    while len(offsets) < count and time.monotonic() < give_up:
        offsets += [record.offset for record in consumer.poll(timeout=0.2)]
    return offsets
