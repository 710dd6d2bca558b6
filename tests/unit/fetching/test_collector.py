"""What a poll returns of what is buffered, and what it raises."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.errors import (
    BrokerError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from kconsumer.state.partition import FetchState
from kconsumer.testing.batches import build_batch, control_batch, empty_batch
from kconsumer.types import OffsetAndMetadata, OffsetReset, TopicPartition
from support.harnesses.fetching import World, offsets


def logged(partitions: int = 1, *, records: int = 10, **options: object) -> World:
    """A world whose partitions have one batch each."""
    world = World(partitions, **options)
    for log in world.logs.values():
        log.append(records)
    return world


def position(world: World, tp: TopicPartition) -> int:
    found = world.subscription.position(tp)
    assert found is not None
    return found.offset


# --- records and positions ---------------------------------------------------------------------------------------


def test_nothing_buffered() -> None:
    """With nothing buffered the result is empty and no position moved."""
    world = World()
    records = world.collector.collect(10)
    assert (0, {}, False) == (len(records), records.next_offsets(), world.collector.positions_advanced)


def test_limit_is_kept_over_calls() -> None:
    """No call returns more than it was asked for, and the next one goes on behind."""
    world = logged(2)
    one, two = world.tps
    world.fetch()
    assert {one: [0, 1, 2, 3, 4, 5]} == world.collect(6)
    assert {one: [6, 7, 8, 9], two: [0, 1]} == world.collect(6)
    assert {two: [2, 3, 4, 5, 6, 7]} == world.collect(6)
    assert {two: [8, 9]} == world.collect(6)
    assert {} == world.collect(6)


def test_positions_and_next_offsets() -> None:
    """Positions move to behind what was returned, with the epoch of its batch, and the result tells the same."""
    world = World(2)
    one, two = world.tps
    world.epochs = {0: 3, 1: 3}
    world.update_metadata()
    world.logs[one].append(5, epoch=1)
    world.logs[one].append(5, epoch=2)
    world.logs[two].append(4, epoch=3)
    world.fetch()
    assert {one: OffsetAndMetadata(3, "", 1)} == world.collector.collect(3).next_offsets()
    records = world.collector.collect(9)
    assert {one: OffsetAndMetadata(10, "", 2), two: OffsetAndMetadata(2, "", 3)} == records.next_offsets()
    assert records.next_offsets() == world.subscription.all_consumed()
    found = world.subscription.position(one)
    assert found is not None
    assert world.cluster.leader(one) == found.leader


def test_fetch_into_the_middle_of_a_batch() -> None:
    """Records of a batch before the position are not returned."""
    world = logged()
    world.seek(world.tps[0], 7)
    world.fetch()
    assert {world.tps[0]: [7, 8, 9]} == world.collect()


def test_pipelined_fetches_keep_the_order() -> None:
    """With fetches ahead of the caller every record comes once and in order."""
    world = World(2, max_partition_fetch_bytes=300)
    for log in world.logs.values():
        for _ in range(20):
            log.append(7)
    got: dict[TopicPartition, list[int]] = {tp: [] for tp in world.tps}
    for _ in range(200):
        world.fetch()
        for tp, found in world.collect(3).items():
            got[tp] += found
    assert {tp: list(range(140)) for tp in world.tps} == got


def test_move_without_records() -> None:
    """Over control batches and what compaction left the position moves without a record, and `moved` says so."""
    world = World()
    tp = world.tps[0]
    log = world.logs[tp]
    log.add(control_batch("commit", 0, producer_id=1), 1)
    log.add(empty_batch(1, 9), 10)
    world.fetch()
    records = world.collector.collect(10)
    assert (0, True, 10) == (len(records), world.collector.positions_advanced, position(world, tp))
    assert {tp: OffsetAndMetadata(10)} == records.next_offsets()
    world.collector.collect(10)
    assert not world.collector.positions_advanced


def test_compacted_tail() -> None:
    """Behind a batch whose end compaction took away the next fetch starts after the gap."""
    world = World()
    log = world.logs[world.tps[0]]
    log.add(build_batch([b"0", b"1"], last_offset_delta=49, leader_epoch=0), 50)
    world.answer(*world.poll())
    (ahead,) = world.poll()
    assert {world.tps[0]: [0, 1]} == world.collect()
    assert ({0: 50}, 50) == (offsets(ahead), position(world, world.tps[0]))


def test_current_lag() -> None:
    """The lag counts from what was returned, not from what is buffered."""
    world = logged()
    world.fetch()
    assert 10 == world.subscription.get(world.tps[0]).lag()
    world.collect(4)
    assert 6 == world.subscription.get(world.tps[0]).lag()


# --- what may no longer be returned --------------------------------------------------------------------------------


def test_seek_drops_what_is_buffered() -> None:
    """Nothing from before a seek is returned."""
    world = logged()
    world.fetch()
    world.collect(2)
    world.seek(world.tps[0], 8)
    assert {} == world.collect()
    world.fetch()
    assert {world.tps[0]: [8, 9]} == world.collect()


@pytest.mark.parametrize("how", ["revoke", "unsubscribe", "unassign", "reassign", "reset", "validate", "callback"])
def test_data_of_partitions_held_back_is_dropped(how: str) -> None:
    """Data of a partition that left, is leaving, or has no valid position is dropped; that of others is not."""
    world = logged(2)
    one, two = world.tps
    world.fetch()
    match how:
        case "revoke":
            world.subscription.mark_pending_revocation([one])
        case "unsubscribe":
            world.subscription.get(one).flag(unsubscribed=True)
        case "unassign":
            world.subscription.assign({two})
        case "reassign":
            world.subscription.assign({two})
            world.subscription.assign({one, two})
            world.seek(one, 0)
        case "reset":
            world.subscription.request_reset(one, OffsetReset.LATEST)
        case "validate":
            world.subscription.seek(one, 0, 0, world.cluster.leader(one))
        case "callback":
            world.subscription.mark_awaiting_callback([one])
    assert {two: list(range(10))} == world.collect()
    assert 0 == world.buffer.buffered_bytes(one)


def test_paused_head_does_not_block_others() -> None:
    """A partition paused while it is being read is put aside; it goes on where it was when it resumes."""
    world = logged(3)
    one, two, three = world.tps
    world.fetch()
    assert {one: [0, 1, 2]} == world.collect(3)
    world.subscription.pause(one)
    world.subscription.pause(two)
    assert {three: list(range(10))} == world.collect()
    assert {} == world.collect()
    world.subscription.resume(two)
    assert {two: list(range(10))} == world.collect()
    world.subscription.resume(one)
    assert {one: [3, 4, 5, 6, 7, 8, 9]} == world.collect()


def test_paused_partition_is_not_fetched_again_for_its_buffered_data() -> None:
    """What was put aside is still there after resuming: the next fetch is for what follows."""
    world = logged()
    tp = world.tps[0]
    world.fetch()
    world.subscription.pause(tp)
    world.collect()
    world.subscription.resume(tp)
    assert [{0: 10}] == [offsets(request) for request in world.poll()]


def test_seek_while_paused() -> None:
    """A seek drops what was put aside."""
    world = logged()
    tp = world.tps[0]
    world.fetch()
    world.subscription.pause(tp)
    world.collect()
    world.seek(tp, 6)
    world.subscription.resume(tp)
    assert {} == world.collect()
    world.fetch()
    assert {tp: [6, 7, 8, 9]} == world.collect()


# --- errors --------------------------------------------------------------------------------------------------------


def test_corrupt_batch_behind_good_records() -> None:
    """Good records are returned first; then every call raises, and the position stays, until a seek."""
    world = World()
    tp = world.tps[0]
    log = world.logs[tp]
    log.append(5)
    log.add(build_batch([b"5"], base_offset=5, crc=1), 6)
    log.append(4)
    world.fetch()
    assert {tp: [0, 1, 2, 3, 4]} == world.collect()
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as caught:
            world.collect()
        assert ("t", 0, 5, 5) == (caught.value.topic, caught.value.partition, caught.value.offset, position(world, tp))
        assert str(caught.value) == world.buffer.failure(tp)
        world.fetch()
    world.seek(tp, 6)
    world.fetch()
    assert {tp: [6, 7, 8, 9]} == world.collect()
    assert "" == world.buffer.failure(tp)


def test_seek_to_where_a_corrupt_batch_ends() -> None:
    """All its records were good, only its count is not: the position is behind it already, and a seek to just there
    ends the error."""
    world = World()
    tp = world.tps[0]
    world.logs[tp].add(build_batch([b"0", b"1"], record_count=3), 2)
    world.logs[tp].append(2)
    world.fetch()
    assert {tp: [0, 1]} == world.collect()
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="seek to offset 2"):
            world.collect()
    world.seek(tp, 2)
    assert {} == world.collect()
    world.fetch()
    assert {tp: [2, 3]} == world.collect()


def test_corrupt_partition_behind_another() -> None:
    """What was taken from one partition is returned before the next one's error is raised."""
    world = World(2)
    one, two = world.tps
    world.logs[one].append(3)
    world.logs[two].add(build_batch([b"0"], crc=1), 1)
    world.fetch()
    assert {one: [0, 1, 2]} == world.collect()
    with pytest.raises(CorruptRecordError):
        world.collect()


def test_checksums_are_not_checked_when_told_so() -> None:
    """With check_crcs off a wrong checksum is not looked at."""
    world = World(check_crcs=False)
    world.logs[world.tps[0]].add(build_batch([b"0"], crc=1), 1)
    world.fetch()
    assert {world.tps[0]: [0]} == world.collect()


def test_batch_that_does_not_fit() -> None:
    """Bytes without one whole batch are an error that names the partition."""
    world = logged()
    world.answer(*world.poll(), p0={"records": build_batch([b"a"])[:-1]})
    with pytest.raises(RecordTooLargeError, match="t-0"):
        world.collect()


def fetch_again(world: World, **changes: Any) -> None:
    """Let the backoff of failed partitions end, and answer what is asked then."""
    world.now += world.config.retry_backoff_max_ms
    world.answer(*world.poll(), **changes)


def test_topic_authorization() -> None:
    """A refused topic is raised after what is buffered of others, and then by every poll while it is refused; what
    others have buffered meanwhile is returned in between."""
    world = logged(2)
    one, two = world.tps
    world.subscription.move_to_end(two)
    refused = {"error_code": 29, "records": None}
    world.answer(*world.poll(), p1=refused)
    assert {one: list(range(10))} == world.collect()
    for _ in range(2):
        with pytest.raises(TopicAuthorizationError) as caught:
            world.collect()
        assert (frozenset({"t"}), two, 0) == (caught.value.topics, caught.value.topic_partition, caught.value.offset)
    assert 0 == position(world, two)
    world.logs[one].append(2)
    fetch_again(world, p1=refused)
    assert {one: [10, 11]} == world.collect()
    with pytest.raises(TopicAuthorizationError):
        world.collect()
    world.logs[one].append(2)
    world.fetch()
    with pytest.raises(TopicAuthorizationError):
        world.collect()
    assert {one: [12, 13]} == world.collect()
    fetch_again(world)
    assert {two: list(range(10))} == world.collect()


@pytest.mark.parametrize("code", [2, 76, 4242])
def test_other_errors_are_raised(code: int) -> None:
    """Codes without a remedy are raised with partition and offset by every poll; the position stays, and another
    answer ends it."""
    world = logged()
    world.answer(*world.poll(), p0={"error_code": code, "records": None})
    for _ in range(2):
        with pytest.raises(BrokerError, match="t-0 at offset 0") as caught:
            world.collect()
        assert (code, world.tps[0], 0) == (caught.value.code, caught.value.topic_partition, caught.value.offset)
    assert str(caught.value) == world.buffer.failure(world.tps[0])
    fetch_again(world)
    assert {world.tps[0]: list(range(10))} == world.collect()
    assert "" == world.buffer.failure(world.tps[0])


@pytest.mark.parametrize("act", ["seek", "pause", "unsubscribe"])
def test_raised_until_the_user_acts(act: str) -> None:
    """An error is raised no more once its partition was sought, paused, or taken away."""
    world = logged()
    tp = world.tps[0]
    world.answer(*world.poll(), p0={"error_code": 2, "records": None})
    with pytest.raises(BrokerError):
        world.collect()
    match act:
        case "seek":
            world.seek(tp, 1)
        case "pause":
            world.subscription.pause(tp)
        case "unsubscribe":
            world.subscription.unsubscribe()
            world.buffer.clear()
    assert {} == world.collect()
    assert not world.buffer.has_data()


def test_error_gone_with_nothing_to_read() -> None:
    """An answer without records also ends an error."""
    world = World()
    world.answer(*world.poll(), p0={"error_code": 29, "records": None})
    with pytest.raises(TopicAuthorizationError):
        world.collect()
    fetch_again(world)
    assert {} == world.collect()
    assert not world.buffer.has_data()


def test_out_of_range_resets_by_policy() -> None:
    """With a policy an offset out of range leads to a reset and nothing is raised."""
    world = logged(auto_offset_reset="latest")
    world.answer(*world.poll(), p0={"error_code": 1, "records": None})
    assert {} == world.collect()
    state = world.subscription.get(world.tps[0])
    assert (FetchState.AWAIT_RESET, OffsetReset.LATEST) == (state.fetch_state, state.reset_strategy)
    assert [] == world.poll()


def test_out_of_range_without_policy() -> None:
    """Without a policy it is raised with the offset; the position stays, and a seek mends it."""
    world = logged(auto_offset_reset="none")
    tp = world.tps[0]
    world.seek(tp, 99)
    world.answer(*world.poll(), p0={"error_code": 1, "records": None})
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            world.collect()
        assert {tp: 99} == caught.value.offsets
    fetch_again(world, p0={"error_code": 1, "records": None})
    with pytest.raises(OffsetOutOfRangeError):
        world.collect()
    world.seek(tp, 4)
    world.fetch()
    assert {tp: [4, 5, 6, 7, 8, 9]} == world.collect()


def test_out_of_range_of_an_old_position() -> None:
    """Out of range for an offset from before a seek says nothing of the new position."""
    world = logged(auto_offset_reset="none")
    tp = world.tps[0]
    world.seek(tp, 99)
    (request,) = world.poll()
    world.seek(tp, 4)
    world.answer(request, p0={"error_code": 1, "records": None})
    assert {} == world.collect()
    world.fetch()
    assert {tp: [4, 5, 6, 7, 8, 9]} == world.collect()


def test_out_of_range_of_a_fetch_ahead_waits_its_turn() -> None:
    """When the fetch ahead is out of range, what was fetched before is returned before the reset."""
    world = logged(auto_offset_reset="none")
    tp = world.tps[0]
    world.fetch()
    world.answer(*world.poll(), p0={"error_code": 1, "records": None})
    assert {tp: list(range(10))} == world.collect()
    with pytest.raises(OffsetOutOfRangeError) as caught:
        world.collect()
    assert {tp: 10} == caught.value.offsets


# --- deserializers -------------------------------------------------------------------------------------------------


def test_deserializers() -> None:
    """Values come as the deserializer made them."""
    world = logged(value_deserializer=int)
    world.fetch()
    assert list(range(10)) == [record.value for record in world.collector.collect(10)]


def test_deserializer_failure() -> None:
    """Records before a bad one are returned; then each call raises at it and tries it again; a seek skips it."""
    trouble = {b"4"}

    def read(data: bytes) -> int:
        if data in trouble:
            raise ValueError("no")
        return int(data)

    world = logged(value_deserializer=read)
    tp = world.tps[0]
    world.fetch()
    assert [0, 1, 2, 3] == [record.value for record in world.collector.collect(10)]
    assert 4 == position(world, tp)
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            world.collector.collect(10)
        assert (tp, 4, b"4", 4) == (
            caught.value.topic_partition,
            caught.value.offset,
            caught.value.value,
            position(world, tp),
        )
    world.seek(tp, 5)
    world.fetch()
    world.fetch()
    assert [5, 6, 7, 8, 9] == [record.value for record in world.collector.collect(10)]


def test_deserializer_that_recovers() -> None:
    """When the failing deserializer works again, reading goes on at the record without another fetch."""
    working = []

    def read(data: bytes) -> int:
        if data == b"0" and not working:
            raise ValueError("no")
        return int(data)

    world = logged(value_deserializer=read)
    world.fetch()
    with pytest.raises(RecordDeserializationError):
        world.collector.collect(10)
    working.append(True)
    assert list(range(10)) == [record.value for record in world.collector.collect(10)]


def test_deserializer_failure_keeps_the_fetch_ahead() -> None:
    """After a failed record is skipped by healing, the fetch that was made ahead is still good."""
    failures = [ValueError("once")]

    def read(data: bytes) -> int:
        if data == b"9" and failures:
            raise failures.pop()
        return int(data)

    world = World(value_deserializer=read, max_partition_fetch_bytes=1)
    for _ in range(2):
        world.logs[world.tps[0]].append(10)
    world.fetch()
    world.fetch()
    got = [record.value for record in world.collector.collect(100)]
    got += [record.value for record in world.collector.collect(100)]
    assert list(range(20)) == got
