"""Groups of the consumer protocol (KIP-848) on FakeCluster: rebalances of whole consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer, SubscriptionPattern
from kconsumer.testing import FakeCluster
from support.harnesses.group_polling import Values, balanced, come_and_go

PARTITIONS = 6


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(
        brokers=3, group_consumer_heartbeat_interval_ms=50, group_consumer_assignment_interval_ms=0
    ) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        yield cluster


def member(cluster: FakeCluster, *topics: str, **options: Any) -> Consumer:
    """Returns a member of the group."""
    return Consumer(
        *topics,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
        **{"group_protocol": "consumer", **options},
    )


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(cluster: FakeCluster, assignor: str) -> None:
    """Members that join and leave share all partitions, and read all records once."""
    first, second, third = (member(cluster, "t", group_remote_assignor=assignor) for _ in range(3))
    come_and_go(cluster, PARTITIONS, first, second, third)


def test_the_coordinator_dies(cluster: FakeCluster) -> None:
    """A stable group goes through the death of each broker without a rebalance."""
    values = Values()
    with member(cluster, "t") as first, member(cluster, "t") as second:
        values.poll_until(lambda: balanced(PARTITIONS, first, second), first, second)
        before = first.group_metadata(), second.group_metadata()
        for broker in (1, 2, 3):
            cluster.kill(broker)
            produced = {f"{broker}-{i}".encode() for i in range(60)}
            cluster.produce("t", produced)
            values.poll_until(lambda produced=produced: values >= produced, first, second)
            cluster.start(broker)
        assert balanced(PARTITIONS, first, second)
        assert before == (first.group_metadata(), second.group_metadata())


def test_a_static_member_comes_back(cluster: FakeCluster) -> None:
    """A static member that stops and starts gets its partitions again; the other one keeps its own."""
    values = Values()
    with member(cluster, "t", group_instance_id="1") as first:
        second = member(cluster, "t", group_instance_id="2")
        values.poll_until(lambda: balanced(PARTITIONS, first, second), first, second)
        shares = first.assignment(), second.assignment()
        epoch = first.group_metadata().generation_id
        second.close()
        with member(cluster, "t", group_instance_id="2") as again:
            values.poll_until(lambda: balanced(PARTITIONS, first, again), first, again)
            assert shares == (first.assignment(), again.assignment())
            assert epoch == again.group_metadata().generation_id


def test_a_pattern_that_the_broker_evaluates(cluster: FakeCluster) -> None:
    """A member gets the partitions of all topics that match its pattern."""
    cluster.create_topic("t2", partitions=2)
    cluster.create_topic("u")
    values = Values()
    with member(cluster) as one:
        one.subscribe(SubscriptionPattern("t[0-9]?"))
        values.poll_until(lambda: len(one.assignment()) == PARTITIONS + 2, one)
        cluster.produce("t2", [b"x"])
        values.poll_until(lambda: b"x" in values, one)


def test_a_topic_is_created_again(cluster: FakeCluster) -> None:
    """A subscribed topic is deleted and created again: its members get the new partitions."""
    values = Values()
    with member(cluster, "t", metadata_max_age_ms=200) as one:
        values.poll_until(lambda: balanced(PARTITIONS, one), one)
        cluster.delete_topic("t")
        values.poll_until(lambda: not one.assignment(), one)
        cluster.create_topic("t", partitions=2)
        values.poll_until(lambda: balanced(2, one), one)
        cluster.produce("t", [b"y"])
        values.poll_until(lambda: b"y" in values, one)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_change_the_protocol_one_by_one(cluster: FakeCluster, strategy: str) -> None:
    """A classic group is upgraded and downgraded while its members read: nothing is lost or read twice."""
    classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy, "heartbeat_interval_ms": 50}
    values, expected = Values(), set()
    members = [member(cluster, "t", **classic) for _ in range(2)]
    for number, options in enumerate(({}, {}, classic, classic)):
        values.poll_until(lambda: balanced(PARTITIONS, *members), *members)
        produced = {f"{number}-{i}".encode() for i in range(30)}
        cluster.produce("t", produced)
        expected |= produced
        values.poll_until(lambda produced=produced: values >= produced, *members)
        members.pop(0).close()
        members.append(member(cluster, "t", **options))
    values.poll_until(lambda: balanced(PARTITIONS, *members), *members)
    for one in members:
        one.close()
    assert expected == values
    assert 120 == sum(offset.offset for offset in cluster.committed("g").values())
    assert "classic" == cluster.group("g").type
