"""Groups of the consumer protocol (KIP-848) on FakeCluster: rebalances of whole consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.testing import FakeCluster

PARTITIONS = 6
DEADLINE_S = 20


class Values(set[bytes | None]):
    """The values of all records that the members of a group have read."""

    def poll_until(self, condition: Callable[[], bool], *members: Consumer) -> None:
        """Poll the members in turns until a condition is true."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, "the condition did not become true"
            for one in members:
                self.update(record.value for record in one.poll(0.02))


def balanced(partitions: int, *members: Consumer) -> bool:
    """Returns whether the members have equal shares of all partitions."""
    shares = [one.assignment() for one in members]
    owned = [tp for share in shares for tp in share]
    return len(owned) == len(set(owned)) == partitions and {partitions // len(members)} == set(map(len, shares))


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
