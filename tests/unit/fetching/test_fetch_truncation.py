"""Truncated logs: divergence in a Fetch response, and leader epochs that are too old or too new."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kconsumer.errors import LogTruncationError
from kconsumer.schema.fetch import FetchEpochEndOffset
from kconsumer.types import OffsetAndMetadata, TopicPartition
from support.harnesses.fetching import FetchHarness, offsets


def cut_at(offset: int, epoch: int = 2) -> dict[str, Any]:
    """Return the response of a leader whose log diverges at `offset` from the records already read (KIP-595)."""
    return {"diverging_epoch": FetchEpochEndOffset(epoch=epoch, end_offset=offset), "records": None}


def read(records: int, **options: Any) -> tuple[FetchHarness, TopicPartition]:
    """Return a harness whose only partition was read up to its end at `records`."""
    harness = FetchHarness(1, **options)
    harness.logs[harness.tps[0]].append(records)
    harness.fetch()
    harness.collect()
    return harness, harness.tps[0]


def test_last_fetched_epoch_is_not_sent() -> None:
    """As in Java's consumer no last fetched epoch is sent; positions are validated when the leader changes."""
    harness, _ = read(10)
    (request,) = harness.poll()
    assert {-1} == {row.last_fetched_epoch for topic in request.message.topics for row in topic.partitions}


def test_divergence_with_a_policy() -> None:
    """With a reset policy reading continues at the divergent offset, and nothing is raised."""
    harness, tp = read(10)
    harness.respond(*harness.poll(), p0=cut_at(4))
    assert {} == harness.collect()
    position = harness.assignment.get(tp).position
    assert position is not None
    assert (4, 2) == position[:2]
    assert [{0: 4}] == [offsets(request) for request in harness.poll()]


def test_divergence_without_a_policy() -> None:
    """Without a reset policy every poll raises the error with the divergent offset until the user seeks."""
    harness, tp = read(10, auto_offset_reset="none")
    harness.respond(*harness.poll(), p0=cut_at(4))
    for _ in range(2):
        with pytest.raises(LogTruncationError) as caught:
            harness.collect()
        assert ({tp: 10}, {tp: OffsetAndMetadata(4, "", 2)}) == (caught.value.offsets, caught.value.divergent_offsets)
    assert str(caught.value) == harness.buffer.failure(tp)
    harness.seek(tp, caught.value.divergent_offsets[tp].offset)
    assert [{0: 4}] == [offsets(request) for request in harness.poll()]
    assert {} == harness.collect()


def test_divergence_waits_for_its_turn() -> None:
    """Records fetched before are returned before the truncation is raised."""
    harness = FetchHarness(1, auto_offset_reset="none")
    harness.logs[harness.tps[0]].append(5)
    harness.fetch()
    harness.respond(*harness.poll(), p0=cut_at(2))
    assert {harness.tps[0]: [0, 1, 2, 3, 4]} == harness.collect()
    with pytest.raises(LogTruncationError):
        harness.collect()


def test_divergence_behind_the_position_is_ignored() -> None:
    """A divergence at or after the position is ignored, because it affects no record that was read."""
    harness, tp = read(10, auto_offset_reset="none")
    harness.respond(*harness.poll(), p0=cut_at(10))
    assert {} == harness.collect()
    assert not harness.buffer.has_data()
    harness.logs[tp].append(2)
    harness.now += harness.config.retry_backoff_max_ms
    harness.fetch()
    assert {tp: [10, 11]} == harness.collect()


def test_old_leader_epoch_leads_to_validation() -> None:
    """After FENCED_LEADER_EPOCH new metadata brings the leader's epoch, and the position is validated before the next
    fetch.
    """
    harness, tp = read(10)
    harness.respond(*harness.poll(), p0={"error_code": 74, "records": None})
    assert 1 == harness.metadata_requests.count
    harness.epochs[0] = 3
    harness.update_metadata()
    assert ([], [tp]) == (harness.poll(), harness.positions.partitions_to_validate(harness.now))
    cut = harness.positions.maybe_complete_validation(tp, harness.assignment.get(tp).position, 6, 0)  # type: ignore[arg-type]  # it has one
    assert cut is None
    (request,) = harness.poll()
    (topic,) = request.message.topics
    assert [(6, 3)] == [(row.fetch_offset, row.current_leader_epoch) for row in topic.partitions]


def test_leader_that_does_not_know_the_epoch_yet() -> None:
    """After UNKNOWN_LEADER_EPOCH the broker is asked again a little later, without new metadata."""
    harness, _ = read(10)
    harness.respond(*harness.poll(), p0={"error_code": 75, "records": None})
    assert ([], 0) == (harness.poll(), harness.metadata_requests.count)
    harness.now += harness.config.retry_backoff_ms
    assert [{0: 10}] == [offsets(request) for request in harness.poll()]


def test_backoffs_have_jitter_and_end_together() -> None:
    """Partitions that failed in one response are fetched again by one request, after a pause with jitter."""
    waits = []
    for seed in range(20):
        harness = FetchHarness(2, rng=random.Random(seed))
        unknown_epoch = {"error_code": 75, "records": None}
        harness.respond(*harness.poll(), p0=unknown_epoch, p1=unknown_epoch)
        waits.append(harness.manager.poll(harness.now).wait_ms)
        harness.now += waits[-1]
        assert [{0: 0, 1: 0}] == [offsets(request) for request in harness.poll()]
    assert 80 <= min(waits) < 95
    assert 105 < max(waits) <= 120
    assert 20 == len(set(waits))


def test_backoff_grows_while_a_partition_fails() -> None:
    """Each consecutive failure doubles the wait, up to retry_backoff_max_ms; a success resets it."""
    harness, tp = read(10)
    waits = []
    for _ in range(6):
        harness.respond(*harness.poll(), p0={"error_code": 75, "records": None})
        waits.append(harness.manager.poll(harness.now).wait_ms)
        harness.now += waits[-1]
    assert [100, 200, 400, 800, 1000, 1000] == waits
    harness.fetch()
    harness.respond(*harness.poll(), p0={"error_code": 75, "records": None})
    assert 100 == harness.manager.poll(harness.now).wait_ms
    assert 10 == harness.positions.all_consumed()[tp].offset
