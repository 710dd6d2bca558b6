"""Every error code that Kafka has, as the answer to a fetch: what the consumer does is what Java's does."""

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
from support.harnesses.error_codes import ALL, CODE, NEVER_HEARD_OF, name_of
from support.harnesses.fetching import World, offsets

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
RAISED = [code for code in ALL if JAVA.get(name_of(code), "raise") == "raise"]


def coded(reaction: str) -> list[int]:
    """The codes with this reaction."""
    return [CODE[name] for name, wanted in JAVA.items() if wanted == reaction]


def answered_by_follower(code: int) -> World:
    """Broker 0 leads the only partition and prefers broker 1 for us, which answers with an error."""
    world = World(brokers=2)
    world.logs[world.tps[0]].append(3)
    world.answer(*world.poll(), p0={"preferred_read_replica": 1, "records": None})
    (request,) = world.poll()
    assert "1" == request.node
    world.answer(request, p0={"error_code": code, "records": None})
    return world


def assert_asked_after_backoff(world: World, node: str) -> None:
    """Nothing is raised, nothing is sent before the backoff, and then `node` is asked for what was asked before."""
    assert {} == world.collect()
    result = world.manager.poll(world.now)
    assert ([], world.config.retry_backoff_ms) == (result.requests, result.wait_ms)
    world.now += world.config.retry_backoff_ms
    (request,) = world.poll()
    assert (node, {0: 0}) == (request.node, offsets(request))
    world.answer(request)
    assert {world.tps[0]: [0, 1, 2]} == world.collect()


def test_the_table_is_whole() -> None:
    """The code has a row for every error of Java's table and no other."""
    assert {CODE[name] for name in JAVA} == set(ERROR_ACTIONS) - {0}


@pytest.mark.parametrize("code", coded("refresh"), ids=name_of)
def test_old_views_are_refreshed(code: int) -> None:
    """Metadata is asked for, the preferred replica forgotten, and the leader asked after the backoff."""
    world = answered_by_follower(code)
    assert 1 == world.metadata_requests.count
    assert_asked_after_backoff(world, "0")


@pytest.mark.parametrize("code", coded("retry"), ids=name_of)
def test_passing_trouble_is_retried(code: int) -> None:
    """The same broker is asked again after the backoff, without new metadata."""
    world = answered_by_follower(code)
    assert 0 == world.metadata_requests.count
    assert_asked_after_backoff(world, "1")


@pytest.mark.parametrize("code", coded("reset"), ids=name_of)
def test_out_of_range_at_a_follower_asks_the_leader(code: int) -> None:
    """A follower may lag behind: the leader is asked at once, from the same position."""
    world = answered_by_follower(code)
    (request,) = world.poll()
    assert ("0", {0: 0}, 0) == (request.node, offsets(request), world.metadata_requests.count)
    world.answer(request)
    assert {world.tps[0]: [0, 1, 2]} == world.collect()


def answered_by_leader(code: int, policy: str = "earliest") -> tuple[World, TopicPartition]:
    """Ten records and then, instead of what follows them, an error."""
    world = World(auto_offset_reset=policy)
    world.logs[world.tps[0]].append(10)
    world.fetch()
    world.answer(*world.poll(), p0={"error_code": code, "records": None})
    return world, world.tps[0]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("code", coded("reset"), ids=name_of)
def test_out_of_range_at_the_leader_resets(code: int, policy: str) -> None:
    """With a policy the position is looked up by it, once all records before it have been returned."""
    world, tp = answered_by_leader(code, policy)
    assert {tp: list(range(10))} == world.collect()
    assert {} == world.collect()
    state = world.subscription.get(tp)
    wanted = OffsetReset.EARLIEST if policy == "earliest" else OffsetReset.LATEST
    assert (FetchState.AWAIT_RESET, wanted, []) == (state.fetch_state, state.reset_strategy, world.poll())


def raised(world: World) -> KafkaError:
    """What the next poll raises."""
    with pytest.raises(KafkaError) as caught:
        world.collect()
    return caught.value


def seek(world: World, tp: TopicPartition) -> None:
    """Go on elsewhere."""
    world.seek(tp, 3)


def pause(world: World, tp: TopicPartition) -> None:
    """Leave the partition alone."""
    world.subscription.pause(tp)


def unassign(world: World, tp: TopicPartition) -> None:
    """Give the partition up."""
    world.subscription.assign(set())


ACTS = [seek, pause, unassign]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("code", RAISED, ids=name_of)
def test_everything_else_is_raised(code: int, act: Callable[[World, TopicPartition], None]) -> None:
    """Records before the error are returned first. Then every poll raises it, with partition and offset, until the
    user acts; the position stays, and metadata is not asked for."""
    world, tp = answered_by_leader(code)
    assert {tp: list(range(10))} == world.collect()
    for _ in range(3):
        error = raised(world)
        assert isinstance(error, TopicAuthorizationError if code == 29 else BrokerError)
        assert (code, tp, 10) == (error.code, error.topic_partition, error.offset)
        assert "t-0" in str(error)
        assert "10" in str(error)
    assert (10, 0) == (world.subscription.all_consumed()[tp].offset, world.metadata_requests.count)
    act(world, tp)
    assert {} == world.collect()
    assert not world.buffer.has_data()


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("code", coded("reset"), ids=name_of)
def test_out_of_range_without_a_policy_is_raised(code: int, act: Callable[[World, TopicPartition], None]) -> None:
    """It comes after the records before it and stays until the user acts, as other errors do."""
    world, tp = answered_by_leader(code, "none")
    assert {tp: list(range(10))} == world.collect()
    for _ in range(3):
        error = raised(world)
        assert isinstance(error, OffsetOutOfRangeError)
        assert ({tp: 10}, (tp,)) == (error.offsets, error.partitions)
        assert "offset 10 of t-0" in str(error)
    act(world, tp)
    assert {} == world.collect()
    assert not world.buffer.has_data()


@pytest.mark.parametrize("code", [*coded("raise"), NEVER_HEARD_OF], ids=name_of)
def test_a_resumed_error_is_raised_again(code: int) -> None:
    """Pausing does not mend anything: after resume the error is still there."""
    world, tp = answered_by_leader(code)
    world.collect()
    raised(world)
    world.subscription.pause(tp)
    assert {} == world.collect()
    world.subscription.resume(tp)
    assert isinstance(raised(world), BrokerError)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_corrupt_bytes_are_raised(act: Callable[[World, TopicPartition], None]) -> None:
    """What the client finds in the bytes itself is raised in the same way: after the records before it, with partition
    and offset, until the user acts."""
    world = World()
    (tp,) = world.tps
    world.logs[tp].append(10)
    broken = bytearray(build_batch([b"10"], base_offset=10))
    broken[-1] ^= 1
    world.logs[tp].add(bytes(broken), 11)
    world.fetch()
    assert {tp: list(range(10))} == world.collect()
    for _ in range(3):
        error = raised(world)
        assert isinstance(error, CorruptRecordError)
        assert ("t", 0, 10) == (error.topic, error.partition, error.offset)
        assert "t-0" in str(error)
        assert "10" in str(error)
    act(world, tp)
    assert {} == world.collect()
    assert not world.buffer.has_data()
