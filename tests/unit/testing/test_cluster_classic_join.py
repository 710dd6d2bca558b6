"""JoinGroup in the cluster model: ids, protocols, the phases of a rebalance, and static members."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.classic_members import METADATA, FakeMember, stable
from support.fakes.cluster_client import advance

NewMember = Callable[..., FakeMember]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3, settings=Settings(group_max_size=3))


def run_timers(cluster: Cluster, clock: VirtualClock) -> None:
    """Run the timers that are due now, such as the end of an initial delay of 0 ms."""
    advance(cluster, clock, 0)


# --- rebalances ---


def test_an_id_that_was_handed_out_delays_the_rebalance(
    cluster: Cluster, clock: VirtualClock, member: NewMember
) -> None:
    """A rebalance waits for a member that has an id but has not joined with it, up to its session timeout."""
    first, second, third = member(), member(), member()
    stable(cluster, clock, first)
    third.join()
    second.enter()
    assert first.join() is None
    advance(cluster, clock, 9_999)
    assert first.joined() is None
    advance(cluster, clock, 1)
    assert 2 == first.joined().generation_id


def test_the_protocol_with_most_votes(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """Each member votes for the first of its protocols that all members support."""
    members = [member(), member(), member()]
    members[0].protocols = [("a", b"0"), ("b", b"1"), ("c", b"2")]
    members[1].protocols = [("x", b"0"), ("c", b"2"), ("b", b"1")]
    members[2].protocols = [("c", b"2"), ("b", b"1")]
    for one in members:
        one.enter()
    run_timers(cluster, clock)
    assert ["c"] * 3 == [one.joined().protocol_name for one in members]
    assert [b"2"] * 3 == [row.metadata for row in members[0].joined().members]


# --- static members ---


def test_a_static_member_with_another_protocol(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """If the protocol of the group changes by a static member that joins again, the group rebalances."""
    first, second = member(instance="1"), member(instance="2")
    for one in (first, second):
        one.protocols = [("range", METADATA), ("sticky", METADATA)]
    stable(cluster, clock, first, second)
    again = member(instance="2")
    again.protocols = [("sticky", METADATA)]
    assert again.join() is None
    assert "sticky" == first.join().protocol_name


def test_a_static_member_replaces_one_that_waits(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """The requests of a replaced static member that wait get FENCED_INSTANCE_ID."""
    first, second = member(instance="1"), member(instance="2")
    for one in (first, second):
        one.join()
    run_timers(cluster, clock)
    first.joined()
    second.joined()
    assert second.sync() is None
    again = member(instance="2")
    assert again.join() is None  # a rebalance: the leader may have assigned partitions to the old id
    assert Errors.FENCED_INSTANCE_ID == second.synced().error_code
    third = member(instance="2")
    assert third.join() is None
    assert Errors.FENCED_INSTANCE_ID == again.joined().error_code
    assert 2 == first.join().generation_id
    assert 2 == third.joined().generation_id


def test_a_static_member_is_not_removed_by_a_rebalance(
    cluster: Cluster, clock: VirtualClock, member: NewMember
) -> None:
    """A static member that does not join in time stays until its session expires."""
    first, second = member(instance="1"), member()
    first.session_ms = 300_000
    stable(cluster, clock, first)
    second.enter()
    advance(cluster, clock, 60_000)
    response = second.joined()
    assert (0, second.id) == (response.error_code, response.leader)
    assert {first.id, second.id} == {row.member_id for row in response.members}
