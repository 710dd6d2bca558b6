"""Heartbeats of a share group: their fields, when they are sent, and the effect of each response."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.errors import AuthenticationError, BrokerConnectionError, GroupError, KafkaError, UnsupportedVersionError
from kconsumer.schema.share_group import ShareGroupHeartbeatResponse
from kconsumer.share.member import ShareMemberState
from kconsumer.types import Node
from support.harnesses.share_harness import INTERVAL_MS, ShareHarness

pytestmark = pytest.mark.network_thread


def refuse(group: ShareHarness, code: int, message: str | None = None) -> None:
    """Respond to the next heartbeat with an error code."""
    group.reply(group.beat(), ShareGroupHeartbeatResponse(error_code=code, error_message=message))


def owned(group: ShareHarness) -> list[int]:
    """Returns the assigned partitions of t."""
    return sorted(tp.partition for tp in group.assignment.assigned())


def test_the_first_poll_joins() -> None:
    """Without a poll nothing is sent; the first one joins at once with all fields, and the assignment is applied."""
    group = ShareHarness(client_rack="r1")
    assert [] == group.heartbeats()
    group.membership.user_polled(group.now)
    request = group.beat()
    message = request.message
    assert ("g", "me", 0, "r1", ["t"], "+1") == (
        message.group_id,
        message.member_id,
        message.member_epoch,
        message.rack_id,
        message.subscribed_topic_names,
        request.node,
    )
    group.respond(request, 3, [0, 2])
    assert (ShareMemberState.STABLE, 3, [0, 2]) == (group.member.state, group.member.member_epoch, owned(group))


def test_later_heartbeats_have_only_changes() -> None:
    """One heartbeat per interval, without fields that have not changed; a changed subscription is sent at once."""
    group = ShareHarness()
    group.join([0])
    group.now += INTERVAL_MS - 1
    assert [] == group.heartbeats()
    group.now += 1
    request = group.beat()
    assert (1, None, None) == (
        request.message.member_epoch,
        request.message.subscribed_topic_names,
        request.message.rack_id,
    )
    group.respond(request, 2)
    assert [0] == owned(group)
    group.subscription.subscribe(["t", "u"])
    assert ["t", "u"] == group.beat().message.subscribed_topic_names


@pytest.mark.parametrize("code", [Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_joins_again(code: int) -> None:
    """A fenced member drops its partitions, keeps its id, and joins again with epoch 0 after the backoff."""
    group = ShareHarness()
    group.join([0])
    group.now += INTERVAL_MS
    refuse(group, code)
    assert (ShareMemberState.JOINING, []) == (group.member.state, owned(group))
    group.now += 1000
    message = group.beat().message
    assert ("me", 0, ["t"]) == (message.member_id, message.member_epoch, message.subscribed_topic_names)


@pytest.mark.parametrize("code", [Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_looked_up(code: int) -> None:
    """The coordinator is looked up again; then the member continues with its epoch and sends its subscription."""
    group = ShareHarness()
    group.join([0])
    group.now += INTERVAL_MS
    refuse(group, code)
    assert group.coordinator.connection_id is None
    group.coordinator.coordinator = Node(2, "broker", 9092)
    group.now += 1000
    message = group.beat().message
    assert (1, ["t"], [0]) == (message.member_epoch, message.subscribed_topic_names, owned(group))


def test_a_lost_connection_marks_the_coordinator_unknown() -> None:
    """After a disconnect the coordinator is looked up again, and the membership continues."""
    group = ShareHarness()
    group.join([0])
    group.now += INTERVAL_MS
    group.fail(group.beat(), BrokerConnectionError("gone"))
    assert (None, ShareMemberState.STABLE) == (group.coordinator.connection_id, group.member.state)


def test_a_loading_coordinator_is_asked_again() -> None:
    """While the coordinator loads, the heartbeat is repeated after the backoff, without an error for the user."""
    group = ShareHarness()
    group.membership.user_polled(group.now)
    refuse(group, Errors.COORDINATOR_LOAD_IN_PROGRESS)
    assert [] == group.heartbeats()
    group.now += 1000
    group.respond(group.beat(), 1, [0])
    assert (None, [0]) == (group.membership.take_error(), owned(group))


def test_a_missing_permission_is_raised_once() -> None:
    """An authorization error is raised by one call; the member continues to heartbeat."""
    group = ShareHarness()
    group.join([0])
    group.now += INTERVAL_MS
    refuse(group, Errors.GROUP_AUTHORIZATION_FAILED)
    assert "GROUP_AUTHORIZATION_FAILED" in str(group.membership.take_error())
    assert group.membership.take_error() is None
    group.now += 1000
    refuse(group, Errors.GROUP_AUTHORIZATION_FAILED)
    group.now += 1000
    group.respond(group.beat(), 1)
    assert (None, ShareMemberState.STABLE) == (group.membership.take_error(), group.member.state)


def test_a_wrong_password_is_raised_once() -> None:
    """An error of the client that is not retriable is raised once, and the next heartbeat may succeed."""
    group = ShareHarness()
    group.membership.user_polled(group.now)
    error = AuthenticationError("wrong password")
    group.fail(group.beat(), error)
    assert [error, None] == [group.membership.take_error(), group.membership.take_error()]
    group.now += 1000
    group.fail(group.beat(), error)
    group.now += 1000
    refuse(group, Errors.COORDINATOR_LOAD_IN_PROGRESS)
    assert group.membership.take_error() is None, "a later login was accepted"


@pytest.mark.parametrize(
    ("code", "kind"),
    [(Errors.GROUP_MAX_SIZE_REACHED, GroupError), (Errors.INVALID_REQUEST, KafkaError)],
)
def test_fatal_errors_are_raised_until_the_end(code: int, kind: type[KafkaError]) -> None:
    """A fatal error ends the membership: every call raises it, and nothing is sent, until the user unsubscribes."""
    group = ShareHarness()
    group.membership.user_polled(group.now)
    refuse(group, code, "no room")
    first, second = group.membership.take_error(), group.membership.take_error()
    assert isinstance(first, kind)
    assert first is second
    assert "no room" in str(first)
    assert (ShareMemberState.FATAL, []) == (group.member.state, group.heartbeats())
    assert group.membership.leave().done
    assert (None, ShareMemberState.UNSUBSCRIBED) == (group.membership.take_error(), group.member.state)


def test_an_old_broker_says_what_is_needed() -> None:
    """A broker without share groups leads to an error that names the version to use."""
    group = ShareHarness()
    group.membership.user_polled(group.now)
    group.fail(group.beat(), UnsupportedVersionError("the broker lacks ShareGroupHeartbeat"))
    assert "share groups need Kafka 4.2" in str(group.membership.take_error())


def test_leaving() -> None:
    """The member leaves with epoch -1; the promise is done with the response, and partitions are dropped at once."""
    group = ShareHarness()
    group.join([0])
    promise = group.membership.leave()
    assert [] == owned(group)
    request = group.beat()
    assert (-1, None, False) == (request.message.member_epoch, request.message.subscribed_topic_names, promise.done)
    group.respond(request, -1)
    assert (True, ShareMemberState.UNSUBSCRIBED) == (promise.done, group.member.state)
    group.membership.user_polled(group.now)
    assert (0, ["t"]) == (group.beat().message.member_epoch, ["t"])


def test_leaving_with_a_heartbeat_in_flight() -> None:
    """The heartbeat that leaves waits for the one in flight; the response to that one changes nothing."""
    group = ShareHarness()
    group.join([0])
    group.now += INTERVAL_MS
    regular = group.beat()
    promise = group.membership.leave()
    assert [] == group.heartbeats()
    group.respond(regular, 2, [0, 1])
    assert (False, []) == (promise.done, owned(group))
    group.respond(group.beat(), -1)
    assert promise.done


def test_leaving_without_a_coordinator() -> None:
    """If the coordinator is unknown, nothing is sent, and the member has left at once."""
    group = ShareHarness()
    group.join([0])
    group.coordinator.coordinator = None
    assert group.membership.leave().done
    assert (ShareMemberState.UNSUBSCRIBED, []) == (group.member.state, group.heartbeats())


def test_a_user_who_does_not_poll_leaves() -> None:
    """After `max_poll_interval_ms` without a poll the member leaves; the next poll joins again with the same id."""
    group = ShareHarness(max_poll_interval_ms=60_000)
    group.join([0])
    group.now += 60_000
    request = group.beat()
    assert (-1, []) == (request.message.member_epoch, owned(group))
    group.respond(request, -1)
    assert (ShareMemberState.STALE, []) == (group.member.state, group.heartbeats())
    group.membership.user_polled(group.now)
    assert ("me", 0) == (group.beat().message.member_id, group.member.member_epoch)
