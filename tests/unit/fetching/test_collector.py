"""Which buffered records a poll returns, and which errors it raises."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from kconsumer.testing.batches import build_batch, control_batch, empty_batch
from kconsumer.types import OffsetAndMetadata, OffsetReset, TopicPartition
from support.harnesses.fetching import FetchHarness, offsets


def logged(partitions: int = 1, *, records: int = 10, **options: object) -> FetchHarness:
    """Return a harness whose partitions have one batch each."""
    harness = FetchHarness(partitions, **options)
    for log in harness.logs.values():
        log.append(records)
    return harness


def position(harness: FetchHarness, tp: TopicPartition) -> int:
    found = harness.assignment.get(tp).position
    assert found is not None
    return found.offset


# --- records and positions ---------------------------------------------------------------------------------------


def test_nothing_buffered() -> None:
    """With nothing buffered the result is empty and no position moved."""
    harness = FetchHarness()
    records = harness.collector.collect(10)
    assert (0, {}, False) == (len(records), records.next_offsets(), harness.collector.positions_advanced)


def test_limit_is_kept_over_calls() -> None:
    """No call returns more records than requested, and the next call continues after them."""
    harness = logged(2)
    one, two = harness.tps
    harness.fetch()
    assert {one: [0, 1, 2, 3, 4, 5]} == harness.collect(6)
    assert {one: [6, 7, 8, 9], two: [0, 1]} == harness.collect(6)
    assert {two: [2, 3, 4, 5, 6, 7]} == harness.collect(6)
    assert {two: [8, 9]} == harness.collect(6)
    assert {} == harness.collect(6)


def test_positions_and_next_offsets() -> None:
    """Positions move behind the returned records, with the leader epoch of their batch; the result contains these
    positions.
    """
    harness = FetchHarness(2)
    one, two = harness.tps
    harness.epochs = {0: 3, 1: 3}
    harness.update_metadata()
    harness.logs[one].append(5, epoch=1)
    harness.logs[one].append(5, epoch=2)
    harness.logs[two].append(4, epoch=3)
    harness.fetch()
    assert {one: OffsetAndMetadata(3, "", 1)} == harness.collector.collect(3).next_offsets()
    records = harness.collector.collect(9)
    harness.positions.delivery.open = False
    assert {one: OffsetAndMetadata(10, "", 2), two: OffsetAndMetadata(2, "", 3)} == records.next_offsets()
    assert records.next_offsets() == harness.positions.all_consumed()
    found = harness.assignment.get(one).position
    assert found is not None
    assert harness.cluster.leader(one) == found.leader


def test_fetch_into_the_middle_of_a_batch() -> None:
    """Records of a batch before the position are not returned."""
    harness = logged()
    harness.seek(harness.tps[0], 7)
    harness.fetch()
    assert {harness.tps[0]: [7, 8, 9]} == harness.collect()


def test_pipelined_fetches_keep_the_order() -> None:
    """With fetches ahead of the caller every record comes once and in order."""
    harness = FetchHarness(2, max_partition_fetch_bytes=300)
    for log in harness.logs.values():
        for _ in range(20):
            log.append(7)
    got: dict[TopicPartition, list[int]] = {tp: [] for tp in harness.tps}
    for _ in range(200):
        harness.fetch()
        for tp, found in harness.collect(3).items():
            got[tp] += found
    assert {tp: list(range(140)) for tp in harness.tps} == got


def test_move_without_records() -> None:
    """Control batches and offsets that compaction removed move the position without a record, and `moved` is True."""
    harness = FetchHarness()
    tp = harness.tps[0]
    log = harness.logs[tp]
    log.add(control_batch("commit", 0, producer_id=1), 1)
    log.add(empty_batch(1, 9), 10)
    harness.fetch()
    records = harness.collector.collect(10)
    assert (0, True, 10) == (len(records), harness.collector.positions_advanced, position(harness, tp))
    assert {tp: OffsetAndMetadata(10)} == records.next_offsets()
    harness.collector.collect(10)
    assert not harness.collector.positions_advanced


def test_compacted_tail() -> None:
    """After a batch whose last records were compacted the next fetch starts after the gap."""
    harness = FetchHarness()
    log = harness.logs[harness.tps[0]]
    log.add(build_batch([b"0", b"1"], last_offset_delta=49, leader_epoch=0), 50)
    harness.respond(*harness.poll())
    (ahead,) = harness.poll()
    assert {harness.tps[0]: [0, 1]} == harness.collect()
    assert ({0: 50}, 50) == (offsets(ahead), position(harness, harness.tps[0]))


def test_current_lag() -> None:
    """The lag is measured from the returned records, not from the buffered ones."""
    harness = logged()
    harness.fetch()
    assert 10 == harness.assignment.get(harness.tps[0]).lag()
    harness.collect(4)
    assert 6 == harness.assignment.get(harness.tps[0]).lag()


# --- what may no longer be returned --------------------------------------------------------------------------------


def test_seek_drops_what_is_buffered() -> None:
    """Nothing that was buffered before a seek is returned."""
    harness = logged()
    harness.fetch()
    harness.collect(2)
    harness.seek(harness.tps[0], 8)
    assert {} == harness.collect()
    harness.fetch()
    assert {harness.tps[0]: [8, 9]} == harness.collect()


@pytest.mark.parametrize("how", ["revoke", "unsubscribe", "unassign", "reassign", "reset", "validate", "callback"])
def test_data_of_partitions_held_back_is_dropped(how: str) -> None:
    """Data of a partition that was revoked, is being revoked, or has no valid position is dropped; data of other
    partitions is kept.
    """
    harness = logged(2)
    one, two = harness.tps
    harness.fetch()
    match how:
        case "revoke":
            harness.assignment.mark_pending_revocation([one])
        case "unsubscribe":
            harness.assignment.get(one).flag(unsubscribed=True)
        case "unassign":
            harness.subscription.assign({two})
        case "reassign":
            harness.subscription.assign({two})
            harness.subscription.assign({one, two})
            harness.seek(one, 0)
        case "reset":
            harness.positions.request_reset(one, OffsetReset.LATEST)
        case "validate":
            harness.positions.seek(one, 0, 0, harness.cluster.leader(one))
        case "callback":
            harness.assignment.mark_awaiting_callback([one])
    assert {two: list(range(10))} == harness.collect()
    assert 0 == harness.buffer.buffered_bytes(one)


def test_paused_head_does_not_block_others() -> None:
    """If a partition is paused while its fetch is read, the fetch is parked; after resume it continues where it was."""
    harness = logged(3)
    one, two, three = harness.tps
    harness.fetch()
    assert {one: [0, 1, 2]} == harness.collect(3)
    harness.assignment.pause(one)
    harness.assignment.pause(two)
    assert {three: list(range(10))} == harness.collect()
    assert {} == harness.collect()
    harness.assignment.resume(two)
    assert {two: list(range(10))} == harness.collect()
    harness.assignment.resume(one)
    assert {one: [3, 4, 5, 6, 7, 8, 9]} == harness.collect()


def test_paused_partition_is_not_fetched_again_for_its_buffered_data() -> None:
    """Parked data is still there after resume, and the next fetch requests what follows it."""
    harness = logged()
    tp = harness.tps[0]
    harness.fetch()
    harness.assignment.pause(tp)
    harness.collect()
    harness.assignment.resume(tp)
    assert [{0: 10}] == [offsets(request) for request in harness.poll()]


# --- errors --------------------------------------------------------------------------------------------------------


def test_seek_to_where_a_corrupt_batch_ends() -> None:
    """If only the record count of a batch is wrong, its records are returned and the position is behind the batch. A
    seek to that position ends the error.
    """
    harness = FetchHarness()
    tp = harness.tps[0]
    harness.logs[tp].add(build_batch([b"0", b"1"], record_count=3), 2)
    harness.logs[tp].append(2)
    harness.fetch()
    assert {tp: [0, 1]} == harness.collect()
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="seek to offset 2"):
            harness.collect()
    harness.seek(tp, 2)
    assert {} == harness.collect()
    harness.fetch()
    assert {tp: [2, 3]} == harness.collect()


def test_corrupt_partition_behind_another() -> None:
    """Records of one partition are returned before the error of the next one is raised."""
    harness = FetchHarness(2)
    one, two = harness.tps
    harness.logs[one].append(3)
    harness.logs[two].add(build_batch([b"0"], crc=1), 1)
    harness.fetch()
    assert {one: [0, 1, 2]} == harness.collect()
    with pytest.raises(CorruptRecordError):
        harness.collect()


def test_batch_that_does_not_fit() -> None:
    """Bytes without a complete batch raise an error that names the partition."""
    harness = logged()
    harness.respond(*harness.poll(), p0={"records": build_batch([b"a"])[:-1]})
    with pytest.raises(RecordTooLargeError, match="t-0"):
        harness.collect()


def fetch_again(harness: FetchHarness, **changes: Any) -> None:
    """Let the backoff of failed partitions end, and respond to the next requests."""
    harness.now += harness.config.retry_backoff_max_ms
    harness.respond(*harness.poll(), **changes)


def test_topic_authorization() -> None:
    """TopicAuthorizationError is raised after the buffered data of other topics, and then by every poll until
    permission is granted; data of other topics is returned in between.
    """
    harness = logged(2)
    one, two = harness.tps
    harness.assignment.move_to_end(two)
    refused = {"error_code": 29, "records": None}
    harness.respond(*harness.poll(), p1=refused)
    assert {one: list(range(10))} == harness.collect()
    for _ in range(2):
        with pytest.raises(TopicAuthorizationError) as caught:
            harness.collect()
        assert (frozenset({"t"}), two, 0) == (caught.value.topics, caught.value.topic_partition, caught.value.offset)
    assert 0 == position(harness, two)
    harness.logs[one].append(2)
    fetch_again(harness, p1=refused)
    assert {one: [10, 11]} == harness.collect()
    with pytest.raises(TopicAuthorizationError):
        harness.collect()
    harness.logs[one].append(2)
    harness.fetch()
    with pytest.raises(TopicAuthorizationError):
        harness.collect()
    assert {one: [12, 13]} == harness.collect()
    fetch_again(harness)
    assert {two: list(range(10))} == harness.collect()


def test_error_gone_with_nothing_to_read() -> None:
    """A response without records also ends an error."""
    harness = FetchHarness()
    harness.respond(*harness.poll(), p0={"error_code": 29, "records": None})
    with pytest.raises(TopicAuthorizationError):
        harness.collect()
    fetch_again(harness)
    assert {} == harness.collect()
    assert not harness.buffer.has_data()


def test_out_of_range_of_an_old_position() -> None:
    """OFFSET_OUT_OF_RANGE for an offset from before a seek does not affect the new position."""
    harness = logged(auto_offset_reset="none")
    tp = harness.tps[0]
    harness.seek(tp, 99)
    (request,) = harness.poll()
    harness.seek(tp, 4)
    harness.respond(request, p0={"error_code": 1, "records": None})
    assert {} == harness.collect()
    harness.fetch()
    assert {tp: [4, 5, 6, 7, 8, 9]} == harness.collect()


def test_out_of_range_of_a_fetch_ahead_waits_its_turn() -> None:
    """If a prefetch is out of range, earlier data is returned before the reset."""
    harness = logged(auto_offset_reset="none")
    tp = harness.tps[0]
    harness.fetch()
    harness.respond(*harness.poll(), p0={"error_code": 1, "records": None})
    assert {tp: list(range(10))} == harness.collect()
    with pytest.raises(OffsetOutOfRangeError) as caught:
        harness.collect()
    assert {tp: 10} == caught.value.offsets


# --- deserializers -------------------------------------------------------------------------------------------------


def test_deserializer_failure_keeps_the_fetch_ahead() -> None:
    """When the failing deserializer works again, the prefetched data is returned."""
    failures = [ValueError("once")]

    def read(data: bytes) -> int:
        if data == b"9" and failures:
            raise failures.pop()
        return int(data)

    harness = FetchHarness(value_deserializer=read, max_partition_fetch_bytes=1)
    for _ in range(2):
        harness.logs[harness.tps[0]].append(10)
    harness.fetch()
    harness.fetch()
    got = [record.value for record in harness.collector.collect(100)]
    got += [record.value for record in harness.collector.collect(100)]
    assert list(range(20)) == got
