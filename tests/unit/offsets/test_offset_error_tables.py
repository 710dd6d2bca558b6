"""Error codes in responses to ListOffsets and OffsetForLeaderEpoch have the same effect as in Java."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import TopicAuthorizationError
from kconsumer.offsets.error_actions import LEADER_EPOCH_ACTIONS, LIST_OFFSETS_ACTIONS
from kconsumer.schema.offsets import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchState
from kconsumer.types import OffsetReset
from support.harnesses.error_codes import CODE, codes_for, name_of
from support.harnesses.manager_driver import NODES, RETRY_MS, led_by, respond, tp
from support.harnesses.offsets_case import OffsetsCase, offsets, rows

# Java's OffsetFetcherUtils and OffsetsForLeaderEpochUtils have the same table, except for the old message format.
EITHER = {
    "NOT_LEADER_OR_FOLLOWER": "retry",
    "REPLICA_NOT_AVAILABLE": "retry",
    "KAFKA_STORAGE_ERROR": "retry",
    "OFFSET_NOT_AVAILABLE": "retry",
    "LEADER_NOT_AVAILABLE": "retry",
    "FENCED_LEADER_EPOCH": "retry",
    "UNKNOWN_LEADER_EPOCH": "retry",
    "UNKNOWN_TOPIC_OR_PARTITION": "warn",
    "TOPIC_AUTHORIZATION_FAILED": "raise",
}
LIST_OFFSETS = {**EITHER, "UNSUPPORTED_FOR_MESSAGE_FORMAT": "nothing"}
A0 = tp("a-0")


def reaction(java: dict[str, str], code: int) -> str:
    """Returns Java's action; unknown errors are retried with a warning."""
    return java.get(name_of(code), "warn")


def codes_with(java: dict[str, str], *reactions: str) -> list[int]:
    """Returns the codes with one of these actions."""
    return [code for code in codes_for(java) if reaction(java, code) in reactions]


def fresh(case: OffsetsCase) -> OffsetsCase:
    """Returns a case after its first metadata update, so that the next update can only be due to an error."""
    case.settle_metadata()
    assert not case.wants_metadata()
    return case


def resetting() -> tuple[OffsetsCase, UnsentRequest]:
    """Returns a partition that awaits its reset, and its request."""
    case = fresh(OffsetsCase("a-0", reset=OffsetReset.EARLIEST))
    return case, case.ask(0.0)


def validating() -> tuple[OffsetsCase, UnsentRequest]:
    """Returns a partition at offset 50, epoch 2, whose leader has changed, and its validation request."""
    case = fresh(OffsetsCase("a-0", reset=OffsetReset.NONE))
    case.positions.seek(A0, 50, 2, LeaderAndEpoch(NODES[1], 3))
    case.assignment.get(A0).complete_validation()
    case.cluster.update_leader(A0, 2, 4)
    request = case.ask(0.0)
    assert OFFSET_FOR_LEADER_EPOCH is request.api
    return case, request


def epoch_error(code: int) -> OffsetForLeaderEpochResponse:
    """Returns the response for a position whose validation failed."""
    row = EpochEndOffset(partition=0, end_offset=-1, leader_epoch=-1, error_code=code)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="a", partitions=[row])])


def test_the_tables_are_whole() -> None:
    """The code has a row for every error of Java's tables and no other."""
    assert {CODE[name] for name in LIST_OFFSETS} == set(LIST_OFFSETS_ACTIONS) - {0}
    assert {CODE[name] for name in EITHER} == set(LEADER_EPOCH_ACTIONS) - {0}


@pytest.mark.parametrize("code", codes_with(LIST_OFFSETS, "retry", "warn"), ids=name_of)
def test_resets_are_repeated(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """The reset is requested again after the backoff, with new metadata; nothing is raised, and an unexpected error
    logs a warning.
    """
    case, request = resetting()
    respond(request, offsets({"a-0": {"error": code}}), 5.0)
    assert (RETRY_MS, None, None) == (case.waits(5.0), case.manager.take_error(), case.manager.lasting_error())
    assert case.wants_metadata()
    assert {"a-0": (-2, 3)} == rows(case.ask(5.0 + RETRY_MS))
    assert name_of(code) in str(case.assignment.get(A0).last_error)
    warned = [record.message for record in caplog.records if "a-0" in record.message]
    assert (reaction(LIST_OFFSETS, code) == "warn") == bool(warned)


@pytest.mark.parametrize("code", codes_with(LIST_OFFSETS, "retry", "warn"), ids=name_of)
def test_lookups_of_users_are_repeated(code: int) -> None:
    """A user's lookup is repeated after the backoff, with new metadata, until it succeeds."""
    case = fresh(OffsetsCase("a-0", reset=OffsetReset.NONE))
    promise = case.manager.list_offsets({A0: 77})
    respond(case.ask(0.0), offsets({"a-0": {"error": code}}), 5.0)
    assert ([], False) == (case.asks(5.0 + RETRY_MS - 1), promise.done)
    assert case.wants_metadata()
    respond(case.ask(5.0 + RETRY_MS), offsets({"a-0": (8, 78, 3)}), 200.0)
    found = promise.result()[A0]
    assert found is not None
    assert (8, 78) == (found.offset, found.timestamp)


@pytest.mark.parametrize("code", codes_with(LIST_OFFSETS, "nothing"), ids=name_of)
def test_no_such_offset(code: int) -> None:
    """A user's lookup returns None; a reset, which needs an offset, is repeated."""
    case = fresh(OffsetsCase("a-0", reset=OffsetReset.NONE))
    promise = case.manager.list_offsets({A0: 77})
    respond(case.ask(0.0), offsets({"a-0": {"error": code}}), 5.0)
    assert {A0: None} == promise.result()
    case, request = resetting()
    respond(request, offsets({"a-0": {"error": code}}), 5.0)
    assert (RETRY_MS, None) == (case.waits(5.0), case.manager.take_error())


@pytest.mark.parametrize("code", codes_with(LIST_OFFSETS, "raise"), ids=name_of)
def test_refused_offsets_are_raised(code: int) -> None:
    """The error is raised by the user's lookup, or by the poll that needs a position; both name the partition."""
    case = fresh(OffsetsCase("a-0", reset=OffsetReset.NONE))
    promise = case.manager.list_offsets({A0: 77})
    respond(case.ask(0.0), offsets({"a-0": {"error": code}}), 5.0)
    errors = [promise.error]
    case, request = resetting()
    respond(request, offsets({"a-0": {"error": code}}), 5.0)
    errors.append(case.manager.take_error())
    for error in errors:
        assert isinstance(error, TopicAuthorizationError)
        assert (code, {"a"}, A0) == (error.code, error.topics, error.topic_partition)
        assert "a-0" in str(error)
    assert None is case.manager.take_error()
    assert RETRY_MS == case.waits(5.0)
    respond(case.ask(5.0 + RETRY_MS), offsets({"a-0": {"error": code}}), 200.0)
    assert isinstance(case.manager.take_error(), TopicAuthorizationError)


@pytest.mark.parametrize("code", codes_with(EITHER, "retry", "warn"), ids=name_of)
def test_validations_are_repeated(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """The validation is repeated after the backoff, with new metadata; the position is kept, and nothing is fetched or
    raised meanwhile.
    """
    case, request = validating()
    respond(request, epoch_error(code), 5.0)
    assert (RETRY_MS, None, None) == (case.waits(5.0), case.manager.take_error(), case.manager.lasting_error())
    assert case.wants_metadata()
    state = case.assignment.get(A0)
    assert (FetchState.AWAIT_VALIDATION, False) == (state.fetch_state, state.fetchable)
    assert 50 == getattr(case.position("a-0"), "offset", None)
    assert OFFSET_FOR_LEADER_EPOCH is case.ask(5.0 + RETRY_MS).api
    warned = [record.message for record in caplog.records if "a-0" in record.message]
    assert (reaction(EITHER, code) == "warn") == bool(warned)


@pytest.mark.parametrize("code", codes_with(EITHER, "raise"), ids=name_of)
def test_refused_validations_are_raised(code: int) -> None:
    """The error is raised with partition and offset, and again after each backoff while the topic is refused."""
    case, request = validating()
    for now in (5.0, 5.0 + RETRY_MS):
        respond(request if now == 5.0 else case.ask(now), epoch_error(code), now)
        error = case.manager.take_error()
        assert isinstance(error, TopicAuthorizationError)
        assert (code, A0, 50) == (error.code, error.topic_partition, error.offset)
        assert "a-0 at offset 50" in str(error)
        assert None is case.manager.take_error()


# --- fenced and unknown leader epochs: metadata catches up, then the right leader is asked with the right epoch ---


def catch_up(case: OffsetsCase, now: float) -> None:
    """Respond to the metadata request: broker 3 is the leader since epoch 6."""
    (request,) = case.metadata.poll(now).requests
    respond(request, led_by({"a-0": 3}, 6), now)


@pytest.mark.parametrize("name", ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"])
def test_reset_follows_the_epoch(name: str) -> None:
    """A reset that failed because of a wrong leader epoch is sent to the new leader, with its epoch."""
    case, request = resetting()
    respond(request, offsets({"a-0": {"error": CODE[name]}}), 5.0)
    catch_up(case, 1000.0)
    again = case.ask(1000.0)
    assert ("3", {"a-0": (-2, 6)}) == (again.node, rows(again))
    respond(again, offsets({"a-0": (4, -1, 6)}), 1001.0)
    position = case.position("a-0")
    assert position is not None
    assert (4, LeaderAndEpoch(NODES[3], 6)) == (position.offset, position.leader)


@pytest.mark.parametrize("name", ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"])
def test_lookup_follows_the_epoch(name: str) -> None:
    """A user's lookup that failed because of a wrong leader epoch is sent to the new leader."""
    case = fresh(OffsetsCase("a-0", reset=OffsetReset.NONE))
    promise = case.manager.list_offsets({A0: -1})
    respond(case.ask(0.0), offsets({"a-0": {"error": CODE[name]}}), 5.0)
    catch_up(case, 1000.0)
    again = case.ask(1000.0)
    assert ("3", {"a-0": (-1, 6)}) == (again.node, rows(again))
    respond(again, offsets({"a-0": 9}), 1001.0)
    assert 9 == getattr(promise.result()[A0], "offset", None)


@pytest.mark.parametrize("name", ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"])
def test_validation_follows_the_epoch(name: str) -> None:
    """A validation that failed because of a wrong leader epoch is sent to the new leader at once."""
    case, request = validating()
    respond(request, epoch_error(CODE[name]), 5.0)
    catch_up(case, 1000.0)
    again = case.ask(1000.0)
    (row,) = again.message.topics[0].partitions
    assert ("3", 6, 2) == (again.node, row.current_leader_epoch, row.leader_epoch)
    good = EpochEndOffset(partition=0, end_offset=50, leader_epoch=2)
    respond(
        again, OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="a", partitions=[good])]), 1001.0
    )
    assert [A0] == case.assignment.fetchable()


@pytest.mark.parametrize("asks", [resetting, validating], ids=["reset", "validation"])
def test_a_request_to_a_leader_with_an_old_epoch_is_repeated(
    asks: Callable[[], tuple[OffsetsCase, UnsentRequest]],
) -> None:
    """While metadata is unchanged, the request to a leader that does not have its leader epoch yet is repeated."""
    case, request = asks()
    code = CODE["UNKNOWN_LEADER_EPOCH"]
    unknown = epoch_error(code) if request.api is OFFSET_FOR_LEADER_EPOCH else offsets({"a-0": {"error": code}})
    respond(request, unknown, 5.0)
    again = case.ask(5.0 + RETRY_MS)
    assert (request.node, request.message) == (again.node, again.message)
