"""Group requests: which broker they are sent to, which description applies, and which errors are retried or final."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import Promise, UnsentRequest
from kconsumer.coordinator.classic_protocol.embedded import encode_assignment
from kconsumer.errors import (
    BrokerConnectionError,
    BrokerError,
    GroupAuthorizationError,
    GroupError,
    KafkaError,
    TimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kconsumer.groups.administration import (
    DELETION,
    group_listing,
    offset_commit,
    share_offset_change,
    share_offset_deletion,
)
from kconsumer.groups.types import GroupListing
from kconsumer.schema.admin import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from kconsumer.schema.embedded import ConsumerProtocolAssignment, TopicPartitions
from kconsumer.schema.group_deletion import DeletableGroupResult, DeleteGroupsResponse
from kconsumer.schema.metadata import Coordinator, FindCoordinatorResponse
from kconsumer.schema.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kconsumer.schema.share_group import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    ShareGroupDescribeGroup,
    ShareGroupDescribeResponse,
)
from kconsumer.types import Node, OffsetAndMetadata
from support.harnesses.manager_driver import RETRY_MS, fail, respond, tps
from support.harnesses.wiring import make_groups_manager

DEADLINE = 10_000.0
NOT_FOUND = 69


class Case:
    """A manager, and broker 2 as the coordinator of every group."""

    def __init__(self) -> None:
        self.groups = make_groups_manager()
        self.now = 0.0

    def sent(self) -> list[UnsentRequest]:
        """Returns the requests sent now."""
        return self.groups.poll(self.now).requests

    def one(self, api: str) -> UnsentRequest:
        """Returns the one request sent now, after responses to coordinator lookups."""
        for _ in range(3):
            (request,) = self.sent()
            if request.api.name != "FindCoordinator" or api == "FindCoordinator":
                assert api == request.api.name
                return request
            key = request.message.coordinator_keys[0]
            row = Coordinator(key=key, node_id=2, host="two", port=9, error_code=0, error_message=None)
            respond(request, FindCoordinatorResponse(coordinators=[row]), self.now)
        raise AssertionError(f"no {api} was sent")


def error_of(promise: Promise[Any]) -> KafkaError:
    """Returns the error of a failed promise."""
    assert promise.error is not None
    return promise.error


def no_such(kind: str, code: int = NOT_FOUND) -> Any:
    """Returns a description with an error."""
    if kind == "consumer":
        return ConsumerGroupDescribeResponse(groups=[ConsumerGroupDescribeGroup(group_id="g", error_code=code)])
    if kind == "classic":
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", error_code=code)])
    return ShareGroupDescribeResponse(groups=[ShareGroupDescribeGroup(group_id="g", error_code=code)])


# --- listing ---


def test_a_listing_is_sent_to_the_given_broker() -> None:
    """A listing is sent to the given broker, with filters in a version that has them; states and types are returned as
    the broker sends them.
    """
    case = Case()
    promise = case.groups.request(group_listing(["Stable"], ["classic"]), DEADLINE, node=3)
    request = case.one("ListGroups")
    assert ("3", 5, ["Stable"], ["classic"]) == (
        request.node,
        request.min_version,
        request.message.states_filter,
        request.message.types_filter,
    )
    row = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
    respond(request, ListGroupsResponse(groups=[row]), 1.0)
    assert [GroupListing("g", "classic", "Stable", "consumer")] == promise.result()


@pytest.mark.parametrize(("version", "state"), [(3, None), (4, "Stable")])
def test_old_brokers_report_less(version: int, state: str | None) -> None:
    """A field that the version does not have is None; without filters any version is used."""
    case = Case()
    promise = case.groups.request(group_listing([], []), DEADLINE, node=1)
    request = case.one("ListGroups")
    assert 0 == request.min_version
    row = ListedGroup(group_id="g", protocol_type="consumer", group_state=state or "")
    respond(request, ListGroupsResponse(groups=[row]), 1.0, version)
    assert [GroupListing("g", None, state, "consumer")] == promise.result()


def test_a_request_to_a_loading_coordinator_is_repeated() -> None:
    """After COORDINATOR_LOAD_IN_PROGRESS the same broker is asked again after the backoff."""
    case = Case()
    promise = case.groups.request(group_listing([], []), DEADLINE, node=1)
    respond(case.one("ListGroups"), ListGroupsResponse(error_code=14), case.now)
    assert [] == case.sent()
    case.now = RETRY_MS
    respond(case.one("ListGroups"), ListGroupsResponse(), case.now)
    assert [] == promise.result()


def test_a_deadline_ends_a_request() -> None:
    """The TimeoutError contains the request and why it has no response."""
    case = Case()
    promise = case.groups.request(group_listing([], []), DEADLINE, node=1)
    fail(case.one("ListGroups"), BrokerConnectionError("gone"), case.now)
    case.now = DEADLINE
    assert [] == case.sent()
    error = error_of(promise)
    assert isinstance(error, TimeoutError)
    assert "ListGroups" in str(error)
    assert "gone" in str(error.__cause__)


# --- descriptions ---


def test_a_classic_group_is_found_second() -> None:
    """If the coordinator has no such consumer group a classic group is requested; its assignments are decoded."""
    case = Case()
    promise = case.groups.describe("g", DEADLINE)
    request = case.one("ConsumerGroupDescribe")
    assert "2" == request.node
    respond(request, no_such("consumer"), case.now)
    data = encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic="t", partitions=[1, 0])])
    )
    row = DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=data)
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[row]
    )
    respond(case.one("DescribeGroups"), DescribeGroupsResponse(groups=[group]), case.now)
    found = promise.result()
    assert ("classic", "Stable", "range", Node(2, "two", 9)) == (
        found.type,
        found.state,
        found.protocol,
        found.coordinator,
    )
    assert tuple(tps("t-0", "t-1")) == found.members[0].assignment


def test_members_of_other_protocol_types_are_not_decoded() -> None:
    """A group of Connect workers is described without assignments."""
    case = Case()
    promise = case.groups.describe("g", DEADLINE, "classic")
    row = DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=b"\xff")
    group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="connect", members=[row])
    respond(case.one("DescribeGroups"), DescribeGroupsResponse(groups=[group]), case.now)
    assert () == promise.result().members[0].assignment


def test_a_group_that_does_not_exist() -> None:
    """If all three requests report that the group does not exist (an old broker by the state Dead, or by lacking the
    request), GROUP_ID_NOT_FOUND is raised.
    """
    case = Case()
    promise = case.groups.describe("g", DEADLINE)
    fail(case.one("ConsumerGroupDescribe"), UnsupportedVersionError("old"), case.now)
    dead = DescribedGroup(group_id="g", group_state="Dead")
    respond(case.one("DescribeGroups"), DescribeGroupsResponse(groups=[dead]), case.now)
    respond(case.one("ShareGroupDescribe"), no_such("share"), case.now)
    error = error_of(promise)
    assert isinstance(error, BrokerError)
    assert NOT_FOUND == error.code
    assert [] == case.sent()


def test_refusals_end_the_request() -> None:
    """A missing permission on the group, reported by the coordinator or by its lookup, is raised at once."""
    case = Case()
    promise = case.groups.describe("g", DEADLINE)
    respond(case.one("ConsumerGroupDescribe"), no_such("consumer", 30), case.now)
    assert isinstance(promise.error, GroupAuthorizationError)
    other = case.groups.describe("h", DEADLINE)
    row = Coordinator(key="h", node_id=-1, host="", port=-1, error_code=30, error_message=None)
    respond(case.one("FindCoordinator"), FindCoordinatorResponse(coordinators=[row]), case.now)
    case.sent()
    assert isinstance(other.error, GroupAuthorizationError)


# --- changes ---


def committed(*codes: int) -> OffsetCommitResponse:
    """Returns a response with one code for each partition of t."""
    rows = [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])


def altering(case: Case) -> Promise[None]:
    """Request new offsets of two partitions of group g."""
    offsets = zip(tps("t-0", "t-1"), (OffsetAndMetadata(5, "why", 2), OffsetAndMetadata(6)), strict=True)
    return case.groups.request(offset_commit(dict(offsets)), DEADLINE, "g")


@pytest.mark.parametrize(
    ("codes", "error", "text"),
    [
        ((25, 25), GroupError, "t-0 and of 1 other partition; the group has members"),
        ((0, 3), BrokerError, "committing the offset of t-1"),
        ((0, 29), TopicAuthorizationError, "an ACL must allow Read on the topic"),
        ((12, 0), BrokerError, "committing the offset of t-0"),
    ],
)
def test_a_commit_fails_at_once(codes: tuple[int, int], error: type[BrokerError], text: str) -> None:
    """A group with members, an unknown partition and a missing permission end the call; the partition is named."""
    case = Case()
    promise = altering(case)
    respond(case.one("OffsetCommit"), committed(*codes), case.now)
    assert isinstance(error_of(promise), error)
    assert next(filter(None, codes)) == getattr(promise.error, "code", None)
    assert text in str(promise.error)
    assert [] == case.sent()


def test_a_commit_to_a_moved_coordinator_is_repeated() -> None:
    """All offsets are sent again to the new coordinator, also if other partitions have errors that are final."""
    case = Case()
    promise = altering(case)
    respond(case.one("OffsetCommit"), committed(3, 16), case.now)
    assert not promise.done
    case.now = RETRY_MS
    respond(case.one("OffsetCommit"), committed(0, 0), case.now)
    assert (True, None) == (promise.done, promise.error)


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (68, GroupError, "stop its members first"),
        (NOT_FOUND, GroupError, "deleting group 'g'"),
        (30, GroupAuthorizationError, "an ACL must allow Delete on the group"),
    ],
)
def test_a_group_is_deleted(code: int, error: type[BrokerError], text: str) -> None:
    """The coordinator deletes the group, after it is ready; every other error is final and names the group."""
    case = Case()
    promise = case.groups.request(DELETION, DEADLINE, "g")
    request = case.one("DeleteGroups")
    assert ("2", ["g"]) == (request.node, request.message.groups_names)
    loading = DeletableGroupResult(group_id="g", error_code=14)
    respond(request, DeleteGroupsResponse(results=[loading]), case.now)
    case.now = RETRY_MS
    respond(case.one("DeleteGroups"), DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")]), case.now)
    assert (True, None) == (promise.done, promise.error)

    failed = case.groups.request(DELETION, DEADLINE, "g")
    row = DeletableGroupResult(group_id="g", error_code=code)
    respond(case.one("DeleteGroups"), DeleteGroupsResponse(results=[row]), case.now)
    assert isinstance(error_of(failed), error)
    assert text in str(failed.error)


def start_offsets_set(*codes: int, group_code: int = 0) -> AlterShareGroupOffsetsResponse:
    """Returns a response with one code for each partition of t."""
    rows = [AlterShareGroupOffsetsResponsePartition(partition_index=i, error_code=code) for i, code in enumerate(codes)]
    topics = [AlterShareGroupOffsetsResponseTopic(topic_name="t", partitions=rows)]
    return AlterShareGroupOffsetsResponse(error_code=group_code, responses=topics if rows else [])


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (start_offsets_set(group_code=68), "setting start offsets; stop the members of the group first"),
        (start_offsets_set(0, 3), "setting the start offset of t-1"),
        (start_offsets_set(3, 3), "setting the start offset of t-0 and of 1 other partition"),
    ],
)
def test_start_offsets_that_are_refused(response: AlterShareGroupOffsetsResponse, text: str) -> None:
    """A group with members and an unknown partition end the call; the partition is named."""
    case = Case()
    promise = case.groups.request(share_offset_change(dict.fromkeys(tps("t-0", "t-1"), 5)), DEADLINE, "g")
    respond(case.one("AlterShareGroupOffsets"), response, case.now)
    assert text in str(error_of(promise))
    assert [] == case.sent()


@pytest.mark.parametrize(
    ("group_code", "codes", "text"),
    [
        (0, (0, 0), None),
        (69, (), "deleting start offsets"),
        (0, (3, 3), "deleting the start offsets of topic 't' and of 1 other topic"),
    ],
)
def test_start_offsets_are_deleted(group_code: int, codes: tuple[int, ...], text: str | None) -> None:
    """The request names the topics. Errors of the group and of topics are final."""
    case = Case()
    promise = case.groups.request(share_offset_deletion({"u", "t"}), DEADLINE, "g")
    request = case.one("DeleteShareGroupOffsets")
    assert ("g", ["t", "u"]) == (request.message.group_id, [topic.topic_name for topic in request.message.topics])
    rows = [DeleteShareGroupOffsetsResponseTopic(topic_name=n, error_code=c) for n, c in zip("tu", codes, strict=False)]
    respond(request, DeleteShareGroupOffsetsResponse(error_code=group_code, responses=rows), case.now)
    assert promise.done
    assert text is None or text in str(error_of(promise))
    assert [] == case.sent()
