"""Resets: requests to leaders for partitions without a position, and the effect of responses."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kconsumer.managers import FOREVER
from kconsumer.schema import LIST_OFFSETS
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, FetchState
from kconsumer.types import IsolationLevel, OffsetReset
from support.harnesses.manager_driver import (
    NODES,
    REQUEST_TIMEOUT_MS,
    RETRY_MS,
    fail,
    led_by,
    metadata,
    respond,
    topic,
    tps,
)
from support.harnesses.offsets_case import WALL_MS, offsets, rows
from support.harnesses.offsets_case import OffsetsCase as Case

A0, A1, B0 = tps("a-0", "a-1", "b-0")
HOUR_MS = 3_600_000
LOST = BrokerConnectionError("lost")


# --- requests --------------------------------------------------------------------------------------------


def test_resets_are_sent_to_leaders() -> None:
    """One request is sent per leader, with the policy's timestamp and the known leader epoch."""
    case = Case("a-0", "a-1", "b-0", leaders={"a-0": 1, "a-1": 2, "b-0": 1})
    requests = {request.node: request for request in case.asks(0.0)}
    assert {"1", "2"} == set(requests)
    assert {"a-0": (-1, 3), "b-0": (-1, 3)} == rows(requests["1"])
    assert {"a-1": (-1, 3)} == rows(requests["2"])
    first = requests["1"]
    assert (LIST_OFFSETS, -1, REQUEST_TIMEOUT_MS) == (first.api, first.message.replica_id, first.message.timeout_ms)


@pytest.mark.parametrize(
    ("reset", "timestamp"),
    [
        (OffsetReset.LATEST, -1),
        (OffsetReset.EARLIEST, -2),
        (OffsetReset.by_duration(HOUR_MS), WALL_MS - HOUR_MS),
    ],
)
def test_each_policy_has_its_timestamp(reset: OffsetReset, timestamp: int) -> None:
    """A duration is subtracted from the time of the request."""
    assert {"a-0": (timestamp, 3)} == rows(Case("a-0", reset=reset).ask(0.0))


def test_a_seek_to_an_end_has_its_own_strategy() -> None:
    """`seek_to_beginning` resets to the earliest offset whatever the policy."""
    case = Case("a-0", "a-1")
    case.positions.request_reset(A0, OffsetReset.EARLIEST)
    assert {"a-0": (-2, 3), "a-1": (-1, 3)} == rows(case.ask(0.0))


@pytest.mark.parametrize(
    ("level", "on_wire", "floor"),
    [
        ("read_uncommitted", 0, 1),
        ("read_committed", 1, 2),
        (IsolationLevel.READ_UNCOMMITTED, 0, 1),
        (IsolationLevel.READ_COMMITTED, 1, 2),
    ],
)
def test_the_request_has_the_isolation_level(level: Any, on_wire: int, floor: int) -> None:
    """With read_committed the end is the last stable offset, which needs version 2."""
    request = Case("a-0", isolation_level=level).ask(0.0)
    assert (on_wire, floor) == (request.message.isolation_level, request.min_version)


def test_an_unknown_epoch_is_not_sent() -> None:
    """Without a reliable leader epoch the request has -1."""
    case = Case("a-0")
    case.cluster.update(led_by({"a-0": 1}, 3), 8, full=True)
    assert {"a-0": (-1, -1)} == rows(case.ask(0.0))


def test_partitions_in_flight_are_not_requested_again() -> None:
    """A partition in flight is requested again after request_timeout_ms; others are requested meanwhile."""
    case = Case("a-0", "a-1")
    case.positions.seek(A1, 5, leader=case.cluster.leader(A1))
    case.ask(0.0)
    assert REQUEST_TIMEOUT_MS - 10.0 == case.waits(10.0)
    case.positions.request_reset(A1)
    assert {"a-1": (-1, 3)} == rows(case.ask(20.0))
    assert {"a-0": (-1, 3)} == rows(case.ask(REQUEST_TIMEOUT_MS))


def test_initializing_partitions_are_unchanged() -> None:
    """Partitions that wait for a committed offset are left to the commit manager."""
    case = Case("a-0", reset=OffsetReset.NONE)
    assert FOREVER == case.waits(0.0)


def test_with_all_positions_nothing_is_requested() -> None:
    """If all partitions have positions no request is sent and nothing is awaited."""
    case = Case("a-0")
    case.positions.seek(A0, 5, leader=case.cluster.leader(A0))
    assert FOREVER == case.waits(0.0)


def test_without_leader_metadata_is_requested() -> None:
    """Without a leader metadata is requested, and the reset is sent when the leader is known, without backoff."""
    case = Case("a-0", leaders={})
    case.metadata.poll(0.0)
    assert RETRY_MS == case.waits(0.0)
    assert "no leader is known" == case.assignment.get(A0).last_error
    case.lead({"a-0": 2})
    assert "2" == case.ask(1.0).node


def test_a_missing_topic_is_named() -> None:
    """If metadata reports that the topic does not exist, the partition's status names this error."""
    case = Case("a-0", leaders={})
    respond(case.metadata.poll(0.0).requests[0], metadata(topic("a", error=3)), 0.0)
    case.waits(0.0)
    assert "topic a does not exist" in case.assignment.get(A0).last_error


# --- responses -------------------------------------------------------------------------------------------


def test_a_response_sets_the_position() -> None:
    """The offset becomes the position, with the current leader and without validation."""
    case = Case("a-0")
    respond(case.ask(0.0), offsets({"a-0": (42, -1, 3)}), 5.0)
    assert FetchPosition(42, None, LeaderAndEpoch(NODES[1], 3)) == case.position("a-0")
    assert FetchState.FETCHING is case.assignment.get(A0).fetch_state
    assert FOREVER == case.waits(5.0)


def test_a_newer_epoch_in_the_response_is_noted() -> None:
    """A newer leader epoch in a response means that the cached leader is old."""
    case = Case("a-0")
    case.settle_metadata()
    respond(case.ask(0.0), offsets({"a-0": (42, -1, 4)}), 5.0)
    assert LeaderAndEpoch(None, 4) == case.cluster.leader(A0)
    assert 42 == getattr(case.position("a-0"), "offset", None)
    assert case.wants_metadata()


def test_a_response_after_a_seek_is_ignored() -> None:
    """A response after a seek does not change the user's position."""
    case = Case("a-0")
    request = case.ask(0.0)
    case.positions.seek(A0, 7)
    respond(request, offsets({"a-0": 42}), 5.0)
    assert FetchPosition(7) == case.position("a-0")


RETRIED = [6, 9, 56, 78, 5, 74, 75, 3, 7, -1, 42]


@pytest.mark.parametrize("code", RETRIED)
def test_partition_errors_are_retried(code: int) -> None:
    """After errors of one partition it is requested again after the backoff with new metadata; others continue."""
    case = Case("a-0", "a-1")
    case.settle_metadata()
    respond(case.ask(0.0), offsets({"a-0": {"error": code}, "a-1": 8}), 5.0)
    assert (None, 8) == (case.position("a-0"), getattr(case.position("a-1"), "offset", None))
    assert RETRY_MS == case.waits(5.0)
    assert case.assignment.get(A0).last_error
    assert case.manager.take_error() is None
    assert {"a-0": (-1, 3)} == rows(case.ask(5.0 + RETRY_MS))
    assert case.wants_metadata()


def test_a_missing_partition_is_retried() -> None:
    """A partition that is missing in the response is handled as if it had failed."""
    case = Case("a-0", "a-1")
    respond(case.ask(0.0), offsets({"a-1": 8, "x-0": 1}), 5.0)
    assert RETRY_MS == case.waits(5.0)
    assert {"a-0": (-1, 3)} == rows(case.ask(5.0 + RETRY_MS))


@pytest.mark.parametrize("found", [-1, {"error": 43}], ids=["no offset", "old format"])
def test_no_offset_is_retried(found: Any) -> None:
    """A leader that returns no offset for the beginning or the end is asked again."""
    case = Case("a-0")
    respond(case.ask(0.0), offsets({"a-0": found}), 5.0)
    assert RETRY_MS == case.waits(5.0)


def test_a_refused_topic_that_was_unsubscribed_is_not_raised() -> None:
    """If the topic was unsubscribed, and its partition is not yet revoked, the error is not raised."""
    case = Case("a-0")
    respond(case.ask(0.0), offsets({"a-0": {"error": 29}}), 5.0)
    case.assignment.get(A0).flag(unsubscribed=True)
    assert case.manager.take_error() is None


def test_a_refused_topic_is_raised() -> None:
    """TOPIC_AUTHORIZATION_FAILED is raised once with the topics; partitions of other topics get their positions."""
    case = Case("a-0", "b-0")
    respond(case.ask(0.0), offsets({"a-0": {"error": 29}, "b-0": 4}), 5.0)
    error = case.manager.take_error()
    assert isinstance(error, TopicAuthorizationError)
    assert ({"a"}, None) == (error.topics, case.manager.take_error())
    assert 4 == getattr(case.position("b-0"), "offset", None)
    assert RETRY_MS == case.waits(5.0)


def test_a_lost_request_is_retried() -> None:
    """After a lost connection all its partitions are requested again after the backoff."""
    case = Case("a-0", "a-1")
    case.settle_metadata()
    fail(case.ask(0.0), LOST, 5.0)
    assert (RETRY_MS, None) == (case.waits(5.0), case.manager.take_error())
    assert {"a-0", "a-1"} == set(rows(case.ask(5.0 + RETRY_MS)))
    assert case.wants_metadata()


@pytest.mark.parametrize("error", [AuthenticationError(code=58), UnsupportedVersionError("too old")])
def test_final_errors_are_raised(error: Exception) -> None:
    """Errors that are not retriable are raised, and retried after the backoff."""
    case = Case("a-0")
    fail(case.ask(0.0), error, 5.0)
    assert (error, None) == (case.manager.take_error(), case.manager.take_error())
    assert RETRY_MS == case.waits(5.0)


def test_the_first_error_wins() -> None:
    """Of two errors the first one is raised."""
    case = Case("a-0", "a-1", leaders={"a-0": 1, "a-1": 2})
    first, second = case.asks(0.0)
    errors = [AuthenticationError(code=58), UnsupportedVersionError("too old")]
    fail(first, errors[0], 1.0)
    fail(second, errors[1], 2.0)
    assert (errors[0], None) == (case.manager.take_error(), case.manager.take_error())


@pytest.mark.parametrize("way_out", ["seek", "unassign"])
def test_an_error_that_no_longer_matters_is_dropped(way_out: str) -> None:
    """An error is not raised if the user changed the partition before the next poll, and does not hide a
    later error.
    """
    case = Case("a-0", "a-1", leaders={"a-0": 1, "a-1": 2})
    first, second = case.asks(0.0)
    fail(first, AuthenticationError(code=58), 1.0)
    if way_out == "seek":
        case.positions.seek(A0, 1)
    else:
        case.subscription.assign([A1])
    later = UnsupportedVersionError("too old")
    fail(second, later, 2.0)
    assert (later, None) == (case.manager.take_error(), case.manager.take_error())
    fail(first, AuthenticationError(code=58), 3.0)
    assert case.manager.take_error() is None


# --- by duration -----------------------------------------------------------------------------------------


def test_a_duration_finds_the_first_recent_record() -> None:
    """If the log has a record that is recent enough, one request by time is sufficient."""
    case = Case("a-0", reset=OffsetReset.by_duration(HOUR_MS))
    respond(case.ask(0.0), offsets({"a-0": (42, WALL_MS, 3)}), 5.0)
    assert 42 == getattr(case.position("a-0"), "offset", None)


def test_without_recent_records_a_duration_resets_to_the_end() -> None:
    """If no record is recent enough the end is requested, then the time once more, then the end is used."""
    case = Case("a-0", reset=OffsetReset.by_duration(HOUR_MS))
    respond(case.ask(0.0), offsets({"a-0": -1}), 1.0)
    case.clock.advance(10)
    end = case.ask(2.0)
    assert {"a-0": (-1, 3)} == rows(end)
    respond(end, offsets({"a-0": 90}), 3.0)
    again = case.ask(4.0)
    assert {"a-0": (WALL_MS + 10 - HOUR_MS, 3)} == rows(again)
    respond(again, offsets({"a-0": -1}), 5.0)
    assert 90 == getattr(case.position("a-0"), "offset", None)


def test_a_record_written_meanwhile_is_not_skipped() -> None:
    """A record that is written between the first two requests is found by the third."""
    case = Case("a-0", reset=OffsetReset.by_duration(HOUR_MS))
    respond(case.ask(0.0), offsets({"a-0": -1}), 1.0)
    respond(case.ask(2.0), offsets({"a-0": 91}), 3.0)
    respond(case.ask(4.0), offsets({"a-0": (90, WALL_MS, 3)}), 5.0)
    assert 90 == getattr(case.position("a-0"), "offset", None)


def test_an_end_found_for_another_reset_is_not_used() -> None:
    """After a seek in between, the sequence of requests starts again."""
    case = Case("a-0", reset=OffsetReset.by_duration(HOUR_MS))
    respond(case.ask(0.0), offsets({"a-0": -1}), 1.0)
    late = case.ask(2.0)
    case.positions.request_reset(A0, OffsetReset.EARLIEST)
    respond(late, offsets({"a-0": 90}), 3.0)
    assert case.position("a-0") is None
    assert {"a-0": (-2, 3)} == rows(case.ask(4.0))


def test_late_responses_for_lost_partitions_are_harmless() -> None:
    """A response, whatever it contains, changes nothing for a partition that was unassigned meanwhile."""
    case = Case("a-0", reset=OffsetReset.by_duration(HOUR_MS))
    request = case.ask(0.0)
    case.subscription.unsubscribe()
    for found in (-1, 5, {"error": 3}, {"error": 29}):
        respond(request, offsets({"a-0": found}), 1.0)
    assert (FOREVER, None) == (case.waits(2.0), case.manager.take_error())


def test_repr_counts() -> None:
    """The repr has the number of partitions in flight."""
    assert "<ResetManager: 0 lookups, <Positions of <Assignment v1: 1 partitions" in repr(Case("a-0").manager)
