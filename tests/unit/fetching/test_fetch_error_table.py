"""Error codes in the response to a fetch have the same effect as in Java's consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer.errors import (
    BrokerError,
    CorruptRecordError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
)
from kconsumer.fetching.error_actions import ERROR_ACTIONS
from kconsumer.state.partition import FetchState
from kconsumer.testing.batches import build_batch
from kconsumer.types import OffsetReset, TopicPartition
from support.harnesses.error_codes import CODE, NEVER_HEARD_OF, codes_for, name_of
from support.harnesses.fetching import FetchHarness, offsets

# The table of Java's FetchCollector, in its order.
JAVA = {
    "NOT_LEADER_OR_FOLLOWER": "refresh",
    "REPLICA_NOT_AVAILABLE": "refresh",
    "KAFKA_STORAGE_ERROR": "refresh",
    "FENCED_LEADER_EPOCH": "refresh",
    "OFFSET_NOT_AVAILABLE": "refresh",
    "UNKNOWN_TOPIC_OR_PARTITION": "refresh",
    "UNKNOWN_TOPIC_ID": "refresh",
    "INCONSISTENT_TOPIC_ID": "refresh",
    "OFFSET_OUT_OF_RANGE": "reset",
    "TOPIC_AUTHORIZATION_FAILED": "raise",
    "UNKNOWN_LEADER_EPOCH": "retry",
    "UNKNOWN_SERVER_ERROR": "retry",
    "CORRUPT_MESSAGE": "raise",
}
RAISED = [code for code in codes_for(JAVA) if JAVA.get(name_of(code), "raise") == "raise"]


def coded(reaction: str) -> list[int]:
    """Return the codes with this reaction."""
    return [CODE[name] for name, wanted in JAVA.items() if wanted == reaction]


def error_from_follower(code: int) -> FetchHarness:
    """Return a harness in which broker 0 leads the only partition and prefers replica 1, which responds
    with an error.
    """
    harness = FetchHarness(brokers=2)
    harness.logs[harness.tps[0]].append(3)
    harness.respond(*harness.poll(), p0={"preferred_read_replica": 1, "records": None})
    (request,) = harness.poll()
    assert "1" == request.node
    harness.respond(request, p0={"error_code": code, "records": None})
    return harness


def assert_asked_after_backoff(harness: FetchHarness, node: str) -> None:
    """Check that nothing is raised, that nothing is sent before the backoff, and that `node` then receives the same
    request.
    """
    assert {} == harness.collect()
    result = harness.manager.poll(harness.now)
    assert ([], harness.config.retry_backoff_ms) == (result.requests, result.wait_ms)
    harness.now += harness.config.retry_backoff_ms
    (request,) = harness.poll()
    assert (node, {0: 0}) == (request.node, offsets(request))
    harness.respond(request)
    assert {harness.tps[0]: [0, 1, 2]} == harness.collect()


def test_the_table_is_whole() -> None:
    """The code has a row for every error of Java's table and no other."""
    assert {CODE[name] for name in JAVA} == set(ERROR_ACTIONS) - {0}


@pytest.mark.parametrize("code", coded("refresh"), ids=name_of)
def test_old_views_are_refreshed(code: int) -> None:
    """Metadata is requested, the preferred replica is cleared, and the leader is asked after the backoff."""
    harness = error_from_follower(code)
    assert 1 == harness.metadata_requests.count
    assert_asked_after_backoff(harness, "0")


@pytest.mark.parametrize("code", coded("retry"), ids=name_of)
def test_retriable_error_is_retried(code: int) -> None:
    """The same broker is asked again after the backoff, without new metadata."""
    harness = error_from_follower(code)
    assert 0 == harness.metadata_requests.count
    assert_asked_after_backoff(harness, "1")


@pytest.mark.parametrize("code", coded("reset"), ids=name_of)
def test_out_of_range_at_a_follower_asks_the_leader(code: int) -> None:
    """After OFFSET_OUT_OF_RANGE from a follower, which may lag, the leader is asked at once for the same position."""
    harness = error_from_follower(code)
    (request,) = harness.poll()
    assert ("0", {0: 0}, 0) == (request.node, offsets(request), harness.metadata_requests.count)
    harness.respond(request)
    assert {harness.tps[0]: [0, 1, 2]} == harness.collect()


def error_from_leader(code: int, policy: str = "earliest") -> tuple[FetchHarness, TopicPartition]:
    """Return a harness whose leader sends ten records and then an error."""
    harness = FetchHarness(auto_offset_reset=policy)
    harness.logs[harness.tps[0]].append(10)
    harness.fetch()
    harness.respond(*harness.poll(), p0={"error_code": code, "records": None})
    return harness, harness.tps[0]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("code", coded("reset"), ids=name_of)
def test_out_of_range_at_the_leader_resets(code: int, policy: str) -> None:
    """With a reset policy the position is reset once all earlier records have been returned."""
    harness, tp = error_from_leader(code, policy)
    assert {tp: list(range(10))} == harness.collect()
    assert {} == harness.collect()
    state = harness.assignment.get(tp)
    wanted = OffsetReset.EARLIEST if policy == "earliest" else OffsetReset.LATEST
    assert (FetchState.AWAIT_RESET, wanted, []) == (state.fetch_state, state.reset_strategy, harness.poll())


def raised(harness: FetchHarness) -> KafkaError:
    """Return the error that the next poll raises."""
    with pytest.raises(KafkaError) as caught:
        harness.collect()
    return caught.value


def seek(harness: FetchHarness, tp: TopicPartition) -> None:
    """Move to another position."""
    harness.seek(tp, 3)


def pause(harness: FetchHarness, tp: TopicPartition) -> None:
    """Pause the partition."""
    harness.assignment.pause(tp)


def unassign(harness: FetchHarness, tp: TopicPartition) -> None:
    """Unassign the partition."""
    harness.subscription.assign(set())


ACTS = [seek, pause, unassign]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("code", RAISED, ids=name_of)
def test_everything_else_is_raised(code: int, act: Callable[[FetchHarness, TopicPartition], None]) -> None:
    """Earlier records are returned first. Then every poll raises the error with partition and offset until the user
    acts; the position stays, and no metadata is requested.
    """
    harness, tp = error_from_leader(code)
    assert {tp: list(range(10))} == harness.collect()
    for _ in range(3):
        error = raised(harness)
        assert isinstance(error, TopicAuthorizationError if code == 29 else BrokerError)
        assert (code, tp, 10) == (error.code, error.topic_partition, error.offset)
        assert "t-0" in str(error)
        assert "10" in str(error)
    assert (10, 0) == (harness.positions.all_consumed()[tp].offset, harness.metadata_requests.count)
    act(harness, tp)
    assert {} == harness.collect()
    assert not harness.buffer.has_data()


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("code", coded("reset"), ids=name_of)
def test_out_of_range_without_a_policy_is_raised(
    code: int, act: Callable[[FetchHarness, TopicPartition], None]
) -> None:
    """The error is raised after earlier records, until the user acts, as other errors are."""
    harness, tp = error_from_leader(code, "none")
    assert {tp: list(range(10))} == harness.collect()
    for _ in range(3):
        error = raised(harness)
        assert isinstance(error, OffsetOutOfRangeError)
        assert ({tp: 10}, (tp,)) == (error.offsets, error.partitions)
        assert "offset 10 of t-0" in str(error)
    act(harness, tp)
    assert {} == harness.collect()
    assert not harness.buffer.has_data()


@pytest.mark.parametrize("code", [*coded("raise"), NEVER_HEARD_OF], ids=name_of)
def test_a_resumed_error_is_raised_again(code: int) -> None:
    """A pause does not clear the error: it is raised again after resume."""
    harness, tp = error_from_leader(code)
    harness.collect()
    raised(harness)
    harness.assignment.pause(tp)
    assert {} == harness.collect()
    harness.assignment.resume(tp)
    assert isinstance(raised(harness), BrokerError)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_corrupt_bytes_are_raised(act: Callable[[FetchHarness, TopicPartition], None]) -> None:
    """An error that the client finds in the bytes is raised in the same way: after earlier records, with partition and
    offset, until the user acts.
    """
    harness = FetchHarness()
    (tp,) = harness.tps
    harness.logs[tp].append(10)
    broken = bytearray(build_batch([b"10"], base_offset=10))
    broken[-1] ^= 1
    harness.logs[tp].add(bytes(broken), 11)
    harness.fetch()
    assert {tp: list(range(10))} == harness.collect()
    for _ in range(3):
        error = raised(harness)
        assert isinstance(error, CorruptRecordError)
        assert ("t", 0, 10) == (error.topic, error.partition, error.offset)
        assert "t-0" in str(error)
        assert "10" in str(error)
    act(harness, tp)
    assert {} == harness.collect()
    assert not harness.buffer.has_data()
