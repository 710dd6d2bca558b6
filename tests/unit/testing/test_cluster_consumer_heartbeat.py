"""ConsumerGroupHeartbeat in the cluster model: checks, joining, epochs, reconciliation, timers, static members."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import advance
from support.fakes.consumer_members import FakeConsumerMember


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3, settings=Settings(group_consumer_max_size=3))
    cluster.create_topic("t", 3)
    return cluster


@pytest.fixture
def one(cluster: Cluster, clock: VirtualClock) -> FakeConsumerMember:
    return FakeConsumerMember(cluster, clock, "m0")


@pytest.fixture
def two(cluster: Cluster, clock: VirtualClock) -> FakeConsumerMember:
    return FakeConsumerMember(cluster, clock, "m1")


# --- checks of the request ---


def test_group_max_size(cluster: Cluster, clock: VirtualClock) -> None:
    """A further member gets GROUP_MAX_SIZE_REACHED, but those in the group may join again."""
    members = [FakeConsumerMember(cluster, clock, f"m{i}") for i in range(4)]
    errors = [member.join().error_code for member in (*members, members[0])]
    assert [0, 0, 0, Errors.GROUP_MAX_SIZE_REACHED, 0] == errors


# --- reconciliation ---


def test_the_rebalance_timeout_fences_a_member_that_does_not_revoke(
    cluster: Cluster, clock: VirtualClock, one: FakeConsumerMember, two: FakeConsumerMember
) -> None:
    """A member that has not revoked its partitions in time is removed; others get them."""
    one.fields["rebalance_timeout_ms"] = 10_000
    one.join()
    two.join()
    advance(cluster, clock, 1000)
    two.heartbeat()
    one.heartbeat()
    advance(cluster, clock, 9_999)
    assert 0 == one.heartbeat().error_code
    advance(cluster, clock, 1)
    assert Errors.UNKNOWN_MEMBER_ID == one.heartbeat().error_code
    two.heartbeat()
    assert {"t": [0, 1, 2]} == two.assigned


# --- the coordinator moves ---


def test_the_coordinator_moves(cluster: Cluster, clock: VirtualClock, one: FakeConsumerMember) -> None:
    """The next coordinator knows the members and their partitions, and starts their sessions again."""
    one.join()
    advance(cluster, clock, 44_000)
    partition = cluster.coordinator_partition("g", "group")
    broker = partition.leader % 3 + 1
    cluster.move_leader("__consumer_offsets", partition.index, broker)
    assert Errors.NOT_COORDINATOR == one.heartbeat().error_code
    advance(cluster, clock, 44_000)
    one.client = type(one.client)(cluster, clock, broker)
    assert (0, 2) == ((response := one.heartbeat()).error_code, response.member_epoch)
