"""The online migration of groups between the classic and the consumer protocol in the cluster model."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.coordinator.classic_protocol.embedded import decode_assignment
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.classic_members import FakeMember
from support.fakes.cluster_client import advance
from support.fakes.consumer_members import FakeConsumerMember, settle

#: An assignment of the partitions 0, 1 and 2 of topic t, in version 0.
ASSIGNMENT = bytes.fromhex("0000 00000001 0001 74 00000003 00000000 00000001 00000002 ffffffff")


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def make_cluster(**settings: Any) -> Cluster:
    cluster = Cluster(settings=Settings(**settings))
    cluster.create_topic("t", 3)
    return cluster


@pytest.fixture
def classic(cluster: Cluster, clock: VirtualClock) -> FakeMember:
    return classic_member(cluster, clock)


def classic_member(cluster: Cluster, clock: VirtualClock) -> FakeMember:
    """Returns the only member of a stable classic group, with all partitions."""
    member = FakeMember(cluster, clock)
    member.enter()
    advance(cluster, clock, 0)
    member.joined()
    member.sync({member.id: ASSIGNMENT})
    return member


def assignment(response: Any) -> list[int]:
    """Returns the partitions of topic t in a SyncGroup response."""
    return [
        partition
        for row in decode_assignment(response.assignment).assigned_partitions
        for partition in sorted(row.partitions)
    ]


def test_a_new_classic_member_joins_a_consumer_group(cluster: Cluster, clock: VirtualClock) -> None:
    """Its JoinGroup does not wait; it gets partitions when the others have released them."""
    new = FakeConsumerMember(cluster, clock, "n")
    new.join()
    advance(cluster, clock, 1000)
    classic = FakeMember(cluster, clock)
    assert (0, 3) == ((response := classic.enter()).error_code, response.generation_id)
    assert [] == assignment(classic.sync())
    assert Errors.NONE == classic.heartbeat()
    settle(new)
    assert Errors.REBALANCE_IN_PROGRESS == classic.heartbeat()
    classic.join()
    assert [2] == assignment(classic.sync())


def test_a_classic_member_that_does_not_join_again(cluster: Cluster, clock: VirtualClock, classic: FakeMember) -> None:
    """A classic member is removed if it has not joined within its rebalance timeout."""
    new = FakeConsumerMember(cluster, clock, "n")
    new.join()
    classic.heartbeat()
    for _ in range(11):
        advance(cluster, clock, 5_900)
        classic.heartbeat()
        new.heartbeat()
    assert Errors.UNKNOWN_MEMBER_ID == classic.heartbeat()
    settle(new, rounds=1)
    assert {"t": [0, 1, 2]} == new.assigned


def test_generations(cluster: Cluster, clock: VirtualClock, classic: FakeMember) -> None:
    """The generation of a classic member is its member epoch; another one gets ILLEGAL_GENERATION."""
    FakeConsumerMember(cluster, clock, "n").join()
    classic.generation = 7
    assert [Errors.ILLEGAL_GENERATION] * 2 == [classic.heartbeat(), classic.sync().error_code]
