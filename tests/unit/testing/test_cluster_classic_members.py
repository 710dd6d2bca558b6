"""SyncGroup, Heartbeat, LeaveGroup and sessions in the cluster model, and moves of the coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.classic_members import FakeMember, stable
from support.fakes.cluster_client import advance

NewMember = Callable[..., FakeMember]


def joined(cluster: Cluster, clock: VirtualClock, *members: FakeMember) -> None:
    """Let members join a new group, up to the responses to JoinGroup."""
    for one in members:
        one.enter()
    advance(cluster, clock, 0)
    for one in members:
        assert 0 == one.joined().error_code


# --- SyncGroup ---


def test_a_rebalance_rejects_members_that_wait(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A member that waits for the assignment gets REBALANCE_IN_PROGRESS when a new member joins."""
    first, second, third = member(), member(), member()
    joined(cluster, clock, first, second)
    assert second.sync() is None
    third.enter()
    assert Errors.REBALANCE_IN_PROGRESS == second.synced().error_code
    assert Errors.REBALANCE_IN_PROGRESS == first.sync({}).error_code


def test_members_that_do_not_sync_are_removed(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """Members that have not sent SyncGroup within the rebalance timeout are removed, also from a stable group."""
    first, second = member(), member()
    for one in (first, second):
        one.session_ms = 300_000
    joined(cluster, clock, first, second)
    first.sync({})
    advance(cluster, clock, 59_999)
    assert 0 == first.heartbeat()
    advance(cluster, clock, 1)
    assert Errors.REBALANCE_IN_PROGRESS == first.heartbeat()
    assert Errors.UNKNOWN_MEMBER_ID == second.heartbeat()
    assert [first.id] == [row.member_id for row in first.join().members]


# --- LeaveGroup ---


def test_leaving_with_an_id_only(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """An id that was handed out can leave before it has joined."""
    one = member()
    one.id = one.join().member_id
    assert [0] == [row.error_code for row in one.leave().members]
    assert Errors.UNKNOWN_MEMBER_ID == one.join().error_code


# --- moves of the coordinator ---


def move(cluster: Cluster) -> int:
    """Move the coordinator of group g. Returns the id of the new one."""
    partition = cluster.coordinator_partition("g", "group")
    other = next(node for node in partition.replicas if node != partition.leader)
    cluster.move_leader(partition.topic.name, partition.index, other)
    return other


def follow(cluster: Cluster, clock: VirtualClock, one: FakeMember) -> FakeMember:
    """Returns the same member with a connection to the present coordinator."""
    again = FakeMember(cluster, clock, instance=one.instance)
    again.id, again.generation, again.protocols = one.id, one.generation, one.protocols
    return again


def test_waiting_requests_when_the_coordinator_moves(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """JoinGroup and SyncGroup that wait get NOT_COORDINATOR when the coordinator moves."""
    first, second = member(), member()
    joined(cluster, clock, first, second)
    assert second.sync() is None
    move(cluster)
    advance(cluster, clock, 0)
    assert Errors.NOT_COORDINATOR == second.synced().error_code
    cluster.settings.group_initial_rebalance_delay_ms = 3_000
    third = follow(cluster, clock, second)
    assert third.enter() is None
    move(cluster)
    advance(cluster, clock, 0)
    assert Errors.NOT_COORDINATOR == third.joined().error_code


def test_a_stable_group_survives_a_move(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """The new coordinator knows generation, members and assignments; the sessions begin again."""
    first, second = member(), member(instance="i")
    stable(cluster, clock, first, second)
    advance(cluster, clock, 9_000)
    move(cluster)
    advance(cluster, clock, 9_000)
    first, second = follow(cluster, clock, first), follow(cluster, clock, second)
    assert [0, 0] == [first.heartbeat(), second.heartbeat()]
    assert second.id.encode() == second.sync().assignment
    advance(cluster, clock, 10_000)
    assert Errors.UNKNOWN_MEMBER_ID == first.heartbeat()


def test_a_rebalance_is_lost_in_a_move(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """The new coordinator continues with the last generation that had an assignment."""
    first, second = member(), member()
    stable(cluster, clock, first)
    second.enter()
    assert first.join().generation_id == 2
    second.joined()
    assert second.sync() is None
    move(cluster)
    first, second = follow(cluster, clock, first), follow(cluster, clock, second)
    assert Errors.ILLEGAL_GENERATION == first.heartbeat()
    assert 0 == first.heartbeat(generation_id=1)
    assert Errors.UNKNOWN_MEMBER_ID == second.heartbeat()


@pytest.mark.parametrize(("release", "exists"), [("3.9", False), ("4.4", True)])
def test_a_new_group_after_a_move(clock: VirtualClock, release: str, exists: bool) -> None:
    """A group without a generation survives a move since Kafka 4.0; its members are unknown then."""
    cluster = Cluster(3, release=release)
    one = FakeMember(cluster, clock)
    one.id = one.join().member_id
    move(cluster)
    advance(cluster, clock, 0)
    assert exists == (cluster.groups.get("g") is not None)
    assert Errors.UNKNOWN_MEMBER_ID == follow(cluster, clock, one).join().error_code


def test_loading(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """While the new coordinator loads a group, only its heartbeats succeed; its sessions begin afterwards."""
    first = member()
    stable(cluster, clock, first)
    cluster.groups.load_ms = 500
    move(cluster)
    first = follow(cluster, clock, first)
    assert [0, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_LOAD_IN_PROGRESS] == [
        first.heartbeat(),
        first.join().error_code,
        first.sync().error_code,
    ]
    advance(cluster, clock, 500)
    assert first.id.encode() == first.sync().assignment
    advance(cluster, clock, 9_999)
    assert 0 == first.heartbeat()


def test_a_coordinator_that_stops_and_starts(clock: VirtualClock) -> None:
    """A group whose only coordinator stops survives; while it is stopped, no session expires."""
    cluster = Cluster()
    first = FakeMember(cluster, clock)
    stable(cluster, clock, first)
    cluster.kill(1)
    advance(cluster, clock, 60_000)
    cluster.start(1)
    first = follow(cluster, clock, first)
    assert 0 == first.heartbeat()


def test_an_oversized_group_after_a_move(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A coordinator that loads more members than it allows begins a rebalance; the last ones get no place."""
    first, second = member(), member()
    stable(cluster, clock, first, second)
    cluster.settings.group_max_size = 1
    move(cluster)
    first, second = follow(cluster, clock, first), follow(cluster, clock, second)
    assert Errors.REBALANCE_IN_PROGRESS == first.heartbeat()
    assert second.join() is None
    assert Errors.GROUP_MAX_SIZE_REACHED == first.join().error_code
