"""Heartbeats of the classic protocol: when they are sent and the effect of each response."""

from __future__ import annotations

import pytest

from kconsumer._internal.managers import FOREVER, UnsentRequest
from kconsumer.coordinator.classic_protocol.state import MemberState
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import AuthenticationError
from kconsumer.schema.classic_group import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from support.harnesses.group_harness import GroupHarness, tps


def stable(**options: object) -> GroupHarness:
    """Returns a member with one partition that has just joined."""
    group = GroupHarness(**options)
    group.stable(*tps("t", 0))
    return group


def beat(group: GroupHarness) -> list[UnsentRequest]:
    """Returns what the heartbeat manager sends now."""
    return group.heartbeat.poll(group.now).requests


def test_a_rebalance_during_slow_processing_is_one_failure() -> None:
    """While the user processes records, each heartbeat reports the rebalance. This is no reason for a warning."""
    group = stable()
    for _ in range(10):
        group.now += 3000
        group.respond(beat(group)[0], HeartbeatResponse(error_code=27))
    assert (1, FOREVER) == (group.heartbeat.progress.failures, group.heartbeat.progress.warning_due)
    group.stable(*tps("t", 0), generation=2)
    group.now += 3000
    group.respond(beat(group)[0], HeartbeatResponse())
    assert group.heartbeat.progress.status is None


@pytest.mark.parametrize("code", [15, 27])
def test_heartbeats_continue_until_the_next_join_is_sent(code: int) -> None:
    """After a failed SyncGroup, the member sends heartbeats until the next poll sends a JoinGroup.

    The heartbeat thread may receive the response while the user processes records for longer than the session timeout.
    """
    group = GroupHarness()
    group.respond(group.join(), SyncGroupResponse(error_code=code))
    assert MemberState.JOINING is group.member.state
    if code == 15:
        group.find_coordinator()
    group.now += 3000
    (request,) = beat(group)
    group.respond(request, HeartbeatResponse(error_code=27))
    join = group.until("JoinGroup")
    group.now += 3000
    assert [] == beat(group)
    group.respond(join, JoinGroupResponse(error_code=14))
    assert ["Heartbeat"] == [request.api.name for request in beat(group)]


@pytest.mark.parametrize("code", [22, 25, 82])
def test_responses_for_an_older_generation_are_ignored(code: int) -> None:
    """An error for an older generation does not reset the newer one."""
    group = stable()
    group.now += 3000
    (request,) = beat(group)
    group.member.generation = newer = Generation(2, "me", "first-takes-all")
    group.respond(request, HeartbeatResponse(error_code=code))
    assert newer == group.member.generation
    assert group.heartbeat.take_error() is None


def test_silent_coordinator_is_given_up_after_the_session_timeout() -> None:
    """If no heartbeat had a response for session_timeout_ms the coordinator is looked up again."""
    group = stable(max_poll_interval_ms=1_000_000)
    group.now += 3000
    beat(group)
    for _ in range(13):
        group.now += 3000
        assert [] == beat(group)
        assert group.coordinator.connection_id is not None
    group.now += 3000
    assert [] == beat(group)
    assert group.coordinator.connection_id is None


def test_a_suspended_process_does_not_give_its_coordinator_up() -> None:
    """After a long time without a step, the response that has arrived meanwhile is read first."""
    group = stable(max_poll_interval_ms=1_000_000)
    group.now += 3000
    (request,) = beat(group)
    group.now += 600_000
    assert [] == beat(group)
    assert group.coordinator.connection_id is not None
    group.respond(request, HeartbeatResponse())
    assert 1 == len(beat(group))


def test_idle_static_member_stops_heartbeating_without_leaving() -> None:
    """A static member that exceeds the poll interval sends no heartbeat and no LeaveGroup, so it keeps its place in the
    group.
    """
    group = stable(max_poll_interval_ms=10_000, group_instance_id="i")
    group.now += 10_001
    assert [] == beat(group)
    assert MemberState.UNJOINED is group.member.state


def test_a_failed_authentication_is_raised_and_changes_nothing() -> None:
    """The next poll raises the error; the member stays in the group, and looks up its coordinator again."""
    group = stable()
    group.now += 3000
    error = AuthenticationError("no", code=58)
    group.break_connection(beat(group)[0], error)
    assert error is group.heartbeat.take_error()
    assert MemberState.STABLE is group.member.state
    assert group.coordinator.connection_id is None


@pytest.mark.parametrize("code", [0, 25])
def test_a_failed_authentication_is_forgotten_after_the_next_heartbeat(code: int) -> None:
    """An error of a login is not raised after the coordinator has responded to a later heartbeat, whatever it says."""
    group = stable()
    group.now += 3000
    group.break_connection(beat(group)[0], AuthenticationError("no", code=58))
    group.find_coordinator()
    group.now += 3000
    group.respond(beat(group)[0], HeartbeatResponse(error_code=code))
    assert group.heartbeat.take_error() is None
