"""`list_offsets`, the lookup behind beginning_offsets, end_offsets, offsets_for_times and current_lag."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import FOREVER
from kconsumer.errors import (
    AuthenticationError,
    InvalidTopicError,
    KafkaError,
    StaleMetadataError,
    TimeoutError,
    TopicAuthorizationError,
)
from kconsumer.types import OffsetAndTimestamp
from support.harnesses.manager_driver import fail, led_by, metadata, respond, topic, tps
from support.harnesses.offsets_case import OffsetsCase, offsets, rows

A0, A1, X0, X1 = tps("a-0", "a-1", "x-0", "x-1")


def fetching(*names: str, **options: Any) -> OffsetsCase:
    """Returns a case whose partitions have positions, after the first metadata update."""
    case = OffsetsCase(*names, **options)
    case.settle_metadata()
    for partition in case.assignment.assigned():
        case.positions.seek(partition, 10, leader=case.cluster.leader(partition))
    assert FOREVER == case.waits(0.0)
    return case


def test_no_partitions_completes_at_once() -> None:
    """A lookup of no partitions is complete at once."""
    assert {} == fetching("a-0").manager.list_offsets({}).result()


def test_final_errors_fail_the_lookup() -> None:
    """A failed authentication fails the lookup, and a late response of another leader is ignored."""
    case = fetching("a-0", "a-1", leaders={"a-0": 1, "a-1": 2})
    promise = case.manager.list_offsets({A0: -1, A1: -1})
    first, second = case.asks(0.0)
    fail(first, AuthenticationError(code=58), 1.0)
    respond(second, offsets({"a-1": 8}), 2.0)
    assert isinstance(promise.error, AuthenticationError)


# --- topics that are not subscribed ----------------------------------------------------------------------


def test_known_leaders_do_not_wait_for_others() -> None:
    """A partition without a known leader does not delay the others."""
    case = fetching("a-0")
    promise = case.manager.list_offsets({A0: -1, X0: -1})
    first = case.ask(0.0)
    assert {"a-0": (-1, 3)} == rows(first)
    respond(first, offsets({"a-0": 4}), 1.0)
    respond(case.metadata.poll(1.0).requests[0], led_by({"x-0": 3}, 3), 2.0)
    respond(case.ask(2.0), offsets({"x-0": 5}), 3.0)
    assert {A0: OffsetAndTimestamp(4, -1), X0: OffsetAndTimestamp(5, -1)} == promise.result()


@pytest.mark.parametrize(("code", "error"), [(29, TopicAuthorizationError), (17, InvalidTopicError)])
def test_metadata_errors_fail_the_lookup(code: int, error: type[KafkaError]) -> None:
    """A metadata error of a topic fails the lookup, and is not raised again by the next poll."""
    case = fetching("a-0")
    promise = case.manager.list_offsets({X0: -1})
    case.waits(0.0)
    respond(case.metadata.poll(1.0).requests[0], metadata(topic("x", error=code)), 1.0)
    case.waits(2.0)
    with pytest.raises(error, match="x"):
        promise.result()
    assert case.metadata.take_error() is None


def test_the_deadline_ends_the_lookup() -> None:
    """At the deadline the lookup fails with a TimeoutError that has the missing partitions and the reason."""
    case = fetching("a-0")
    promise = case.manager.list_offsets({A0: -1, X0: -1, X1: -1}, deadline=500.0)
    respond(case.ask(0.0), offsets({"a-0": 4}), 1.0)
    respond(case.metadata.poll(1.0).requests[0], metadata(topic("x", error=3)), 1.0)
    assert 498.0 == case.waits(2.0)
    assert not promise.done
    case.waits(500.0)
    with pytest.raises(TimeoutError, match="x-0, x-1") as caught:
        promise.result()
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(caught.value.__cause__)


# --- lag -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [False, True])
def test_end_offsets_update_the_lag(committed: bool) -> None:
    """The end offset of an assigned partition is stored as high watermark or last stable offset."""
    case = fetching("a-0", isolation_level="read_committed" if committed else "read_uncommitted")
    case.manager.list_offsets({A0: -1})
    respond(case.ask(0.0), offsets({"a-0": 25}), 1.0)
    assert 15 == case.assignment.get(A0).lag(committed)
    assert case.assignment.get(A0).lag(not committed) is None


def test_an_end_offset_is_requested_once_at_a_time() -> None:
    """`current_lag` sends no second request while one is in flight."""
    case = fetching("a-0")
    case.manager.request_end_offset(A0)
    case.manager.request_end_offset(A0)
    respond(case.ask(0.0), offsets({"a-0": 25}), 1.0)
    assert (15, FOREVER) == (case.assignment.get(A0).lag(), case.waits(1.0))
    case.manager.request_end_offset(A0)
    case.ask(2.0)


def test_a_failed_end_offset_can_be_requested_again() -> None:
    """After a failure or a timeout the end is requested again (KAFKA-20187)."""
    case = fetching("a-0")
    case.manager.request_end_offset(A0)
    fail(case.ask(0.0), AuthenticationError(code=58), 1.0)
    case.manager.request_end_offset(A0)
    assert {"a-0": (-1, 3)} == rows(case.ask(2.0))
    assert 60_000.0 - 10.0 == case.waits(10.0)
    case.waits(60_002.0)
    case.manager.request_end_offset(A0)
    assert {"a-0": (-1, 3)} == rows(case.ask(60_003.0))


def test_a_partition_that_does_not_exist_fails_the_lookup() -> None:
    """If a topic lacks the partition, the lookup fails once metadata requested after it lacks it too."""
    case = fetching("a-0", "a-1")
    promise = case.manager.list_offsets(dict.fromkeys(tps("a-7"), -1))
    assert 0.0 == case.waits(1.0)
    assert FOREVER == case.waits(2.0)
    respond(case.metadata.poll(100.0).requests[0], led_by({"a-0": 1, "a-1": 1}), 101.0)
    case.waits(102.0)
    with pytest.raises(TimeoutError, match=r"topic a has 2 partitions \(0 to 1\), there is no a-7") as raised:
        promise.result()
    assert isinstance(raised.value.__cause__, StaleMetadataError)


def test_a_partition_that_was_added_meanwhile_is_found() -> None:
    """Metadata from before a partition was added does not fail the lookup."""
    case = fetching("a-0")
    promise = case.manager.list_offsets({A1: -1})
    case.waits(1.0)
    respond(case.metadata.poll(100.0).requests[0], led_by({"a-0": 1, "a-1": 2}, 3), 101.0)
    respond(case.ask(102.0), offsets({"a-1": 5}), 103.0)
    assert {A1: OffsetAndTimestamp(5, -1)} == promise.result()
