"""The classic membership manager: requests, callbacks and state after each response, without network or clock."""

from __future__ import annotations

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.coordinator.classic_protocol.embedded import (
    decode_subscription,
    encode_assignment,
)
from kconsumer.coordinator.classic_protocol.state import MemberState
from kconsumer.coordinator.group_member import Generation
from kconsumer.coordinator.rebalance_steps import CallbackKind
from kconsumer.errors import BrokerConnectionError
from kconsumer.schema.admin import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kconsumer.schema.classic_group import JoinGroupResponse
from kconsumer.schema.embedded import ConsumerProtocolAssignment, TopicPartitions
from support.harnesses.group_harness import FirstTakesAll, FirstTakesAllCooperative, GroupHarness, committed, tps

ASSIGNED, REVOKED, LOST = CallbackKind.ASSIGNED, CallbackKind.REVOKED, CallbackKind.LOST


def test_first_join_sends_what_java_sends() -> None:
    """The first JoinGroup has no member id, both timeouts, the assignor's name and the sorted topics."""
    group = GroupHarness(topics=("b", "a"), max_poll_interval_ms=60_000)
    join = group.request()
    message = join.message
    assert ("g", 45_000, 60_000, "", "consumer") == (
        message.group_id,
        message.session_timeout_ms,
        message.rebalance_timeout_ms,
        message.member_id,
        message.protocol_type,
    )
    assert "+1" == join.node
    assert 65_000 == join.timeout_ms
    (protocol,) = message.protocols
    assert "first-takes-all" == protocol.name
    subscription = decode_subscription(protocol.metadata)
    assert (["a", "b"], [], -1) == (subscription.topics, subscription.owned_partitions, subscription.generation_id)
    assert [] == group.poll(), "one JoinGroup at a time"


def returned_leader() -> tuple[GroupHarness, UnsentRequest]:
    """Returns a static leader that keeps its assignment (KIP-814), and its DescribeGroups. Topic t has 2 partitions."""
    group = GroupHarness(group_instance_id="i")
    joined = group.joined(leader=True)
    joined.skip_assignment = True
    group.respond(group.until("JoinGroup"), joined)
    sync = group.until("SyncGroup")
    assert [] == sync.message.assignments
    group.respond(sync, group.synced(*tps("t", 0)))
    group.poll()
    group.run_callbacks()
    assert not group.membership.idle
    return group, group.until("DescribeGroups")


def described(*assignments: bytes, state: str = "Stable", code: int = 0) -> DescribeGroupsResponse:
    """Returns a response to DescribeGroups with the assignments of the members."""
    members = [DescribedGroupMember(member_assignment=data) for data in assignments]
    return DescribeGroupsResponse(groups=[DescribedGroup(error_code=code, group_state=state, members=members)])


def assignment_of(*partitions: int) -> bytes:
    """Encode the assignment of a member: partitions of the topic t."""
    return encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic="t", partitions=list(partitions))])
    )


@pytest.mark.parametrize(
    "response",
    [
        described(assignment_of(0), assignment_of(1)),
        described(assignment_of(0), state="PreparingRebalance"),
        described(assignment_of(0), b"?"),
        described(code=30),
    ],
    ids=["complete", "rebalancing", "unreadable", "not authorized"],
)
def test_a_returned_leader_keeps_an_assignment_of_all_partitions(response: DescribeGroupsResponse) -> None:
    """A leader that must keep the assignment reads it once, and keeps it if it is complete or cannot be checked."""
    group, describe = returned_leader()
    group.respond(describe, response)
    assert group.membership.idle
    assert [] == group.poll()


def test_a_returned_leader_rejoins_if_partitions_were_added() -> None:
    """A leader that must keep the assignment joins again if no member has one of the partitions."""
    group, describe = returned_leader()
    group.respond(describe, described(assignment_of(0), b""))
    reason = group.until("JoinGroup").message.reason
    assert "partitions were added while this leader was away" == reason


@pytest.mark.parametrize("lost", [True, False])
def test_a_returned_leader_repeats_a_failed_check(lost: bool) -> None:
    """The assignment is requested again, with a backoff, if a request fails with a retriable error."""
    group, describe = returned_leader()
    if lost:
        group.break_connection(describe, BrokerConnectionError("gone"))
    else:
        group.respond(describe, described(code=14))
    assert [] == group.poll()
    assert not group.membership.idle
    group.now += 1000
    group.respond(group.until("DescribeGroups"), described(assignment_of(0, 1)))
    assert group.membership.idle


def test_a_check_that_a_rebalance_has_overtaken_is_ignored() -> None:
    """The assignments of an older generation cause no further rebalance."""
    group, describe = returned_leader()
    group.member.request_rejoin("test")
    sync = group.join(leader=True, generation=2)
    group.respond(describe, described(assignment_of(0)))
    group.respond(sync, group.synced(*tps("t", 0, 1)))
    group.poll()
    group.run_callbacks()
    assert group.membership.idle


def test_cooperative_revocation_is_followed_by_a_second_join() -> None:
    """After SyncGroup the partitions that move to another member are committed and revoked; on_assign receives only new
    partitions, and the member joins again.
    """
    group = GroupHarness(assignor=FirstTakesAllCooperative(), topics=("t", "u"))
    group.stable(*tps("t", 0, 1))
    group.consume(tps("t", 0)[0], 3)
    group.consume(tps("t", 1)[0], 4)
    group.calls.clear()
    group.member.request_rejoin("test")
    sync = group.join(generation=2)
    group.respond(sync, group.synced(*tps("t", 0), *tps("u", 1)))
    commit = group.request()
    assert ("OffsetCommit", 2) == (commit.api.name, commit.message.generation_id_or_member_epoch)
    assert not group.assignment.is_fetchable(tps("t", 1)[0])
    assert group.assignment.is_fetchable(tps("t", 0)[0]), "kept partitions are fetched throughout"
    group.respond(commit, committed(commit))
    group.poll()
    group.run_callbacks()
    assert [(REVOKED, tps("t", 1)), (ASSIGNED, tps("u", 1))] == group.calls
    assert {*tps("t", 0), *tps("u", 1)} == set(group.assignment.assigned())
    assert "need to revoke partitions and re-join" == group.until("JoinGroup").message.reason


def test_a_reset_during_the_commit_before_a_revocation_runs_on_lost() -> None:
    """If a cooperative member is reset while the commit before a revocation is in flight, others may own all of its
    partitions: on_lost is called for them, and neither on_revoke nor on_assign for the old assignment.
    """
    group = GroupHarness(assignor=FirstTakesAllCooperative(), topics=("t", "u"))
    group.stable(*tps("t", 0, 1))
    group.consume(tps("t", 1)[0], 4)
    group.calls.clear()
    group.member.request_rejoin("test")
    sync = group.join(generation=2)
    group.respond(sync, group.synced(*tps("t", 0), *tps("u", 1)))
    commit = group.request()
    assert "OffsetCommit" == commit.api.name
    group.member.reset("test")
    group.respond(commit, committed(commit))
    join = group.until("JoinGroup")
    assert [(LOST, tps("t", 0, 1))] == group.calls
    assert ("", ()) == (join.message.member_id, group.assignment.assigned())


def test_response_to_an_older_join_is_ignored() -> None:
    """A JoinGroup response that arrives after the member left changes nothing."""
    group = GroupHarness()
    join = group.request()
    group.membership.leave("test", group.now)
    group.respond(join, group.joined(leader=False))
    assert MemberState.UNJOINED is group.member.state
    assert Generation() == group.member.generation


@pytest.mark.parametrize("lost", [False, True])
def test_no_join_is_sent_behind_an_abandoned_one(lost: bool) -> None:
    """After leaving, the next JoinGroup is sent only when the one in flight has ended. Otherwise the coordinator might
    read it after a successor with the same group_instance_id has joined, and would fence that successor.
    """
    group = GroupHarness(group_instance_id="i")
    join = group.request()
    assert group.membership.leave("test", group.now) is None
    group.now += 60_000
    assert [] == group.poll()
    if lost:
        group.break_connection(join, BrokerConnectionError("gone"))
    else:
        group.respond(join, group.joined(leader=False))
    assert "" == group.until("JoinGroup").message.member_id


def static_member() -> GroupHarness:
    """Returns a static member of a cooperative group that owns two partitions."""
    group = GroupHarness(assignor=FirstTakesAllCooperative(), group_instance_id="i")
    group.stable(*tps("t", 0, 1))
    return group


def rejoins(group: GroupHarness) -> UnsentRequest:
    """Let the member join again and return its next SyncGroup."""
    group.member.request_rejoin("test")
    return group.join(generation=2)


@pytest.mark.parametrize("step", ["joining", "syncing", "synced", "revoked"])
def test_a_static_member_does_not_leave_withheld_partitions_unassigned(step: str) -> None:
    """A cooperative static member that closes in the middle of a rebalance sends a last JoinGroup without owned
    partitions. Without that join its successor would receive the present assignment, and no member would read the
    withheld partitions.
    """
    group = static_member()
    if step == "joining":
        group.member.request_rejoin("test")
        group.until("JoinGroup")
    else:
        sync = rejoins(group)
    if step in ("synced", "revoked"):
        group.respond(sync, group.synced(*tps("t", 0)))
    if step == "revoked":
        group.poll()
        group.run_callbacks()
    group.membership.leave_callback()
    last = group.membership.last_join()
    assert last is not None
    assert group.membership.leave("test", group.now) is None
    message = last.message
    assert ("me", "i") == (message.member_id, message.group_instance_id)
    assert [] == decode_subscription(message.protocols[0].metadata).owned_partitions
    if step == "revoked":  # the same consumer may subscribe again
        assert [] == group.poll()
        group.respond(last, group.joined(leader=False, generation=3))
        assert MemberState.JOINING is group.member.state
        assert "" == group.until("JoinGroup").message.member_id


@pytest.mark.parametrize("case", ["kept", "left", "eager", "dynamic", "first", "unknown coordinator"])
def test_no_unnecessary_last_join_is_sent(case: str) -> None:
    """No last JoinGroup is sent by a member that keeps its partitions, sends LeaveGroup, revokes everything before it
    joins, or owned nothing; nor while the coordinator is unknown.
    """
    leave_group = True if case == "left" else None
    if case in ("eager", "dynamic"):
        assignor = FirstTakesAll() if case == "eager" else FirstTakesAllCooperative()
        group = GroupHarness(assignor=assignor, group_instance_id="i" if case == "eager" else None)
        group.stable(*tps("t", 0, 1))
    elif case == "first":
        group = GroupHarness(assignor=FirstTakesAllCooperative(), group_instance_id="i")
        group.join()
    else:
        group = static_member()
    if case != "first":
        sync = rejoins(group)
        group.respond(sync, group.synced(*tps("t", 0, 1) if case == "kept" else tps("t", 0)))
    if case == "unknown coordinator":
        group.coordinator.mark_unknown("test", group.now)
    group.membership.leave_callback()
    assert group.membership.last_join(leave_group) is None


def test_a_static_member_that_was_reset_while_it_owed_a_join_joins_twice() -> None:
    """A static member whose caller exceeded max_poll_interval_ms in the middle of a rebalance joins twice. The first
    join, without a member id, returns the present assignment without a rebalance; the second one starts the
    rebalance.
    """
    group = static_member()
    group.respond(rejoins(group), group.synced(*tps("t", 0)))
    group.member.reset("test")
    sync = group.join(generation=2)
    group.respond(sync, group.synced(*tps("t", 0)))
    again = group.until("JoinGroup")
    assert [0] == decode_subscription(again.message.protocols[0].metadata).owned_partitions[0].partitions
    group.respond(again, group.joined(leader=False, generation=3))
    group.respond(group.until("SyncGroup"), group.synced(*tps("t", 0, 1)))
    group.poll()
    group.run_callbacks()
    assert [] == group.poll()
    assert group.membership.idle


def test_changed_subscription_rejoins() -> None:
    """A stable member whose topics changed joins again with the new topics."""
    group = GroupHarness()
    group.stable(*tps("t", 0))
    group.subscription.subscribe(["t", "u"])
    join = group.until("JoinGroup")
    assert ["t", "u"] == decode_subscription(join.message.protocols[0].metadata).topics
    assert "the subscription has changed" == join.message.reason


def test_assignment_for_an_older_subscription_is_not_taken() -> None:
    """If topics are unsubscribed during a join, the assignment for the old topics runs no callback and the member joins
    again.
    """
    group = GroupHarness()
    sync = group.join()
    group.subscription.subscribe(["u"])
    group.respond(sync, group.synced(*tps("t", 0)))
    group.until("JoinGroup")
    assert () == group.assignment.assigned()
    assert (ASSIGNED, tps("t", 0)) not in group.calls


@pytest.mark.parametrize(("in_flight", "node"), [("JoinGroup", "1"), ("SyncGroup", "1"), (None, "+1")])
def test_leaving_does_not_wait_behind_a_join(in_flight: str | None, node: str) -> None:
    """While JoinGroup or SyncGroup is in flight, LeaveGroup is sent on the broker's other connection.

    The connection of a SyncGroup is closed, because the coordinator never responds there.
    """
    group = GroupHarness()
    if in_flight is None:
        group.stable(*tps("t", 0))
    else:
        group.respond(group.until("JoinGroup"), JoinGroupResponse(error_code=79, member_id="me"))
        join = group.until("JoinGroup")
        if in_flight == "SyncGroup":
            group.respond(join, group.joined(leader=False))
            group.until("SyncGroup")
    request = group.membership.leave("the consumer closed", group.now)
    assert request is not None
    assert node == request.node
    assert ("+1" if in_flight == "SyncGroup" else None) == group.coordinator.poll(group.now).disconnect
    assert group.coordinator.poll(group.now).disconnect is None, "it is closed once"
    assert "+1" == group.coordinator.connection_id
