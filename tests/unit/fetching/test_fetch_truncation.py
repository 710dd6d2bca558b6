"""Logs that were cut: what a leader says of it in a Fetch response, and epochs that are too old or too new."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kconsumer.errors import LogTruncationError
from kconsumer.schema.fetch import FetchEpochEndOffset
from kconsumer.types import OffsetAndMetadata, TopicPartition
from support.harnesses.fetching import World, offsets


def cut_at(offset: int, epoch: int = 2) -> dict[str, Any]:
    """What a leader answers whose log parts at `offset` from what was read (KIP-595)."""
    return {"diverging_epoch": FetchEpochEndOffset(epoch=epoch, end_offset=offset), "records": None}


def read(records: int, **options: Any) -> tuple[World, TopicPartition]:
    """A world whose only partition was read up to its end at `records`."""
    world = World(1, **options)
    world.logs[world.tps[0]].append(records)
    world.fetch()
    world.collect()
    return world, world.tps[0]


def test_last_fetched_epoch_is_not_sent() -> None:
    """As in Java's consumer; the log is checked when the leader changes instead."""
    world, _ = read(10)
    (request,) = world.poll()
    assert {-1} == {row.last_fetched_epoch for topic in request.message.topics for row in topic.partitions}


def test_divergence_with_a_policy() -> None:
    """With a reset policy reading goes on, without a word, where the logs part."""
    world, tp = read(10)
    world.answer(*world.poll(), p0=cut_at(4))
    assert {} == world.collect()
    position = world.subscription.position(tp)
    assert position is not None
    assert (4, 2) == position[:2]
    assert [{0: 4}] == [offsets(request) for request in world.poll()]


def test_divergence_without_a_policy() -> None:
    """Without one every poll raises, with where the logs part, until the user seeks."""
    world, tp = read(10, auto_offset_reset="none")
    world.answer(*world.poll(), p0=cut_at(4))
    for _ in range(2):
        with pytest.raises(LogTruncationError) as caught:
            world.collect()
        assert ({tp: 10}, {tp: OffsetAndMetadata(4, "", 2)}) == (caught.value.offsets, caught.value.divergent_offsets)
    assert str(caught.value) == world.buffer.failure(tp)
    world.seek(tp, caught.value.divergent_offsets[tp].offset)
    assert [{0: 4}] == [offsets(request) for request in world.poll()]
    assert {} == world.collect()


def test_divergence_waits_for_its_turn() -> None:
    """What was fetched before is returned before the truncation is raised."""
    world = World(1, auto_offset_reset="none")
    world.logs[world.tps[0]].append(5)
    world.fetch()
    world.answer(*world.poll(), p0=cut_at(2))
    assert {world.tps[0]: [0, 1, 2, 3, 4]} == world.collect()
    with pytest.raises(LogTruncationError):
        world.collect()


def test_divergence_behind_the_position_is_ignored() -> None:
    """A log that parts at or after the position has all that was read."""
    world, tp = read(10, auto_offset_reset="none")
    world.answer(*world.poll(), p0=cut_at(10))
    assert {} == world.collect()
    assert not world.buffer.has_data()
    world.logs[tp].append(2)
    world.now += world.config.retry_backoff_max_ms
    world.fetch()
    assert {tp: [10, 11]} == world.collect()


def test_old_leader_epoch_leads_to_validation() -> None:
    """A leader that has moved on fences us: new metadata brings its epoch, and the position is checked before the
    next fetch."""
    world, tp = read(10)
    world.answer(*world.poll(), p0={"error_code": 74, "records": None})
    assert 1 == world.metadata_requests.count
    world.epochs[0] = 3
    world.update_metadata()
    assert ([], [tp]) == (world.poll(), world.subscription.partitions_to_validate(world.now))
    cut = world.subscription.maybe_complete_validation(tp, world.subscription.get(tp).position, 6, 0)  # type: ignore[arg-type]  # it has one
    assert cut is None
    (request,) = world.poll()
    (topic,) = request.message.topics
    assert [(6, 3)] == [(row.fetch_offset, row.current_leader_epoch) for row in topic.partitions]


def test_leader_that_does_not_know_the_epoch_yet() -> None:
    """A broker that has not heard of its new epoch is asked again a little later, without new metadata."""
    world, _ = read(10)
    world.answer(*world.poll(), p0={"error_code": 75, "records": None})
    assert ([], 0) == (world.poll(), world.metadata_requests.count)
    world.now += world.config.retry_backoff_ms
    assert [{0: 10}] == [offsets(request) for request in world.poll()]


def test_backoffs_have_jitter_and_end_together() -> None:
    """Partitions that failed in one response are asked for again by one request, after a pause that varies."""
    waits = []
    for seed in range(20):
        world = World(2, rng=random.Random(seed))
        unknown_epoch = {"error_code": 75, "records": None}
        world.answer(*world.poll(), p0=unknown_epoch, p1=unknown_epoch)
        waits.append(world.manager.poll(world.now).wait_ms)
        world.now += waits[-1]
        assert [{0: 0, 1: 0}] == [offsets(request) for request in world.poll()]
    assert 80 <= min(waits) < 95
    assert 105 < max(waits) <= 120
    assert 20 == len(set(waits))


def test_backoff_grows_while_a_partition_fails() -> None:
    """Each failure in a row doubles the wait, up to retry_backoff_max_ms; success ends the row."""
    world, tp = read(10)
    waits = []
    for _ in range(6):
        world.answer(*world.poll(), p0={"error_code": 75, "records": None})
        waits.append(world.manager.poll(world.now).wait_ms)
        world.now += waits[-1]
    assert [100, 200, 400, 800, 1000, 1000] == waits
    world.fetch()
    world.answer(*world.poll(), p0={"error_code": 75, "records": None})
    assert 100 == world.manager.poll(world.now).wait_ms
    assert 10 == world.subscription.all_consumed()[tp].offset
