"""JoinGroup in the cluster model: ids, protocols, the phases of a rebalance, and static members."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.classic_members import METADATA, FakeMember, stable
from support.fakes.cluster_client import advance

NewMember = Callable[..., FakeMember]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3, settings=Settings(group_max_size=3))


@pytest.fixture
def member(cluster: Cluster, clock: VirtualClock) -> NewMember:
    return lambda **options: FakeMember(cluster, clock, **options)


def run_timers(cluster: Cluster, clock: VirtualClock) -> None:
    """Run the timers that are due now, such as the end of an initial delay of 0 ms."""
    advance(cluster, clock, 0)


# --- ids and checks ---


def test_a_new_member_first_gets_an_id(member: NewMember) -> None:
    """Since version 4 a new member gets MEMBER_ID_REQUIRED and an id that begins with its client id."""
    response = member().join()
    assert (Errors.MEMBER_ID_REQUIRED, -1, None) == (
        response.error_code,
        response.generation_id,
        response.protocol_name,
    )
    assert response.member_id.startswith("test-")
    assert len("test-") + 36 == len(response.member_id)


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_joins_at_once(
    cluster: Cluster, clock: VirtualClock, member: NewMember, version: int
) -> None:
    """Before version 4 a new member joins with its first request."""
    one = member()
    one.version = version
    assert one.join() is None
    run_timers(cluster, clock)
    response = one.joined()
    assert (0, 1, "range", one.id) == (
        response.error_code,
        response.generation_id,
        response.protocol_name,
        response.leader,
    )
    assert [(one.id, METADATA)] == [(row.member_id, row.metadata) for row in response.members]


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("group", "", Errors.INVALID_GROUP_ID),
        ("session_ms", 5_999, Errors.INVALID_SESSION_TIMEOUT),
        ("session_ms", 1_800_001, Errors.INVALID_SESSION_TIMEOUT),
        ("id", "unknown", Errors.UNKNOWN_MEMBER_ID),
        ("protocols", [], Errors.INCONSISTENT_GROUP_PROTOCOL),
        ("protocol_type", "", Errors.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_rejected(member: NewMember, field: str, value: object, error: int) -> None:
    """A request that no group could accept gets its error, and the member id that it has sent."""
    one = member()
    setattr(one, field, value)
    response = one.join()
    assert (error, one.id) == (response.error_code, response.member_id)


def test_another_broker_is_not_the_coordinator(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A broker that does not lead the group's partition of the offsets topic responds NOT_COORDINATOR."""
    one = member()
    coordinator = cluster.coordinator("g", "group")
    assert coordinator is not None
    other = next(node for node in cluster.brokers if node != coordinator.id)
    partition = cluster.coordinator_partition("g", "group")
    cluster.move_leader("__consumer_offsets", partition.index, other)
    assert Errors.NOT_COORDINATOR == one.join().error_code
    assert Errors.NOT_COORDINATOR == one.sync().error_code
    assert Errors.NOT_COORDINATOR == one.heartbeat()
    assert Errors.NOT_COORDINATOR == one.leave().error_code


@pytest.mark.parametrize(
    ("field", "value"), [("protocol_type", "connect"), ("protocols", [("sticky", METADATA)]), ("protocols", [])]
)
def test_a_protocol_that_the_group_does_not_have(
    cluster: Cluster, clock: VirtualClock, member: NewMember, field: str, value: object
) -> None:
    """A member must have the protocol type of the group, and one protocol that all members support."""
    stable(cluster, clock, member())
    other = member()
    setattr(other, field, value)
    assert Errors.INCONSISTENT_GROUP_PROTOCOL == other.join().error_code


# --- rebalances ---


def test_the_first_rebalance_is_delayed() -> None:
    """An empty group waits for more members: a new one extends the delay, up to the rebalance timeout."""
    cluster, clock = Cluster(settings=Settings(group_initial_rebalance_delay_ms=3_000)), VirtualClock()
    first, second = FakeMember(cluster, clock), FakeMember(cluster, clock)
    first.rebalance_ms = second.rebalance_ms = 5_000
    assert first.enter() is None
    advance(cluster, clock, 2_900)
    assert second.enter() is None
    advance(cluster, clock, 2_000)
    assert first.joined() is None
    advance(cluster, clock, 100)  # 5000 ms since the first one joined
    assert [1, 1] == [first.joined().generation_id, second.joined().generation_id]
    assert [first.id] * 2 == [first.joined().leader, second.joined().leader]
    assert [2, 0] == [len(first.joined().members), len(second.joined().members)]


def test_without_new_members_the_delay_ends() -> None:
    """If no other member joins, the first rebalance takes the initial delay."""
    cluster, clock = Cluster(settings=Settings(group_initial_rebalance_delay_ms=3_000)), VirtualClock()
    one = FakeMember(cluster, clock)
    one.enter()
    advance(cluster, clock, 2_999)
    assert one.joined() is None
    advance(cluster, clock, 1)
    assert 1 == one.joined().generation_id


def test_a_new_member_causes_a_rebalance(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A member that joins a stable group waits until the others have joined again."""
    first, second = member(), member()
    stable(cluster, clock, first)
    assert second.enter() is None
    assert Errors.REBALANCE_IN_PROGRESS == first.heartbeat()
    assert Errors.REBALANCE_IN_PROGRESS == first.sync().error_code
    assert first.join().generation_id == 2
    assert 2 == second.joined().generation_id
    assert first.id == second.joined().leader


def test_a_member_that_does_not_join_in_time_is_removed(
    cluster: Cluster, clock: VirtualClock, member: NewMember
) -> None:
    """After the longest rebalance timeout, the group continues without the members that have not joined."""
    first, second, third = member(), member(), member()
    first.session_ms = second.session_ms = 300_000
    stable(cluster, clock, first, second)
    third.enter()
    second.join()
    advance(cluster, clock, 59_999)
    assert third.joined() is None
    advance(cluster, clock, 1)
    assert [second.id] * 2 == [second.joined().leader, third.joined().leader]
    assert {second.id, third.id} == {row.member_id for row in second.joined().members}
    assert Errors.UNKNOWN_MEMBER_ID == first.heartbeat()


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


def test_the_leader_may_force_a_rebalance(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A leader that joins a stable group again causes a rebalance; a follower gets the present generation."""
    first, second = member(), member()
    stable(cluster, clock, first, second)
    response = second.join()
    assert (0, 1, first.id, []) == (
        response.error_code,
        response.generation_id,
        response.leader,
        response.members,
    )
    assert first.join() is None
    assert 2 == second.join().generation_id


def test_changed_metadata_causes_a_rebalance(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A follower whose metadata has changed causes a rebalance."""
    first, second = member(), member()
    stable(cluster, clock, first, second)
    second.protocols = [("range", METADATA + b"\x00")]
    assert second.join() is None
    assert first.join().members[1].metadata == METADATA + b"\x00"


def test_joining_again_before_the_assignment(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """Until the leader has assigned, an unchanged member gets its response again, the leader with the members."""
    first, second = member(), member()
    for one in (first, second):
        one.enter()
    run_timers(cluster, clock)
    first.joined()
    second.joined()
    assert [2, 0] == [len(one.join().members) for one in (first, second)]
    assert [1, 1] == [first.generation, second.generation]
    second.protocols = [("range", b"other")]
    assert first.sync() is not None
    second.join()
    assert Errors.REBALANCE_IN_PROGRESS == first.heartbeat()


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


@pytest.mark.parametrize(
    ("names", "old", "new"),
    [
        (("range", "roundrobin"), "roundrobin", "range"),
        (("sticky", "cooperative-sticky"), "cooperative-sticky", "sticky"),
        (("range", "cooperative-sticky"), "cooperative-sticky", "range"),
        (("range", "sticky"), "range", "sticky"),
    ],
)
@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_equal_votes(clock: VirtualClock, names: tuple[str, str], old: str, new: str, release: str) -> None:
    """Equal votes are decided by the order of a hash map: Scala's before Kafka 4.0, Java's since."""
    cluster = Cluster(release=release)
    first, second = FakeMember(cluster, clock), FakeMember(cluster, clock)
    first.protocols = [(name, b"") for name in names]
    second.protocols = first.protocols[::-1]
    for one in (first, second):
        one.enter()
    advance(cluster, clock, 0)
    expected = old if release == "3.9" else new
    assert [expected] * 2 == [one.joined().protocol_name for one in (first, second)]


def test_a_full_group(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A group of the largest size accepts no new member, but its own members may join again."""
    members = [member(), member(), member()]
    stable(cluster, clock, *members)
    response = member().join()
    assert (Errors.GROUP_MAX_SIZE_REACHED, "") == (response.error_code, response.member_id)
    assert 0 == members[1].join().error_code


def test_new_members_time_out(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A new member that waits in JoinGroup for five minutes gets UNKNOWN_MEMBER_ID."""
    first, second = member(), member()
    first.rebalance_ms = first.session_ms = 900_000
    stable(cluster, clock, first)
    second.rebalance_ms = 900_000
    second.enter()
    advance(cluster, clock, 300_000)
    assert Errors.UNKNOWN_MEMBER_ID == second.joined().error_code


# --- static members ---


def test_a_static_member_has_no_second_request(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A static member joins with its first request; its id begins with its instance id."""
    one = member(instance="i")
    assert one.join() is None
    run_timers(cluster, clock)
    assert one.joined().member_id.startswith("i-")
    assert ["i"] == [row.group_instance_id for row in one.joined().members]


@pytest.mark.parametrize(("version", "skip", "members"), [(9, True, 2), (8, False, 0)])
def test_a_static_leader_comes_back(
    cluster: Cluster, clock: VirtualClock, member: NewMember, version: int, skip: bool, members: int
) -> None:
    """A static leader that joins again gets the present generation; since version 9 it skips the assignment.

    Before, it gets the id that its old member had as leader, so that it does not assign either.
    """
    first, second = member(instance="1"), member(instance="2")
    stable(cluster, clock, first, second)
    again = member(instance="1")
    again.version = version
    response = again.join()
    assert (0, 1, skip, members) == (
        response.error_code,
        response.generation_id,
        response.skip_assignment,
        len(response.members),
    )
    assert (again.id if skip else first.id) == response.leader
    assert first.id.encode() == again.sync().assignment
    assert Errors.FENCED_INSTANCE_ID == first.heartbeat()
    assert Errors.FENCED_INSTANCE_ID == first.join().error_code
    assert Errors.FENCED_INSTANCE_ID == first.sync().error_code
    assert 0 == second.heartbeat()


def test_a_static_follower_comes_back(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A static follower that joins again gets the present generation and its assignment, without a rebalance."""
    first, second = member(instance="1"), member(instance="2")
    stable(cluster, clock, first, second)
    again = member(instance="2")
    response = again.join()
    assert (0, 1, False, first.id, []) == (
        response.error_code,
        response.generation_id,
        response.skip_assignment,
        response.leader,
        response.members,
    )
    assert second.id.encode() == again.sync().assignment


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


def test_an_unknown_instance(cluster: Cluster, clock: VirtualClock, member: NewMember) -> None:
    """A member id with an instance id that the group does not know gets UNKNOWN_MEMBER_ID."""
    stable(cluster, clock, member())
    other = member(instance="unknown")
    other.id = "some-id"
    assert Errors.UNKNOWN_MEMBER_ID == other.join().error_code
