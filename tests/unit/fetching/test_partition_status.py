"""What `partition_states()` says of a partition: each condition, when it began, and which one is told of several."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.errors import BrokerConnectionError, CorruptRecordError, TopicAuthorizationError
from kconsumer.fetching.partition_status import STATUS_RULES
from kconsumer.testing.batches import build_batch
from kconsumer.types import OffsetReset
from kconsumer.types import PartitionCondition as Condition
from support.harnesses.fetching import World


def world_with(records: int = 6, partitions: int = 1, **options: Any) -> World:
    """A world whose partitions have some batches of 2 records."""
    world = World(partitions, **options)
    for log in world.logs.values():
        for _ in range(records // 2):
            log.append(2)
    return world


def told(world: World, partition: int = 0, **known: Any) -> tuple[Condition, float]:
    """Condition and since (s) of a partition."""
    status = world.status(world.tps[partition], **known)
    return status.state, status.since


def reason(world: World, partition: int = 0, **known: Any) -> str:
    """What is said of a partition."""
    return world.status(world.tps[partition], **known).reason


def test_every_condition_has_its_row() -> None:
    """The table has each condition once, in the order in which the enum lists them."""
    assert list(Condition) == [row.condition for row in STATUS_RULES]


# --- a healthy partition ---------------------------------------------------------------------------------


def test_ready_then_in_flight_then_buffered() -> None:
    """The way of a fetch: each condition begins when the step before it ended."""
    world = world_with()
    world.wait(2000)
    assert (Condition.READY, 2.0) == told(world)
    assert "next poll() sends a fetch to b0:9092 (id 0)" in reason(world)
    (request,) = world.poll()
    world.wait(300)
    assert (Condition.IN_FLIGHT, 0.3) == told(world)
    assert "a fetch is in flight to b0:9092 (id 0)" == reason(world)
    world.answer(request)
    world.wait(100)
    assert (Condition.BUFFERED, 0.1) == told(world)
    assert "wait for poll(); the next fetch follows them" in reason(world)
    (request,) = world.poll()
    world.wait(100)
    assert (Condition.BUFFERED, 0.2) == told(world)
    assert "the next fetch is in flight" in reason(world)
    world.collect()
    assert (Condition.IN_FLIGHT, 0.1) == told(world)
    world.answer(request)
    world.wait(50)
    assert (Condition.READY, 0.05) == told(world)


def test_numbers() -> None:
    """Position, end, lag and buffered bytes."""
    world = world_with(6)
    world.fetch()
    world.collect(2)
    status = world.status(world.tps[0])
    assert (2, 6, 4) == (status.position, status.high_watermark, status.lag)
    assert world.buffer.buffered_bytes(world.tps[0]) == status.buffered_bytes > 0


def test_buffered_goes_on_from_fetch_to_fetch() -> None:
    """It began when something first waited, however often that was read and more came."""
    world = World(max_partition_fetch_bytes=1)
    for _ in range(6):
        world.logs[world.tps[0]].append(2)
    world.fetch()
    for _ in range(4):
        world.wait(1000)
        world.fetch()
        world.collect(2)
    assert (Condition.BUFFERED, 4.0) == told(world)


def test_broker_that_does_not_answer() -> None:
    """A fetch much older than it may wait at the broker is in flight still, and that is said with its age."""
    world = world_with(fetch_max_wait_ms=500)
    world.poll()
    world.wait(12_300)
    assert (Condition.IN_FLIGHT, 12.3) == told(world)
    assert "without a response for 12.3 s although it may wait there for 0.5 s:" in reason(world)


# --- held back by itself ---------------------------------------------------------------------------------


def test_without_a_position() -> None:
    """Waiting for the commit, for a reset, for validation: since the state began, with what is known of the cause."""
    world = World(assign=False)
    world.subscription.assign(set(world.tps))
    world.wait(1000)
    assert (Condition.INITIALIZING, 1.0) == told(world)
    assert "committed offset; COORDINATOR_NOT_AVAILABLE" in reason(world, coordinator="COORDINATOR_NOT_AVAILABLE")
    world.subscription.request_reset(world.tps[0], OffsetReset.EARLIEST)
    world.subscription.set_next_retry(world.tps, 0, "NOT_LEADER_OR_FOLLOWER")
    world.wait(500)
    assert (Condition.AWAIT_RESET, 0.5) == told(world)
    assert "looking up the earliest offset; NOT_LEADER_OR_FOLLOWER" == reason(world)
    world.subscription.get(world.tps[0]).pause()
    assert "; refused; paused" in reason(world, unreachable="refused")
    world.seek(world.tps[0], 0)
    assert Condition.PAUSED is told(world)[0]


def test_reset_without_a_leader() -> None:
    """That nobody can be asked is part of the reason; what metadata says of the topic comes before it."""
    world = World()
    world.subscription.request_reset(world.tps[0])
    world.leaders[0] = -1
    world.update_metadata()
    assert "looking up the earliest offset; no leader is known" == reason(world)
    missing = "topic t does not exist"
    assert f"looking up the earliest offset; {missing}" == reason(world, topic_problem=missing)


def test_awaiting_validation() -> None:
    """After a change of leader, until the position is checked."""
    world = world_with(6, brokers=2, max_partition_fetch_bytes=1)
    world.fetch()
    world.collect(2)
    world.leaders[0], world.epochs[0] = 1, 1
    world.update_metadata()
    world.wait(700)
    assert (Condition.AWAIT_VALIDATION, 0.7) == told(world)
    world.validate()
    assert Condition.READY is told(world)[0]


def test_flags() -> None:
    """Paused, awaiting the callback, being revoked: the stronger is told, since the flags last changed."""
    world = world_with()
    state = world.subscription.get(world.tps[0])
    world.fetch()
    state.pause()
    world.wait(250)
    assert (Condition.PAUSED, 0.25) == told(world)
    assert "bytes of it stay buffered" in reason(world)
    state.flag(awaiting_callback=True)
    assert (Condition.AWAIT_CALLBACK, 0.0) == told(world)
    assert "on_assign" in reason(world)
    state.flag(pending_revocation=True)
    world.wait(100)
    assert (Condition.REVOKING, 0.1) == told(world)
    state.flag(pending_revocation=False, unsubscribed=True)
    assert (Condition.REVOKING, 0.0) == told(world)
    assert "the subscription does not contain t any more" in reason(world)
    state.flag(paused=False, awaiting_callback=False, unsubscribed=False)
    world.wait(100)
    assert Condition.BUFFERED is told(world)[0]


# --- errors ----------------------------------------------------------------------------------------------


def test_error_that_waits_for_the_user() -> None:
    """A record that cannot be read is told since it was met, and until it is sought past."""
    world = World()
    world.logs[world.tps[0]].append(2)
    broken = bytearray(build_batch([b"x"], base_offset=2, leader_epoch=0))
    broken[-1] ^= 1
    world.logs[world.tps[0]].add(bytes(broken), 3)
    world.fetch()
    world.collect(2)
    assert Condition.BUFFERED is told(world)[0]
    world.wait(1)
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            world.collector.collect(1)
        world.wait(2000)
    assert (Condition.FAILED, 4.0) == told(world)
    assert "corrupt record data in t-0 at offset 2" in reason(world)
    world.seek(world.tps[0], 3)
    assert Condition.READY is told(world)[0]


def test_error_of_the_broker_that_waits_for_the_user() -> None:
    """A refused permission is told since it was first refused, though the broker is asked again and again."""
    world = world_with()
    refused = {"p0": {"error_code": 29, "records": None}}
    world.answer(*world.poll(), **refused)
    with pytest.raises(TopicAuthorizationError):
        world.collector.collect(1)
    world.wait(5000)
    world.answer(*world.poll(), **refused)
    assert (Condition.FAILED, 5.0) == told(world)
    assert "TOPIC_AUTHORIZATION_FAILED" in reason(world)
    world.wait(5000)
    world.fetch()
    assert Condition.BUFFERED is told(world)[0]


def test_partition_in_backoff() -> None:
    """An error that goes away by itself: what it was, and when the partition is asked again."""
    world = world_with(retry_backoff_ms=400)
    world.answer(*world.poll(), p0={"error_code": 75, "records": None})
    world.poll()
    world.wait(100)
    assert (Condition.BACKOFF, 0.1) == told(world)
    assert "UNKNOWN_LEADER_EPOCH" in reason(world)
    assert reason(world).endswith("; retrying in 0.3 s")


def test_broker_in_backoff() -> None:
    """A broker whose fetches fail: the last error, since the first one in a row; an answer ends it."""
    world = world_with(retry_backoff_ms=400)
    for number, backoff_ms in ((1, 400), (2, 800)):
        (request,) = world.poll()
        world.reply(request, error=BrokerConnectionError(f"broken {number}"))
        world.wait(backoff_ms - 100)
        assert Condition.BACKOFF is told(world)[0]
        world.wait(200)
    assert (Condition.READY, 0.9) == told(world), "the backoff is over"
    (request,) = world.poll()
    world.reply(request, error=BrokerConnectionError("broken 3"))
    world.wait(100)
    assert (Condition.BACKOFF, 1.5) == told(world)
    assert "b0:9092 (id 0) is backed off after an error: broken 3; retrying in 0.9 s" == reason(world)
    world.wait(900)
    world.fetch()
    world.collect()
    (request,) = world.poll()
    world.reply(request, error=BrokerConnectionError("broken 4"))
    world.wait(200)
    assert (Condition.BACKOFF, 0.2) == told(world)


def test_broker_that_cannot_be_reached() -> None:
    """A fetch that waits for its connection is not in flight."""
    world = world_with()
    world.poll()
    world.wait(200)
    assert (Condition.BACKOFF, 0.2) == told(world, unreachable="Connection refused")
    assert "connecting to b0:9092 (id 0): Connection refused" == reason(world, unreachable="Connection refused")


def test_no_leader() -> None:
    """A partition without a leader by metadata, since metadata first said so."""
    world = world_with(brokers=2)
    world.fetch()
    world.collect()
    (request,) = world.poll()
    world.leaders[0] = -1
    world.update_metadata()
    assert Condition.IN_FLIGHT is told(world)[0], "the old leader may answer yet"
    world.reply(request, error=BrokerConnectionError("gone"))
    for _ in range(3):
        world.poll()
        world.update_metadata()
        world.wait(20)
    assert (Condition.NO_LEADER, 0.06) == told(world)
    assert "no leader is known; new metadata has been requested; gone" == reason(world)
    assert "topic t does not exist; gone" == reason(world, topic_problem="topic t does not exist")
    world.leaders[0] = 1
    world.update_metadata()
    world.validate()
    world.poll()
    assert Condition.IN_FLIGHT is told(world)[0]


# --- others in the way -----------------------------------------------------------------------------------


def test_buffer_full() -> None:
    """Where memory is the reason, that is said, with what takes it, since there was no room."""
    world = World(2, brokers=2, buffer_memory=4000, max_partition_fetch_bytes=1000)
    log = world.logs[world.tps[0]]
    for _ in range(4):
        log.add(build_batch([bytes(1500)], base_offset=log.end, leader_epoch=0), log.end + 1)
    world.fetch()
    world.fetch()
    for _ in range(4):
        world.wait(250)
        assert [] == world.poll()
    assert (Condition.BUFFER_FULL, 1.0) == told(world, 1)
    assert "buffer full: buffer_memory has no room for a fetch (3,1" in reason(world, 1)
    assert " of 4,000); poll() makes room" in reason(world, 1)
    assert (Condition.BUFFERED, 1.0) == told(world, 0)
    for _ in range(4):
        world.collector.collect(1)
        world.fetch()
    assert Condition.BUFFER_FULL is not told(world, 1)[0]


def test_buffered_with_no_room_for_more() -> None:
    """A partition that has records waiting says why no more are fetched."""
    world = World(2, buffer_memory=4000, max_partition_fetch_bytes=1000)
    for log in world.logs.values():
        for _ in range(4):
            log.add(build_batch([bytes(1200)], base_offset=log.end, leader_epoch=0), log.end + 1)
    while world.fetch():
        pass
    assert Condition.BUFFERED is told(world)[0]
    assert "buffer_memory has no room for the next fetch" in reason(world)


def test_broker_left_alone_for_another_partition() -> None:
    """A partition that waits because another one of its broker is far ahead says which."""
    world = World(2, max_partition_fetch_bytes=1)
    one, _ = world.tps
    for _ in range(4):
        world.logs[one].append(1)
    world.fetch()
    world.fetch()
    world.wait(300)
    world.poll()
    assert (Condition.BROKER_BLOCKED, 0.3) == told(world, 1)
    assert "nothing is fetched from b0:9092 (id 0) until poll() has taken more of t-0" in reason(world, 1)
    assert "more is fetched when some of them have been taken" in reason(world, 0)
    world.collect(1)
    world.poll()
    assert Condition.IN_FLIGHT is told(world, 1)[0]
