"""Groups of the classic protocol on FakeCluster: rebalances of whole consumers, with each assignor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.testing import FakeCluster
from support.harnesses.group_polling import Values, balanced, come_and_go

PARTITIONS = 6
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        yield cluster


def member(cluster: FakeCluster, strategy: str, **options: Any) -> Consumer:
    """Returns a member of the group."""
    return Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        group_protocol="classic",
        partition_assignment_strategy=strategy,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        retry_backoff_ms=20,
        **options,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go(cluster: FakeCluster, strategy: str) -> None:
    """Members that join and leave share all partitions, and read all records."""
    first, second, third = (member(cluster, strategy) for _ in range(3))
    come_and_go(cluster, PARTITIONS, first, second, third)
    description = cluster.group("g")
    assert ("Empty", 0) == (description.state, len(description.members))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_the_coordinator_dies(cluster: FakeCluster, strategy: str) -> None:
    """A stable group goes through the death of each broker without a rebalance."""
    values = Values()
    with member(cluster, strategy) as first, member(cluster, strategy) as second:
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


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_static_member_comes_back(cluster: FakeCluster, strategy: str) -> None:
    """A static member that stops and starts gets its partitions again; the other one keeps its own."""
    values = Values()
    with member(cluster, strategy, group_instance_id="1") as first:
        second = member(cluster, strategy, group_instance_id="2")
        values.poll_until(lambda: balanced(PARTITIONS, first, second), first, second)
        shares = first.assignment(), second.assignment()
        second.close()
        with member(cluster, strategy, group_instance_id="2") as again:
            values.poll_until(lambda: balanced(PARTITIONS, first, again), first, again)
            assert shares == (first.assignment(), again.assignment())
