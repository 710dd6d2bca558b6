"""Whole consumers of all engines and protocols read from FakeCluster over loopback sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer._core.lock import Clock
from kconsumer.errors import GroupAuthorizationError, TopicAuthorizationError
from kconsumer.testing import FakeCluster
from support.harnesses.inside import parts_of

TP = TopicPartition("t", 0)
DEADLINE_S = 20


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3, group_consumer_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        yield cluster


def consumer(cluster: FakeCluster, *topics: str, **options: Any) -> Consumer:
    """Returns a consumer that begins with the first record."""
    chosen = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, **options}
    if chosen.get("group_protocol") != "consumer":
        chosen.setdefault("heartbeat_interval_ms", 100)
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **chosen)


def read(reader: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until a number of records have arrived."""
    records: list[ConsumerRecord] = []
    until(lambda: records.extend(reader.poll(0.1)) or len(records) >= count)
    return records


def until(condition: Callable[[], bool]) -> None:
    """Repeat a call until it returns true."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"


def test_acls(cluster: FakeCluster) -> None:
    """A consumer raises the error of what it may not do, and works when it is allowed."""
    cluster.produce("t", "a", partition=0)
    cluster.allow("User:ANONYMOUS", "READ", "topic", "t")
    with consumer(cluster, "t", group_id="g") as reader:
        with pytest.raises(GroupAuthorizationError):
            read(reader, 1)
        cluster.allow("User:ANONYMOUS", "READ", "group", "g", prefixed=True)
        assert [b"a"] == [record.value for record in read(reader, 1)]
        cluster.deny("User:*", "READ", "topic")
        with pytest.raises(TopicAuthorizationError):
            read(reader, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alice", "READ", "topic"), "of the form 'User:alice'"),
        (("User:alice", "READ", "table"), "no resource 'table'; there are topic, group"),
        (("User:alice", "WRITE", "group"), "a group has no operation 'WRITE'; it has ALL"),
    ],
)
def test_wrong_acls(cluster: FakeCluster, arguments: tuple[str, str, str], message: str) -> None:
    """A wrong ACL raises ValueError."""
    with pytest.raises(ValueError, match=message):
        cluster.allow(*arguments)


def test_quotas(cluster: FakeCluster) -> None:
    """A consumer gets what its quota allows in ten seconds, and then no more records for some seconds."""
    for _ in range(20):
        cluster.produce("t", bytes(1000), partition=0)
    cluster.set_quota("slow", consumer_byte_rate=1100)
    with pytest.raises(ValueError, match="producer_byte_rate is a number above 0"):
        cluster.set_quota("slow", producer_byte_rate=0)
    with consumer(cluster, client_id="slow") as slow, consumer(cluster, client_id="other") as other:
        for reader in (slow, other):
            reader.assign([TP])
        assert 10 == len(read(slow, 10))
        assert not slow.poll(0.5)
        assert 20 == len(read(other, 20))


@pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
def test_a_coordinator_that_dies_before_the_first_metadata(options: dict[str, Any]) -> None:
    """A member that knows nothing but the address of a dead coordinator finds the others by the bootstrap servers."""
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.produce("orders", [b"one"])
        cluster.disconnect_next("Metadata", times=4)
        with Consumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **options
        ) as consumer:
            components = parts_of(consumer)
            assert components.group is not None
            while (coordinator := components.group.coordinator.coordinator) is None:
                assert not consumer.poll(0.05)
            assert not components.cluster.nodes
            cluster.kill(coordinator.id)
            assert [b"one"] == [record.value for record in consumer.poll(20)]


def test_the_system_clock_is_adjusted(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers have the wall clock of the system, also after it was set to another time."""
    cluster.create_topic("u", message_timestamp_type="LogAppendTime")
    adjusted = Clock().wall_ms() + 3_600_000
    monkeypatch.setattr("kconsumer._core.lock.time", lambda: adjusted / 1000)
    cluster.produce("u", [b"a"])
    with consumer(cluster) as reader:
        reader.assign([("u", 0)])
        assert [adjusted] == [record.timestamp for record in reader.poll(DEADLINE_S)]
