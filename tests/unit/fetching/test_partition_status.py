"""The result of `partition_states()`: each condition, when it began, and which one of several is shown."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.errors import BrokerConnectionError, CorruptRecordError, TopicAuthorizationError
from kconsumer.fetching.partition_status import STATUS_RULES
from kconsumer.testing.batches import build_batch
from kconsumer.types import OffsetReset
from kconsumer.types import PartitionCondition as Condition
from support.harnesses.fetching import FetchHarness


def world_with(records: int = 6, partitions: int = 1, **options: Any) -> FetchHarness:
    """Return a harness whose partitions have some batches of 2 records."""
    harness = FetchHarness(partitions, **options)
    for log in harness.logs.values():
        for _ in range(records // 2):
            log.append(2)
    return harness


def shown(harness: FetchHarness, partition: int = 0, **known: Any) -> tuple[Condition, float]:
    """Return condition and since (s) of a partition."""
    status = harness.status(harness.tps[partition], **known)
    return status.state, status.since


def reason(harness: FetchHarness, partition: int = 0, **known: Any) -> str:
    """Return the reason in a partition's state."""
    return harness.status(harness.tps[partition], **known).reason


def test_every_condition_has_its_row() -> None:
    """The table has each condition once, in the order in which the enum lists them."""
    assert list(Condition) == [row.condition for row in STATUS_RULES]


# --- a healthy partition ---------------------------------------------------------------------------------


def test_ready_then_in_flight_then_buffered() -> None:
    """A partition is ready, in flight and buffered in turn, and each condition begins when the one before ended."""
    harness = world_with()
    harness.wait(2000)
    assert (Condition.READY, 2.0) == shown(harness)
    assert "next poll() sends a fetch to b0:9092 (id 0)" in reason(harness)
    (request,) = harness.poll()
    harness.wait(300)
    assert (Condition.IN_FLIGHT, 0.3) == shown(harness)
    assert "a fetch is in flight to b0:9092 (id 0)" == reason(harness)
    harness.respond(request)
    harness.wait(100)
    assert (Condition.BUFFERED, 0.1) == shown(harness)
    assert "wait for poll(); the next fetch follows them" in reason(harness)
    (request,) = harness.poll()
    harness.wait(100)
    assert (Condition.BUFFERED, 0.2) == shown(harness)
    assert "the next fetch is in flight" in reason(harness)
    harness.collect()
    assert (Condition.IN_FLIGHT, 0.1) == shown(harness)
    harness.respond(request)
    harness.wait(50)
    assert (Condition.READY, 0.05) == shown(harness)


def test_numbers() -> None:
    """The state has position, end offset, lag and buffered bytes."""
    harness = world_with(6)
    harness.fetch()
    harness.collect(2)
    status = harness.status(harness.tps[0])
    assert (2, 6, 4) == (status.position, status.high_watermark, status.lag)
    assert harness.buffer.buffered_bytes(harness.tps[0]) == status.buffered_bytes > 0


def test_buffered_continues_from_fetch_to_fetch() -> None:
    """The condition begins when a first record is buffered, and continues while records are read and more arrive."""
    harness = FetchHarness(max_partition_fetch_bytes=1)
    for _ in range(6):
        harness.logs[harness.tps[0]].append(2)
    harness.fetch()
    for _ in range(4):
        harness.wait(1000)
        harness.fetch()
        harness.collect(2)
    assert (Condition.BUFFERED, 4.0) == shown(harness)


def test_broker_that_does_not_respond() -> None:
    """A fetch that is much older than fetch_max_wait_ms is still in flight, and the reason has its age."""
    harness = world_with(fetch_max_wait_ms=500)
    harness.poll()
    harness.wait(12_300)
    assert (Condition.IN_FLIGHT, 12.3) == shown(harness)
    assert "without a response for 12.3 s although it may wait there for 0.5 s:" in reason(harness)


# --- held back by itself ---------------------------------------------------------------------------------


def test_without_a_position() -> None:
    """A partition that waits for its commit, a reset or a validation is shown with the cause, since that
    state began.
    """
    harness = FetchHarness(assign=False)
    harness.subscription.assign(set(harness.tps))
    harness.wait(1000)
    assert (Condition.INITIALIZING, 1.0) == shown(harness)
    assert "committed offset; COORDINATOR_NOT_AVAILABLE" in reason(harness, coordinator="COORDINATOR_NOT_AVAILABLE")
    harness.positions.request_reset(harness.tps[0], OffsetReset.EARLIEST)
    harness.positions.set_next_retry(harness.tps, 0, "NOT_LEADER_OR_FOLLOWER")
    harness.wait(500)
    assert (Condition.AWAIT_RESET, 0.5) == shown(harness)
    assert "looking up the earliest offset; NOT_LEADER_OR_FOLLOWER" == reason(harness)
    harness.assignment.get(harness.tps[0]).pause()
    assert "; refused; paused" in reason(harness, unreachable="refused")
    harness.seek(harness.tps[0], 0)
    assert Condition.PAUSED is shown(harness)[0]


def test_reset_without_a_leader() -> None:
    """The reason mentions that no broker can be reached; what metadata reports about the topic takes precedence."""
    harness = FetchHarness()
    harness.positions.request_reset(harness.tps[0])
    harness.leaders[0] = -1
    harness.update_metadata()
    assert "looking up the earliest offset; no leader is known" == reason(harness)
    missing = "topic t does not exist"
    assert f"looking up the earliest offset; {missing}" == reason(harness, topic_problem=missing)


def test_awaiting_validation() -> None:
    """After a change of the leader the condition is shown until the position is validated."""
    harness = world_with(6, brokers=2, max_partition_fetch_bytes=1)
    harness.fetch()
    harness.collect(2)
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    harness.wait(700)
    assert (Condition.AWAIT_VALIDATION, 0.7) == shown(harness)
    harness.validate()
    assert Condition.READY is shown(harness)[0]


def test_flags() -> None:
    """Of paused, awaiting the callback and being revoked the strongest is shown, since the last change of the flags."""
    harness = world_with()
    state = harness.assignment.get(harness.tps[0])
    harness.fetch()
    state.pause()
    harness.wait(250)
    assert (Condition.PAUSED, 0.25) == shown(harness)
    assert "bytes of it stay buffered" in reason(harness)
    state.flag(awaiting_callback=True)
    assert (Condition.AWAIT_CALLBACK, 0.0) == shown(harness)
    assert "on_assign" in reason(harness)
    state.flag(pending_revocation=True)
    harness.wait(100)
    assert (Condition.REVOKING, 0.1) == shown(harness)
    state.flag(pending_revocation=False, unsubscribed=True)
    assert (Condition.REVOKING, 0.0) == shown(harness)
    assert "the subscription does not contain t any more" in reason(harness)
    state.flag(paused=False, awaiting_callback=False, unsubscribed=False)
    harness.wait(100)
    assert Condition.BUFFERED is shown(harness)[0]


# --- errors ----------------------------------------------------------------------------------------------


def test_error_that_waits_for_the_user() -> None:
    """An error of a record that cannot be read is shown from when it was found until a seek past the record."""
    harness = FetchHarness()
    harness.logs[harness.tps[0]].append(2)
    broken = bytearray(build_batch([b"x"], base_offset=2, leader_epoch=0))
    broken[-1] ^= 1
    harness.logs[harness.tps[0]].add(bytes(broken), 3)
    harness.fetch()
    harness.collect(2)
    assert Condition.BUFFERED is shown(harness)[0]
    harness.wait(1)
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            harness.collector.collect(1)
        harness.wait(2000)
    assert (Condition.FAILED, 4.0) == shown(harness)
    assert "corrupt record data in t-0 at offset 2" in reason(harness)
    harness.seek(harness.tps[0], 3)
    assert Condition.READY is shown(harness)[0]


def test_error_of_the_broker_that_waits_for_the_user() -> None:
    """A missing permission is shown since the first refusal, although fetches are repeated."""
    harness = world_with()
    refused = {"p0": {"error_code": 29, "records": None}}
    harness.respond(*harness.poll(), **refused)
    with pytest.raises(TopicAuthorizationError):
        harness.collector.collect(1)
    harness.wait(5000)
    harness.respond(*harness.poll(), **refused)
    assert (Condition.FAILED, 5.0) == shown(harness)
    assert "TOPIC_AUTHORIZATION_FAILED" in reason(harness)
    harness.wait(5000)
    harness.fetch()
    assert Condition.BUFFERED is shown(harness)[0]


def test_partition_in_backoff() -> None:
    """A retriable error is shown with the time of the next fetch."""
    harness = world_with(retry_backoff_ms=400)
    harness.respond(*harness.poll(), p0={"error_code": 75, "records": None})
    harness.poll()
    harness.wait(100)
    assert (Condition.BACKOFF, 0.1) == shown(harness)
    assert "UNKNOWN_LEADER_EPOCH" in reason(harness)
    assert reason(harness).endswith("; retrying in 0.3 s")


def test_broker_in_backoff() -> None:
    """The last error of a broker is shown since its first consecutive failure, until a response."""
    harness = world_with(retry_backoff_ms=400)
    for number, backoff_ms in ((1, 400), (2, 800)):
        (request,) = harness.poll()
        harness.reply(request, error=BrokerConnectionError(f"broken {number}"))
        harness.wait(backoff_ms - 100)
        assert Condition.BACKOFF is shown(harness)[0]
        harness.wait(200)
    assert (Condition.READY, 0.9) == shown(harness), "the backoff is over"
    (request,) = harness.poll()
    harness.reply(request, error=BrokerConnectionError("broken 3"))
    harness.wait(100)
    assert (Condition.BACKOFF, 1.5) == shown(harness)
    assert "b0:9092 (id 0) is backed off after an error: broken 3; retrying in 0.9 s" == reason(harness)
    harness.wait(900)
    harness.fetch()
    harness.collect()
    (request,) = harness.poll()
    harness.reply(request, error=BrokerConnectionError("broken 4"))
    harness.wait(200)
    assert (Condition.BACKOFF, 0.2) == shown(harness)


def test_broker_that_cannot_be_reached() -> None:
    """A fetch that waits for its connection is not shown as in flight."""
    harness = world_with()
    harness.poll()
    harness.wait(200)
    assert (Condition.BACKOFF, 0.2) == shown(harness, unreachable="Connection refused")
    assert "connecting to b0:9092 (id 0): Connection refused" == reason(harness, unreachable="Connection refused")


def test_no_leader() -> None:
    """A partition without a leader is shown since metadata first reported it."""
    harness = world_with(brokers=2)
    harness.fetch()
    harness.collect()
    (request,) = harness.poll()
    harness.leaders[0] = -1
    harness.update_metadata()
    assert Condition.IN_FLIGHT is shown(harness)[0], "the old leader may still respond"
    harness.reply(request, error=BrokerConnectionError("gone"))
    for _ in range(3):
        harness.poll()
        harness.update_metadata()
        harness.wait(20)
    assert (Condition.NO_LEADER, 0.06) == shown(harness)
    assert "no leader is known; new metadata has been requested; gone" == reason(harness)
    assert "topic t does not exist; gone" == reason(harness, topic_problem="topic t does not exist")
    harness.leaders[0] = 1
    harness.update_metadata()
    harness.validate()
    harness.poll()
    assert Condition.IN_FLIGHT is shown(harness)[0]


# --- held back by others ---------------------------------------------------------------------------------


def test_buffer_full() -> None:
    """If memory is the reason, the state has what uses it, and since when there was no room."""
    harness = FetchHarness(2, brokers=2, buffer_memory=4000, max_partition_fetch_bytes=1000)
    log = harness.logs[harness.tps[0]]
    for _ in range(4):
        log.add(build_batch([bytes(1500)], base_offset=log.end, leader_epoch=0), log.end + 1)
    harness.fetch()
    harness.fetch()
    for _ in range(4):
        harness.wait(250)
        assert [] == harness.poll()
    assert (Condition.BUFFER_FULL, 1.0) == shown(harness, 1)
    assert "buffer full: buffer_memory has no room for a fetch (3,1" in reason(harness, 1)
    assert " of 4,000); poll() makes room" in reason(harness, 1)
    assert (Condition.BUFFERED, 1.0) == shown(harness, 0)
    for _ in range(4):
        harness.collector.collect(1)
        harness.fetch()
    assert Condition.BUFFER_FULL is not shown(harness, 1)[0]


def test_buffered_with_no_room_for_more() -> None:
    """For a partition with buffered records the state has the reason why no more are fetched."""
    harness = FetchHarness(2, buffer_memory=4000, max_partition_fetch_bytes=1000)
    for log in harness.logs.values():
        for _ in range(4):
            log.add(build_batch([bytes(1200)], base_offset=log.end, leader_epoch=0), log.end + 1)
    while harness.fetch():
        pass
    assert Condition.BUFFERED is shown(harness)[0]
    assert "buffer_memory has no room for the next fetch" in reason(harness)


def test_broker_blocked_by_another_partition() -> None:
    """A partition that waits because another partition of its broker is far ahead is shown with that partition."""
    harness = FetchHarness(2, max_partition_fetch_bytes=1)
    one, _ = harness.tps
    for _ in range(4):
        harness.logs[one].append(1)
    harness.fetch()
    harness.fetch()
    harness.wait(300)
    harness.poll()
    assert (Condition.BROKER_BLOCKED, 0.3) == shown(harness, 1)
    assert "nothing is fetched from b0:9092 (id 0) until poll() has taken more of t-0" in reason(harness, 1)
    assert "more is fetched when some of them have been taken" in reason(harness, 0)
    harness.collect(1)
    harness.poll()
    assert Condition.IN_FLIGHT is shown(harness, 1)[0]
