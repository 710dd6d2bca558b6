"""ConsumerGroupHeartbeat in the cluster model: checks, joining, epochs, reconciliation, timers, static members."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import advance
from support.fakes.consumer_members import FakeConsumerMember, describe, settle

FENCED = "The member must abandon all its partitions and rejoin."


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_requests(one: FakeConsumerMember, fields: dict[str, Any], message: str) -> None:
    """Fields that do not fit together get INVALID_REQUEST and a message."""
    request = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "topic_partitions": [], "member_epoch": 0}
    request |= fields
    response = one.send(request.pop("member_epoch"), **request)
    assert (Errors.INVALID_REQUEST, message) == (response.error_code, response.error_message)


def test_an_unknown_assignor(one: FakeConsumerMember) -> None:
    """An assignor that the broker lacks gets UNSUPPORTED_ASSIGNOR and the names of those it has."""
    response = one.join(server_assignor="mine")
    message = "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    assert (Errors.UNSUPPORTED_ASSIGNOR, message) == (response.error_code, response.error_message)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error", "message"),
    [
        ("m0", 5, Errors.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        ("m0", -1, Errors.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_an_unknown_group(one: FakeConsumerMember, member_id: str, epoch: int, error: int, message: str) -> None:
    """Only a member that joins creates a group."""
    response = one.send(epoch, member_id=member_id)
    assert (error, message) == (response.error_code, response.error_message)


@pytest.mark.parametrize("epoch", [3, -1])
def test_an_unknown_member(one: FakeConsumerMember, two: FakeConsumerMember, epoch: int) -> None:
    """A member that has not joined gets UNKNOWN_MEMBER_ID."""
    one.join()
    response = two.send(epoch)
    message = "Member m1 is not a member of group g."
    assert (Errors.UNKNOWN_MEMBER_ID, message) == (response.error_code, response.error_message)


def test_another_broker_is_the_coordinator(cluster: Cluster, clock: VirtualClock, one: FakeConsumerMember) -> None:
    """A broker that is not the coordinator responds NOT_COORDINATOR, but checks the fields before."""
    one.client = type(one.client)(cluster, clock, one.client.connection.broker.id % 3 + 1)
    assert Errors.NOT_COORDINATOR == one.join().error_code
    assert Errors.INVALID_REQUEST == one.send(-3).error_code


def test_group_max_size(cluster: Cluster, clock: VirtualClock) -> None:
    """A further member gets GROUP_MAX_SIZE_REACHED, but those in the group may join again."""
    members = [FakeConsumerMember(cluster, clock, f"m{i}") for i in range(4)]
    errors = [member.join().error_code for member in (*members, members[0])]
    assert [0, 0, 0, Errors.GROUP_MAX_SIZE_REACHED, 0] == errors


# --- joining ---


def test_the_first_member_gets_all_partitions(one: FakeConsumerMember) -> None:
    """The first member of a group gets epoch 2, the whole assignment, and the interval between heartbeats."""
    response = one.join()
    assert ("m0", 2, 5_000, {"t": [0, 1, 2]}) == (
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
        one.assigned,
    )


def test_in_version_0_the_broker_makes_the_member_id(cluster: Cluster, clock: VirtualClock) -> None:
    """A member that joins without an id in version 0 gets one in Kafka's form; later it has to send it."""
    member = FakeConsumerMember(cluster, clock, "", version=0)
    assert 22 == len(member.join().member_id)
    assert Errors.INVALID_REQUEST == member.send(2, member_id="").error_code


def test_topics_that_do_not_exist_are_ignored(cluster: Cluster, clock: VirtualClock) -> None:
    """A subscribed topic that does not exist is assigned when it is created."""
    member = FakeConsumerMember(cluster, clock, "m0", ["t", "later"])
    member.join()
    assert {"t": [0, 1, 2]} == member.assigned
    cluster.create_topic("later", 1)
    settle(member, rounds=1)
    assert ({"t": [0, 1, 2], "later": [0]}, 3) == (member.assigned, member.epoch)


def test_only_changes_of_the_assignment_are_sent(one: FakeConsumerMember) -> None:
    """A heartbeat gets no assignment if it has not changed, unless the request has all fields."""
    one.join()
    assert one.heartbeat().assignment is None
    full = one.heartbeat(rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=one.owned(one.assigned))
    assert full.assignment is not None


def test_a_member_that_joins_again_keeps_its_assignment(one: FakeConsumerMember) -> None:
    """Epoch 0 is valid for a member of the group: it gets its assignment and epoch again."""
    one.join()
    response = one.join()
    assert (0, 2, {"t": [0, 1, 2]}) == (response.error_code, response.member_epoch, one.assigned)


# --- epochs ---


def test_epochs(one: FakeConsumerMember, two: FakeConsumerMember) -> None:
    """A greater epoch is fenced. The previous one is fenced unless the member owns only what it has been assigned."""
    one.join()
    two.join()
    settle(one, two)
    assert 3 == one.epoch
    for epoch, size in ((4, "greater"), (1, "smaller")):
        response = one.send(epoch, topic_partitions=[])
        text = (
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator (3). {FENCED}"
        )
        assert (Errors.FENCED_MEMBER_EPOCH, text) == (response.error_code, response.error_message)
    assert Errors.FENCED_MEMBER_EPOCH == one.send(2).error_code
    assert Errors.FENCED_MEMBER_EPOCH == one.send(2, topic_partitions=one.owned({"t": [0, 1, 2]})).error_code
    assert (0, 3) == (one.send(2, topic_partitions=one.owned(one.assigned)).error_code, one.heartbeat().member_epoch)


def test_assignments_are_computed_once_in_a_second(
    cluster: Cluster, clock: VirtualClock, one: FakeConsumerMember, two: FakeConsumerMember
) -> None:
    """A member that joins within `group.consumer.assignment.interval.ms` gets its partitions later."""
    one.join()
    assert (2, {}) == (two.join().member_epoch, two.assigned)
    assert ("Assigning", 3, 2) == (
        (found := describe(one)).group_state,
        found.group_epoch,
        found.assignment_epoch,
    )
    advance(cluster, clock, 999)
    assert 2 == two.heartbeat().member_epoch
    advance(cluster, clock, 1)
    assert (3, "Reconciling") == (two.heartbeat().member_epoch, describe(one).group_state)


# --- reconciliation ---


def test_a_member_revokes_before_another_one_gets_the_partition(
    cluster: Cluster, clock: VirtualClock, one: FakeConsumerMember, two: FakeConsumerMember
) -> None:
    """The old owner keeps its epoch until it no longer names the partition; the new owner gets it after that."""
    one.join()
    two.join()
    advance(cluster, clock, 1000)
    assert (3, {}) == (two.heartbeat().member_epoch, two.assigned)
    owned = one.owned(one.assigned)
    response = one.heartbeat()
    assert (2, {"t": [0, 1]}) == (response.member_epoch, one.assigned)
    assert (2, None) == ((again := one.heartbeat(topic_partitions=owned)).member_epoch, again.assignment)
    assert two.heartbeat().assignment is None
    assert [[0, 1, 2]] == [row.partitions for row in describe(one).members[0].assignment.topic_partitions]
    assert (3, None) == ((done := one.confirm()).member_epoch, done.assignment)
    two.heartbeat()
    assert ({"t": [2]}, "Stable") == (two.assigned, describe(one).group_state)


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


def test_the_session_timeout_removes_a_member(
    cluster: Cluster, clock: VirtualClock, one: FakeConsumerMember, two: FakeConsumerMember
) -> None:
    """A member without a heartbeat for the session timeout is removed."""
    one.join()
    advance(cluster, clock, 44_999)
    assert 0 == one.heartbeat().error_code
    advance(cluster, clock, 45_000)
    assert ([], "Empty") == ((found := describe(one)).members, found.group_state)
    assert (3, 3) == (found.group_epoch, found.assignment_epoch)


def test_a_changed_subscription_takes_partitions_away(cluster: Cluster, clock: VirtualClock) -> None:
    """A member that no longer subscribes to a topic has to revoke its partitions at once."""
    cluster.create_topic("u", 1)
    member = FakeConsumerMember(cluster, clock, "m0", ["t", "u"])
    member.join()
    response = member.heartbeat(subscribed_topic_names=["u"], topic_partitions=member.owned(member.assigned))
    assert (2, {"u": [0]}) == (response.member_epoch, member.assigned)
    advance(cluster, clock, 1000)
    assert 3 == member.confirm().member_epoch


def test_partitions_are_added(cluster: Cluster, one: FakeConsumerMember) -> None:
    """New partitions of a subscribed topic begin a new group epoch; another topic does not."""
    one.join()
    cluster.create_topic("other")
    settle(one, rounds=1)
    assert 2 == one.epoch
    cluster.add_partitions(cluster.topics["t"], 2)
    settle(one, rounds=1)
    assert (3, {"t": [0, 1, 2, 3, 4]}) == (one.epoch, one.assigned)


def test_a_topic_is_deleted_and_created_again(cluster: Cluster, one: FakeConsumerMember) -> None:
    """The topic with the new id is assigned in place of the old one."""
    one.join()
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    one.assigned = {}  # the client revokes partitions of the deleted topic
    settle(one)
    assert {"t": [0]} == one.assigned


# --- leaving, static members ---


def test_leave(one: FakeConsumerMember, two: FakeConsumerMember) -> None:
    """A member that leaves releases its partitions at once."""
    one.join()
    two.join()
    settle(one, two)
    response = one.leave()
    assert (0, "m0", -1, 0) == (
        response.error_code,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
    )
    settle(two, rounds=1)
    assert {"t": [0, 1, 2]} == two.assigned


@pytest.fixture
def static(cluster: Cluster, clock: VirtualClock) -> FakeConsumerMember:
    member = FakeConsumerMember(cluster, clock, "s0", instance_id="i")
    member.join()
    return member


def test_a_static_member_returns(
    cluster: Cluster, clock: VirtualClock, static: FakeConsumerMember, two: FakeConsumerMember
) -> None:
    """A static member that left with epoch -2 gets its partitions again under a new member id, without a rebalance."""
    two.join()
    settle(static, two)
    before = static.assigned
    assert (0, -2) == ((left := static.leave(-2)).error_code, left.member_epoch)
    assert {-2, 3} == {row.member_epoch for row in describe(two).members}
    again = FakeConsumerMember(cluster, clock, "s1", instance_id="i")
    assert (3, before) == (again.join().member_epoch, again.assigned)
    assert Errors.FENCED_INSTANCE_ID == static.heartbeat().error_code
    assert (3, 3) == ((found := describe(two)).group_epoch, found.assignment_epoch)


def test_a_static_member_does_not_return(
    cluster: Cluster, clock: VirtualClock, static: FakeConsumerMember, two: FakeConsumerMember
) -> None:
    """The session of a static member that left continues; its partitions are assigned when it has expired."""
    two.join()
    static.leave(-2)
    for _ in range(9):
        advance(cluster, clock, 5_000)
        two.heartbeat()
    settle(two, rounds=1)
    assert {"t": [0, 1, 2]} == two.assigned


def test_an_instance_id_in_use(cluster: Cluster, clock: VirtualClock, static: FakeConsumerMember) -> None:
    """A second member with the instance id of a member that has not left gets UNRELEASED_INSTANCE_ID."""
    response = FakeConsumerMember(cluster, clock, "s1", instance_id="i").join()
    text = "Static member s1 with instance id i cannot join the group because the instance id is owned by s0 member."
    assert (Errors.UNRELEASED_INSTANCE_ID, text) == (response.error_code, response.error_message)
    response = static.send(2, member_id="s1", instance_id="i")
    text = "Static member s1 with instance id i was fenced by member s0."
    assert (Errors.FENCED_INSTANCE_ID, text) == (response.error_code, response.error_message)
    response = static.send(2, instance_id="j")
    assert (Errors.UNKNOWN_MEMBER_ID, "Instance id j is unknown.") == (response.error_code, response.error_message)


# --- assignors ---


def test_the_assignor_that_most_members_name(cluster: Cluster, clock: VirtualClock) -> None:
    """The group uses the assignor that most of the members with a preference name."""
    cluster.create_topic("u", 3)
    members = [
        FakeConsumerMember(cluster, clock, f"m{i}", ["t", "u"], server_assignor=name)
        for i, name in enumerate(["range", "range", None])
    ]
    for member in members:
        member.join()
    settle(*members)
    assert [{"t": [i], "u": [i]} for i in range(3)] == [member.assigned for member in members]
    assert "range" == describe(members[0]).assignor_name


def test_as_many_members_prefer_each_assignor(cluster: Cluster, clock: VirtualClock) -> None:
    """As in Kafka 4.4, each heartbeat of the member that prefers "range" then begins a new group epoch."""
    one, two = (
        FakeConsumerMember(cluster, clock, f"m{i}", server_assignor=name) for i, name in enumerate(["range", "uniform"])
    )
    one.join()
    two.join()
    settle(one, two)
    before = describe(one).group_epoch
    two.heartbeat()
    assert before == describe(one).group_epoch
    one.heartbeat()
    assert (before + 1, "uniform") == ((found := describe(one)).group_epoch, found.assignor_name)


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
