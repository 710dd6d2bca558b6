"""Error codes in the response to each request of a KIP-848 member: what Java does, we do.

The tables are those of Java 4.4's `ConsumerHeartbeatRequestManager` and `CommitRequestManager`, by name. For a
code that is in no table Java ends the membership if the request is a heartbeat, and otherwise fails the one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kconsumer._common.error_codes import is_retriable
from kconsumer._internal.managers import Promise, UnsentRequest
from kconsumer.coordinator import error_actions
from kconsumer.coordinator.consumer_protocol import heartbeat
from kconsumer.coordinator.consumer_protocol.state import MemberState
from kconsumer.errors import BrokerError, CommitFailedError, KafkaError, TopicAuthorizationError
from kconsumer.schema.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kconsumer.types import Node, OffsetAndMetadata, TopicPartition
from support.harnesses.consumer_harness import INTERVAL_MS, ConsumerGroupHarness, topic_id
from support.harnesses.error_codes import CODE, COORDINATOR_ERRORS, LOADING, codes_for, name_of
from support.harnesses.group_harness import committed

pytestmark = pytest.mark.network_thread

HEARTBEAT = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "FENCED_MEMBER_EPOCH": "fenced",
    "UNKNOWN_MEMBER_ID": "fenced",
    "TOPIC_AUTHORIZATION_FAILED": "report",
    "GROUP_AUTHORIZATION_FAILED": "report",  # fatal in Java; here a member continues when an ACL is granted
    "UNSUPPORTED_VERSION": "fatal",
    "INVALID_REQUEST": "fatal",
    "GROUP_ID_NOT_FOUND": "removed",  # fatal in Java; here a member that had joined joins again
    "GROUP_MAX_SIZE_REACHED": "fatal",
    "FENCED_INSTANCE_ID": "fatal",
    "UNRELEASED_INSTANCE_ID": "fatal",
    "UNSUPPORTED_ASSIGNOR": "fatal",
    "INVALID_REGULAR_EXPRESSION": "fatal",
}
COMMIT = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "REQUEST_TIMED_OUT": "coordinator",
    "UNKNOWN_TOPIC_OR_PARTITION": "retry",
    "UNKNOWN_TOPIC_ID": "retry",
    "GROUP_AUTHORIZATION_FAILED": "raise",
    "OFFSET_METADATA_TOO_LARGE": "raise",
    "INVALID_COMMIT_OFFSET_SIZE": "raise",
    "TOPIC_AUTHORIZATION_FAILED": "topics",
    "UNKNOWN_MEMBER_ID": "not a member",
    "STALE_MEMBER_EPOCH": "stale",
}
FETCH_GROUP = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "GROUP_AUTHORIZATION_FAILED": "raise",
    "UNKNOWN_MEMBER_ID": "raise",
    "STALE_MEMBER_EPOCH": "stale",
}
# Coordinator errors per partition are those of OffsetFetch v1, which a consumer with assign() may use.
FETCH = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "UNKNOWN_TOPIC_OR_PARTITION": "retry",
    "UNKNOWN_TOPIC_ID": "retry",
    "TOPIC_AUTHORIZATION_FAILED": "topics",
    "UNSTABLE_OFFSET_COMMIT": "retry",
}

T0 = TopicPartition("t", 0)
OFFSETS = {T0: OffsetAndMetadata(5)}


@pytest.mark.parametrize(
    ("table", "java"),
    [
        (heartbeat.HEARTBEAT_ACTIONS, HEARTBEAT),
        (error_actions.CONSUMER_COMMIT_ACTIONS, COMMIT),
        (error_actions.CONSUMER_OFFSET_FETCH_GROUP_ACTIONS, FETCH_GROUP),
        (error_actions.CONSUMER_OFFSET_FETCH_ACTIONS, FETCH),
    ],
    ids=["heartbeat", "commit", "fetch-group", "fetch"],
)
def test_the_tables_are_whole(table: Mapping[int, object], java: Mapping[str, str]) -> None:
    """The code has a row for every error of Java's tables and no other."""
    assert {CODE[name] for name in java} == set(table)


# --- ConsumerGroupHeartbeat ---


def joining() -> tuple[ConsumerGroupHarness, UnsentRequest]:
    """Returns a member whose first heartbeat is in flight."""
    group = ConsumerGroupHarness()
    return group, group.beat()


def stable() -> tuple[ConsumerGroupHarness, UnsentRequest]:
    """Returns a member that owns t-0, and its next heartbeat."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    return group, group.beat()


def reconciling() -> tuple[ConsumerGroupHarness, UnsentRequest]:
    """Returns a member that owns t-0 and waits for on_assign of t-1, and its next heartbeat."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0, 1]}, 2)
    group.poll()
    assert group.membership.due_callback is not None
    group.now += INTERVAL_MS
    return group, group.beat()


def acknowledging() -> tuple[ConsumerGroupHarness, UnsentRequest]:
    """Returns a member that owns t-0 and t-1, and the heartbeat that acknowledges them."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0, 1]}, 2)
    group.poll()
    group.run_callbacks()
    return group, group.beat()


@pytest.mark.parametrize("at", [joining, stable, reconciling, acknowledging], ids=lambda at: at.__name__)
@pytest.mark.parametrize("code", codes_for(HEARTBEAT), ids=name_of)
def test_heartbeat(code: int, at: Callable[[], tuple[ConsumerGroupHarness, UnsentRequest]]) -> None:
    """In every state each code has Java's effect: a coordinator lookup, a backoff, on_lost and a join with epoch 0, or
    an error that is raised by one poll or by all.
    """
    what = HEARTBEAT.get(name_of(code), "fatal")
    if what == "removed":
        what = "fatal" if at is joining else "fenced"
    group, request = at()
    before, owned, epoch = group.state, set(group.assignment.assigned()), group.member.member_epoch
    group.calls.clear()
    group.refuse(request, code, "because")
    assert (what == "coordinator") == (group.coordinator.connection_id is None)
    reported, fatal = group.heartbeat.take_error(), group.membership.take_error()
    assert (what == "report", what == "fatal") == (reported is not None, fatal is not None)
    for error in filter(None, (reported, fatal)):
        assert code == getattr(error, "code", code)
        assert "because" in str(error)
    if what in ("fenced", "fatal"):
        gives_all_up(group, owned)
        assert (MemberState.JOINING if what == "fenced" else MemberState.FATAL) is group.state
    else:
        assert (before, owned, epoch) == (
            group.state,
            set(group.assignment.assigned()),
            group.member.member_epoch,
        )
    heartbeats_again(group, what)


def gives_all_up(group: ConsumerGroupHarness, owned: set[TopicPartition]) -> None:
    """Check that on_lost is called for the partitions of on_assign and no others, and that all partitions
    are dropped.
    """
    group.run_callbacks()
    lost = [set(partitions) for kind, partitions in group.calls if kind == "lost"]
    assert len(lost) == len(group.calls) <= 1
    assert all(partitions <= owned for partitions in lost)
    assert (T0 in owned) == any(T0 in partitions for partitions in lost)
    assert not group.assignment.assigned()
    assert 0 == group.member.member_epoch


def heartbeats_again(group: ConsumerGroupHarness, what: str) -> None:
    """Check when the next heartbeat is sent: at once after fencing or with a new coordinator, after the backoff, or
    never.
    """
    if what == "coordinator":
        assert [] == group.background()
        group.coordinator.coordinator = Node(1, "broker", 9092)
    if what in ("retry", "report"):
        assert [] == group.background()
        group.now += 130
    if what == "fatal":
        group.now += 10 * INTERVAL_MS
        assert [] == group.poll()
        return
    (again,) = group.background()
    assert 300_000 == again.message.rebalance_timeout_ms, "every field is sent again"
    assert (0 if what == "fenced" else group.member.member_epoch) == again.message.member_epoch


@pytest.mark.parametrize("code", codes_for(HEARTBEAT), ids=name_of)
def test_heartbeat_response_after_leaving(code: int) -> None:
    """Whatever the response to the leave heartbeat, or to one before it, the member has left and nothing is raised."""
    group, late = stable()
    group.membership.leave_callback()
    leaving = group.membership.leave("test", group.now)
    assert leaving is not None
    for request in (late, leaving):
        group.refuse(request, code)
    assert MemberState.UNSUBSCRIBED is group.state
    assert group.membership.take_error() is None
    assert [] == group.background()


# --- OffsetCommit and OffsetFetch ---


def owner() -> ConsumerGroupHarness:
    """Returns a member that owns t-0, with no heartbeat in flight."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    return group


def sent(group: ConsumerGroupHarness) -> UnsentRequest:
    """Returns the one request of the commit manager."""
    (request,) = group.commits.poll(group.now).requests
    return request


def asked_again(group: ConsumerGroupHarness, promise: Promise[Any], what: str) -> UnsentRequest:
    """Returns the request that follows a retriable error."""
    assert not promise.done
    assert (what == "coordinator") == (group.coordinator.connection_id is None)
    group.coordinator.coordinator = Node(1, "broker", 9092)
    assert [] == group.commits.poll(group.now).requests
    group.now += 130
    return sent(group)


def stays_a_member(group: ConsumerGroupHarness) -> None:
    """Check that the response leaves the membership unchanged; only heartbeats change it."""
    assert (MemberState.STABLE, 1, {T0}) == (
        group.state,
        group.member.member_epoch,
        set(group.assignment.assigned()),
    )
    assert (None, None) == (group.membership.take_error(), group.commits.take_error())


@pytest.mark.parametrize("before_rebalance", [False, True])
@pytest.mark.parametrize("code", codes_for(COMMIT), ids=name_of)
def test_commit(code: int, before_rebalance: bool) -> None:
    """A commit is retried until its deadline, or fails. STALE_MEMBER_EPOCH fails a caller's commit; the commit before a
    rebalance is retried with the new epoch. No response changes the membership.
    """
    what = COMMIT.get(name_of(code), "raise")
    group = owner()
    promise = group.commits.commit(OFFSETS, group.now + 10_000, before_rebalance=before_rebalance)
    request = sent(group)
    group.reply(request, committed(request, code))
    if what == "stale" and before_rebalance:
        what = "retry"
    if what in ("retry", "coordinator"):
        again = asked_again(group, promise, what)
        group.reply(again, committed(again))
        assert OFFSETS == promise.result()
    else:
        expected: dict[str, type[KafkaError]] = {"topics": TopicAuthorizationError, "raise": BrokerError}
        assert isinstance(promise.error, expected.get(what, CommitFailedError))
        cause = promise.error if what in expected else promise.error.__cause__
        assert code == getattr(cause, "code", code)
    stays_a_member(group)


def fetched(code: int = 0, group_code: int = 0) -> OffsetFetchResponse:
    """Returns a response with offset 9 of t-0, or with these errors."""
    row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=9, metadata="", error_code=code)
    topic = OffsetFetchResponseTopics(name="t", topic_id=topic_id("t"), partitions=[row])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=group_code)])


def fetch(group: ConsumerGroupHarness, response: OffsetFetchResponse, code: int, what: str) -> None:
    """Let a fetch of committed offsets receive this response, and check that it has the effect `what`."""
    promise = group.commits.committed([T0], group.now + 10_000)
    request = sent(group)
    assert (1, "me") == (request.message.groups[0].member_epoch, request.message.groups[0].member_id)
    group.reply(request, response)
    if what in ("retry", "coordinator"):
        group.reply(asked_again(group, promise, what), fetched())
        assert 9 == getattr(promise.result()[T0], "offset", None)
    else:
        assert isinstance(promise.error, TopicAuthorizationError if what == "topics" else BrokerError)
        assert code == promise.error.code
    stays_a_member(group)


@pytest.mark.parametrize("code", codes_for(FETCH_GROUP), ids=name_of)
def test_fetch_of_a_group(code: int) -> None:
    """A retriable code for the whole group is retried, and so is a stale epoch while the consumer is a member."""
    what = FETCH_GROUP.get(name_of(code), "retry" if is_retriable(code) else "raise")
    fetch(owner(), fetched(group_code=code), code, "retry" if what == "stale" else what)


@pytest.mark.parametrize("code", codes_for(FETCH), ids=name_of)
def test_fetch_of_a_partition(code: int) -> None:
    """Of the codes for one partition only those in the table are retried."""
    fetch(owner(), fetched(code), code, FETCH.get(name_of(code), "raise"))
