"""A failure in the middle of a classic rebalance is raised by one poll; later polls join again and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kconsumer.assignors import Assignment, ClusterView, Subscription
from kconsumer.coordinator.classic_protocol.state import MemberState
from kconsumer.coordinator.rebalance_steps import CallbackKind
from kconsumer.errors import AssignorError, ConfigError, KafkaError, ProtocolError
from kconsumer.schema.classic_group import JoinGroupResponse, SyncGroupResponse
from kconsumer.types import GroupMetadata
from support.harnesses.group_harness import FirstTakesAllCooperative, GroupHarness, tps

ZERO, ONE = tps("t", 0, 1)


def test_an_error_is_forgotten_after_the_next_rebalance() -> None:
    """An error of a JoinGroup is not raised after a later rebalance has succeeded, or after the member has left."""
    group = GroupHarness()
    for _ in range(2):
        group.break_connection(group.until("JoinGroup"), ProtocolError("garbage"))
        group.now += 1300
        group.stable(ZERO)
        assert group.membership.take_error() is None
        group.member.request_rejoin("test")
    group.break_connection(group.until("JoinGroup"), ProtocolError("garbage"))
    group.membership.leave("test", group.now)
    assert group.membership.take_error() is None


def joins_and_reads(group: GroupHarness) -> None:
    """Check that after a backoff the member joins and is stable with its partitions."""
    group.now += 1300
    group.run_callbacks()
    if group.member.state is not MemberState.STABLE:
        sync = group.join(leader=True, generation=group.member.generation.id + 1)
        group.respond(sync, group.synced(ZERO, ONE))
        group.poll()
        group.run_callbacks()
        group.poll()
    assert group.membership.idle
    assert {ZERO, ONE} == set(group.assignment.assigned())
    assert all(not group.assignment.get(tp).awaiting_callback for tp in (ZERO, ONE))


def raised(group: GroupHarness) -> KafkaError:
    """Returns the error that poll raises, and checks that it is raised once."""
    error = group.membership.take_error()
    assert error is not None
    assert group.membership.take_error() is None
    return error


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x03\x00\x00\x00\x09"])
def test_assignment_that_cannot_be_read(data: bytes) -> None:
    """If the leader omits this member or sends an invalid assignment, a ProtocolError is raised and the member joins
    again, rather than only send heartbeats.
    """
    group = GroupHarness()
    group.respond(group.join(), SyncGroupResponse(assignment=data))
    error = raised(group)
    assert isinstance(error, ProtocolError)
    assert "cannot be read" in str(error)
    assert not group.commits.pending_commits()
    joins_and_reads(group)


@pytest.mark.parametrize("metadata", [b"", b"\x00\x03\x00\x00\x00\x09"])
def test_leader_of_a_member_whose_subscription_cannot_be_read(metadata: bytes) -> None:
    """If the leader cannot read a member's subscription, the error names that member, and the leader joins again so
    that the group does not wait for its SyncGroup.
    """
    group = GroupHarness()
    response = group.joined(leader=True)
    stranger = type(response.members[0])(member_id="stranger", metadata=metadata)
    response.members = [*response.members, stranger]
    group.respond(group.until("JoinGroup"), response)
    error = raised(group)
    assert isinstance(error, ProtocolError)
    assert "'stranger'" in str(error)
    joins_and_reads(group)


@pytest.mark.parametrize("leader", [True, False])
def test_assignor_that_is_not_configured(leader: bool) -> None:
    """An assignor that the group selected and this member does not have raises an error, for the leader and for a
    follower.
    """
    group = GroupHarness()
    response = group.joined(leader=leader)
    response.protocol_name = "unheard-of"
    group.respond(group.until("JoinGroup"), response)
    assert isinstance(raised(group), ConfigError)
    joins_and_reads(group)


def test_cooperative_member_keeps_its_partitions_when_a_join_fails() -> None:
    """As in Java an error of the leader's assignor keeps the generation, so no partition is lost."""

    class Broken(FirstTakesAllCooperative):
        def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
            raise RuntimeError("no idea")

    group = GroupHarness(assignor=Broken())
    group.stable(ZERO, ONE)
    group.calls.clear()
    group.member.request_rejoin("test")
    group.respond(group.until("JoinGroup"), group.joined(leader=True, generation=2))
    group.poll()
    assert isinstance(raised(group), AssignorError)
    group.now += 1300
    assert "JoinGroup" == group.until("JoinGroup").api.name
    assert [] == group.calls
    assert (ZERO, ONE) == group.assignment.assigned()


def test_repeated_failures_back_off() -> None:
    """If the leader omits this member repeatedly, the pauses between joins grow."""
    group = GroupHarness(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    joins = 0
    began = group.now
    while group.now < began + 10_000:
        for request in group.poll():
            if request.api.name == "JoinGroup":
                joins += 1
                group.respond(request, group.joined(leader=False))
            elif request.api.name == "SyncGroup":
                group.respond(request, SyncGroupResponse(assignment=b""))
        group.membership.take_error()
        group.now += 10
    assert 10 <= joins <= 17


@pytest.mark.parametrize(
    "response",
    [
        lambda: JoinGroupResponse(error_code=27),
        lambda: JoinGroupResponse(error_code=25),
        lambda: JoinGroupResponse(error_code=79, member_id="given"),
    ],
    ids=["REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "MEMBER_ID_REQUIRED"],
)
def test_repeated_errors_of_a_join_back_off(response: Callable[[], JoinGroupResponse]) -> None:
    """If the coordinator repeats an error that is retried at once, only the first retry has no backoff."""
    group = GroupHarness(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    joins = 0
    began = group.now
    while group.now < began + 10_000:
        for request in group.poll():
            joins += 1
            group.respond(request, response())
        group.now += 1
    assert 10 <= joins <= 19


def test_assignment_of_a_generation_that_was_reset_is_not_taken() -> None:
    """A member that is removed from the group between the SyncGroup response and the next poll joins again without
    callbacks.
    """
    group = GroupHarness()
    group.respond(group.join(), group.synced(ZERO, ONE))
    group.member.reset("fenced")
    group.until("JoinGroup")
    assert () == group.assignment.assigned()
    assert [] == [kind for kind, _ in group.calls if kind is CallbackKind.ASSIGNED]
    assert GroupMetadata("g") == group.membership.group_metadata()
