"""Resets: requests to leaders for partitions without a position, and the effect of responses."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import FOREVER
from kconsumer.errors import (
    AuthenticationError,
    UnsupportedVersionError,
)
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.types import IsolationLevel, OffsetReset
from support.harnesses.manager_driver import (
    RETRY_MS,
    fail,
    metadata,
    respond,
    topic,
    tps,
)
from support.harnesses.offsets_case import WALL_MS, offsets
from support.harnesses.offsets_case import OffsetsCase as Case

A0, A1, B0 = tps("a-0", "a-1", "b-0")
HOUR_MS = 3_600_000


# --- requests --------------------------------------------------------------------------------------------


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


def test_a_missing_topic_is_named() -> None:
    """If metadata reports that the topic does not exist, the partition's status names this error."""
    case = Case("a-0", leaders={})
    respond(case.metadata.poll(0.0).requests[0], metadata(topic("a", error=3)), 0.0)
    case.waits(0.0)
    assert "topic a does not exist" in case.assignment.get(A0).last_error


# --- responses -------------------------------------------------------------------------------------------


def test_a_newer_epoch_in_the_response_is_noted() -> None:
    """A newer leader epoch in a response means that the cached leader is old."""
    case = Case("a-0")
    case.settle_metadata()
    respond(case.ask(0.0), offsets({"a-0": (42, -1, 4)}), 5.0)
    assert LeaderAndEpoch(None, 4) == case.cluster.leader(A0)
    assert 42 == getattr(case.position("a-0"), "offset", None)
    assert case.wants_metadata()


def test_a_refused_topic_that_was_unsubscribed_is_not_raised() -> None:
    """If the topic was unsubscribed, and its partition is not yet revoked, the error is not raised."""
    case = Case("a-0")
    respond(case.ask(0.0), offsets({"a-0": {"error": 29}}), 5.0)
    case.assignment.get(A0).flag(unsubscribed=True)
    assert case.manager.take_error() is None


@pytest.mark.parametrize("error", [AuthenticationError(code=58), UnsupportedVersionError("too old")])
def test_final_errors_are_raised(error: Exception) -> None:
    """Errors that are not retriable are raised, and retried after the backoff."""
    case = Case("a-0")
    fail(case.ask(0.0), error, 5.0)
    assert (error, None) == (case.manager.take_error(), case.manager.take_error())
    assert RETRY_MS == case.waits(5.0)


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


def test_a_record_written_meanwhile_is_not_skipped() -> None:
    """A record that is written between the first two requests is found by the third."""
    case = Case("a-0", reset=OffsetReset.by_duration(HOUR_MS))
    respond(case.ask(0.0), offsets({"a-0": -1}), 1.0)
    respond(case.ask(2.0), offsets({"a-0": 91}), 3.0)
    respond(case.ask(4.0), offsets({"a-0": (90, WALL_MS, 3)}), 5.0)
    assert 90 == getattr(case.position("a-0"), "offset", None)


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
