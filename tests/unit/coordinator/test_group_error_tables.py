"""Error codes in the response to each request of a classic member: what Java does, we do.

The tables here are Java's `AbstractCoordinator` and `ConsumerCoordinator`, by name; each row of the
library's tables is compared with them, and codes of each kind without a row are tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kconsumer._common.error_codes import is_retriable
from kconsumer._internal.managers import Promise, UnsentRequest
from kconsumer.coordinator import error_actions as tables
from kconsumer.coordinator.classic_protocol.state import MemberState
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    TopicAuthorizationError,
)
from kconsumer.schema.classic_group import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)
from kconsumer.schema.metadata import Coordinator, FindCoordinatorResponse
from kconsumer.schema.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition
from support.harnesses.error_codes import CODE, COORDINATOR_ERRORS, LOADING, codes_for, name_of
from support.harnesses.group_harness import GroupHarness, committed

FIND_COORDINATOR = {
    "COORDINATOR_LOAD_IN_PROGRESS": "retry",
    "COORDINATOR_NOT_AVAILABLE": "retry",
    "NOT_COORDINATOR": "retry",
    "INVALID_GROUP_ID": "raise",
    "GROUP_AUTHORIZATION_FAILED": "raise",
}
JOIN = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "UNKNOWN_MEMBER_ID": "reset",
    "REBALANCE_IN_PROGRESS": "retry now",
    "MEMBER_ID_REQUIRED": "adopt id",
    "FENCED_INSTANCE_ID": "raise",
    "INCONSISTENT_GROUP_PROTOCOL": "raise",
    "INVALID_SESSION_TIMEOUT": "raise",
    "INVALID_GROUP_ID": "raise",
    "GROUP_AUTHORIZATION_FAILED": "raise",
    "GROUP_MAX_SIZE_REACHED": "raise",
    "UNSUPPORTED_VERSION": "raise",
}
SYNC = {
    **COORDINATOR_ERRORS,
    "GROUP_AUTHORIZATION_FAILED": "raise",
    "FENCED_INSTANCE_ID": "raise",
    "REBALANCE_IN_PROGRESS": "retry now",
    "UNKNOWN_MEMBER_ID": "reset",
    "ILLEGAL_GENERATION": "reset keep id",
}
HEARTBEAT = {
    **COORDINATOR_ERRORS,
    "REBALANCE_IN_PROGRESS": "rejoin",
    "ILLEGAL_GENERATION": "reset keep id",
    "UNKNOWN_MEMBER_ID": "reset",
    "FENCED_INSTANCE_ID": "fenced",
    "GROUP_AUTHORIZATION_FAILED": "raise",
}
LEAVE = {
    "COORDINATOR_LOAD_IN_PROGRESS": "log",
    "COORDINATOR_NOT_AVAILABLE": "log",
    "NOT_COORDINATOR": "log",
    "UNKNOWN_MEMBER_ID": "log",
    "GROUP_AUTHORIZATION_FAILED": "log",
    "FENCED_INSTANCE_ID": "log",
}
COMMIT = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "GROUP_AUTHORIZATION_FAILED": "raise",
    "TOPIC_AUTHORIZATION_FAILED": "topics",
    "OFFSET_METADATA_TOO_LARGE": "raise",
    "INVALID_COMMIT_OFFSET_SIZE": "raise",
    "UNKNOWN_TOPIC_OR_PARTITION": "retry",
    "REQUEST_TIMED_OUT": "coordinator",
    "FENCED_INSTANCE_ID": "fenced",
    "REBALANCE_IN_PROGRESS": "rejoin",
    "UNKNOWN_MEMBER_ID": "reset",
    "ILLEGAL_GENERATION": "reset keep id",
}
FETCH_GROUP = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "GROUP_AUTHORIZATION_FAILED": "raise",
}
# OffsetFetch v1 has only codes of partitions; Java reads the coordinator's errors there, too.
FETCH = {
    **COORDINATOR_ERRORS,
    **LOADING,
    "UNKNOWN_TOPIC_OR_PARTITION": "raise",
    "TOPIC_AUTHORIZATION_FAILED": "topics",
    "UNSTABLE_OFFSET_COMMIT": "retry",
}

T0 = TopicPartition("t", 0)
OFFSETS = {T0: OffsetAndMetadata(5)}
MINE = Generation(1, "me", "first-takes-all")
AFTER_RESET = {"reset": Generation(), "reset keep id": Generation(member_id="me")}


def expected(java: Mapping[str, str], code: int, *, passing: bool = False) -> str:
    """Returns Java's action. `passing`: Java retries retriable errors that have no row of their own."""
    return java.get(name_of(code), "retry" if passing and is_retriable(code) else "raise")


@pytest.mark.parametrize(
    ("table", "java"),
    [
        (tables.FIND_COORDINATOR_ACTIONS, FIND_COORDINATOR),
        (tables.JOIN_ACTIONS, JOIN),
        (tables.SYNC_ACTIONS, SYNC),
        (tables.HEARTBEAT_ACTIONS, HEARTBEAT),
        (tables.LEAVE_ACTIONS, LEAVE),
        (tables.COMMIT_ACTIONS, COMMIT),
        (tables.OFFSET_FETCH_GROUP_ACTIONS, FETCH_GROUP),
        (tables.OFFSET_FETCH_ACTIONS, FETCH),
    ],
    ids=["find", "join", "sync", "heartbeat", "leave", "commit", "fetch-group", "fetch"],
)
def test_the_tables_are_whole(table: Mapping[int, tables.GroupErrorAction], java: Mapping[str, str]) -> None:
    """The code has a row for every error of Java's tables and no other."""
    assert {CODE[name] for name in java} == set(table)


def stable() -> GroupHarness:
    """Returns a member of generation 1 that reads t-0."""
    group = GroupHarness()
    group.stable(T0)
    return group


# --- FindCoordinator ---


@pytest.mark.parametrize("code", codes_for(FIND_COORDINATOR), ids=name_of)
def test_find_coordinator(code: int) -> None:
    """FindCoordinator is sent again after a backoff whatever the response; an error that is not retriable is raised
    once.
    """
    group = GroupHarness()
    group.coordinator.coordinator = None
    group.coordinator.request_lookup()
    (request,) = group.coordinator.poll(group.now).requests
    row = Coordinator(key="g", node_id=-1, host="", port=-1, error_code=code)
    group.respond(request, FindCoordinatorResponse(coordinators=[row]))
    error = group.coordinator.take_error()
    raised = "raise" == expected(FIND_COORDINATOR, code, passing=True)
    assert (code if raised else None) == (error and getattr(error, "code", None))
    assert group.coordinator.take_error() is None
    assert [] == group.coordinator.poll(group.now).requests
    group.now += 130
    assert 1 == len(group.coordinator.poll(group.now).requests)


# --- JoinGroup and SyncGroup ---


def joins_again(group: GroupHarness, what: str) -> UnsentRequest | None:
    """Returns the JoinGroup that follows: at once, after the backoff, or after a new coordinator was found."""
    if what == "coordinator":
        assert group.coordinator.connection_id is None
        group.find_coordinator()
    if what in ("coordinator", "retry"):
        assert [] == group.poll()
        group.now += 130
    return group.until("JoinGroup")


@pytest.mark.parametrize("code", codes_for(JOIN), ids=name_of)
def test_join(code: int) -> None:
    """A JoinGroup that is refused raises the error, or is sent again with the member id that is valid then."""
    what = expected(JOIN, code)
    group = GroupHarness()
    group.member.generation = Generation(member_id="old")
    group.respond(group.request(), JoinGroupResponse(error_code=code, member_id="given"))
    error = group.membership.take_error()
    assert (what == "raise") == (error is not None)
    if error is None:
        again = joins_again(group, what)
        assert again is not None
        assert {"reset": "", "adopt id": "given"}.get(what, "old") == again.message.member_id
        return
    assert isinstance(error, BrokerError)
    assert code == error.code
    assert [] == group.poll()
    group.now += 130
    assert "JoinGroup" == group.request().api.name, "the next poll may try again"


@pytest.mark.parametrize("code", codes_for(SYNC), ids=name_of)
def test_sync(code: int) -> None:
    """A SyncGroup that is refused always leads to another JoinGroup; some errors are raised by the next poll."""
    what = expected(SYNC, code)
    group = GroupHarness()
    group.respond(group.join(), SyncGroupResponse(error_code=code))
    error = group.membership.take_error()
    assert (code if what == "raise" else None) == (error and getattr(error, "code", None))
    assert group.member.rejoin_reason is not None
    assert AFTER_RESET.get(what, MINE) == group.member.generation
    again = joins_again(group, "retry" if what == "raise" else what)
    assert again is not None
    assert AFTER_RESET.get(what, MINE).member_id == again.message.member_id


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup"])
@pytest.mark.parametrize("code", [22, 25, 82])
def test_refusals_of_an_older_generation(request_name: str, code: int) -> None:
    """An error for an older generation does not reset a newer one; FENCED_INSTANCE_ID is raised all the same."""
    group = GroupHarness()
    request = group.until("JoinGroup") if request_name == "JoinGroup" else group.join()
    group.member.generation = newer = Generation(7, "me", "first-takes-all")
    response = JoinGroupResponse if request_name == "JoinGroup" else SyncGroupResponse
    group.respond(request, response(error_code=code))
    assert newer == group.member.generation
    raised = code == 82 or (request_name, code) == ("JoinGroup", 22)
    assert raised == (group.membership.take_error() is not None)


# --- Heartbeat ---


def heartbeat(group: GroupHarness) -> UnsentRequest:
    """Returns the heartbeat that is due."""
    group.now += 3000
    (request,) = group.heartbeat.poll(group.now).requests
    return request


@pytest.mark.parametrize("code", codes_for(HEARTBEAT), ids=name_of)
def test_heartbeat(code: int) -> None:
    """An error of a heartbeat is raised by the next poll, causes a rejoin, or only a lookup of the coordinator."""
    what = expected(HEARTBEAT, code)
    group = stable()
    group.respond(heartbeat(group), HeartbeatResponse(error_code=code))
    error = group.heartbeat.take_error()
    assert (code if what in ("raise", "fenced") else None) == (error and getattr(error, "code", None))
    assert (what == "coordinator") == (group.coordinator.connection_id is None)
    assert {**AFTER_RESET, "fenced": Generation()}.get(what, MINE) == group.member.generation
    rejoins = what in ("rejoin", "reset", "reset keep id", "fenced")
    assert rejoins == (group.member.rejoin_reason is not None)
    assert (what in (*AFTER_RESET, "fenced")) == (group.member.state is MemberState.UNJOINED)


# --- LeaveGroup ---


@pytest.mark.parametrize("where", ["group", "member"])
@pytest.mark.parametrize("code", codes_for(LEAVE), ids=name_of)
def test_leave(code: int, where: str, caplog: pytest.LogCaptureFixture) -> None:
    """The member has left whatever the code of the group or of the member is; an error is logged."""
    group = stable()
    request = group.membership.leave("the end", group.now)
    assert request is not None
    rows = [MemberResponse(member_id="me", error_code=code)] if where == "member" else []
    group.respond(request, LeaveGroupResponse(error_code=0 if rows else code, members=rows))
    assert (Generation(), MemberState.UNJOINED) == (group.member.generation, group.member.state)
    assert (None, None) == (group.membership.take_error(), group.coordinator.take_error())
    assert group.coordinator.connection_id is not None
    assert 1 == len([line for line in caplog.messages if name_of(code) in line])


# --- OffsetCommit ---


def sent(group: GroupHarness) -> UnsentRequest:
    """Returns the one request of the commit manager."""
    (request,) = group.commits.poll(group.now).requests
    return request


def asked_again(group: GroupHarness, promise: Promise[Any], what: str) -> UnsentRequest:
    """Returns the request that follows a retriable error."""
    assert not promise.done
    assert (what == "coordinator") == (group.coordinator.connection_id is None)
    group.find_coordinator()
    assert [] == group.commits.poll(group.now).requests
    group.now += 130
    return sent(group)


COMMIT_ERRORS: dict[str, type[Exception]] = {
    "topics": TopicAuthorizationError,
    "fenced": FencedInstanceIdError,
    "rejoin": RebalanceInProgressError,
    "reset": CommitFailedError,
    "reset keep id": CommitFailedError,
}


@pytest.mark.parametrize("code", codes_for(COMMIT), ids=name_of)
def test_commit(code: int) -> None:
    """A commit that is refused is retried until its deadline, or fails and may reset the member."""
    what = expected(COMMIT, code)
    group = stable()
    promise = group.commits.commit(OFFSETS, group.now + 10_000)
    request = sent(group)
    group.respond(request, committed(request, code))
    if what in ("retry", "coordinator"):
        again = asked_again(group, promise, what)
        group.respond(again, committed(again))
        assert OFFSETS == promise.result()
        return
    assert isinstance(promise.error, COMMIT_ERRORS.get(what, BrokerError))
    if what == "raise":
        assert code == promise.error.code
    assert AFTER_RESET.get(what, MINE) == group.member.generation
    assert (what == "fenced") == (group.commits.take_error() is not None), "the next poll raises the fencing error"
    assert (what in ("rejoin", *AFTER_RESET)) == (group.member.rejoin_reason is not None)


@pytest.mark.parametrize("code", [22, 25, 82])
@pytest.mark.parametrize("rebalancing", [True, False])
def test_commit_of_an_older_generation(code: int, rebalancing: bool) -> None:
    """A commit that is refused during a rebalance raises RebalanceInProgressError, else CommitFailedError. The newer
    generation is kept.
    """
    group = stable()
    promise = group.commits.commit(OFFSETS, group.now + 10_000)
    request = sent(group)
    if rebalancing:
        group.member.request_rejoin("test")
        group.until("JoinGroup")
    group.member.generation = newer = Generation(2, "me", "first-takes-all")
    group.respond(request, committed(request, code))
    assert isinstance(promise.error, RebalanceInProgressError if rebalancing else CommitFailedError)
    assert newer == group.member.generation
    assert group.commits.take_error() is None


# --- OffsetFetch ---


def fetched(code: int = 0, group_code: int = 0) -> OffsetFetchResponse:
    """Returns a response with offset 9 of t-0, or with these errors."""
    row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=9, metadata="", error_code=code)
    topic = OffsetFetchResponseTopics(name="t", partitions=[row])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=group_code)])


def fetch(response: Callable[[int], OffsetFetchResponse], code: int, what: str) -> None:
    """Let a fetch of committed offsets receive this code, and check that it has the effect `what`."""
    group = stable()
    promise = group.commits.committed([T0], group.now + 10_000)
    group.respond(sent(group), response(code))
    if what in ("retry", "coordinator"):
        group.respond(asked_again(group, promise, what), fetched())
        found = promise.result()[T0]
        assert found is not None
        assert 9 == found.offset
        return
    assert isinstance(promise.error, BrokerError)
    assert code == promise.error.code
    if what == "topics":
        assert isinstance(promise.error, TopicAuthorizationError)
        assert {"t"} == promise.error.topics
    assert MINE == group.member.generation


@pytest.mark.parametrize("code", codes_for(FETCH_GROUP), ids=name_of)
def test_fetch_of_a_group(code: int) -> None:
    """A code for the whole group is retried if it is retriable."""
    fetch(lambda code: fetched(group_code=code), code, expected(FETCH_GROUP, code, passing=True))


@pytest.mark.parametrize("code", codes_for(FETCH), ids=name_of)
def test_fetch_of_a_partition(code: int) -> None:
    """Of the codes for one partition only those in the table are retried."""
    fetch(fetched, code, expected(FETCH, code))
