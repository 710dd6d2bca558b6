"""Records that a poll took but could not return are not consumed."""

from __future__ import annotations

from kconsumer._core.decode import PartitionFetch
from kconsumer.fetching.buffer import CompletedFetch
from kconsumer.state.cluster import NO_LEADER
from kconsumer.testing.batches import build_batch
from kconsumer.types import TopicPartition
from support.harnesses.fetching import FetchHarness
from support.harnesses.wiring import make_components

TP = TopicPartition("t", 0)


def test_undo_puts_positions_back_and_nothing_stale_is_returned() -> None:
    """After two collects, undo restores the position from before the second one and drops the rest of the buffer."""
    components = make_components()
    subscription, buffer, collector = components.subscription, components.buffer, components.collector
    subscription.assign([TP])
    components.positions.seek(TP, 0, None, NO_LEADER)
    state = components.assignment.get(TP)
    assert state.position is not None
    chain = buffer.chain(TP, state, state.position)
    data = build_batch([(b"k", b"v")] * 10)
    buffer.append(CompletedFetch(chain, 0, PartitionFetch(TP, data, 0), size=len(data)), 10)

    assert [0, 1, 2] == [record.offset for record in collector.collect(3)]
    assert [3, 4, 5] == [record.offset for record in collector.collect(3)]
    collector.rollback()
    assert state.position is not None
    assert 3 == state.position.offset
    assert not collector.collect(10)
    assert not buffer.has_data(), "fetched again from offset 3 instead"


def test_undo_of_the_last_records_fetches_them_again() -> None:
    """If the buffer is empty and the next fetch is in flight, the undone records are fetched again."""
    harness = FetchHarness()
    tp = harness.tps[0]
    harness.logs[tp].append(10)
    harness.fetch()
    assert {tp: list(range(10))} == harness.collect()
    ahead = harness.poll()
    harness.collector.rollback()
    for request in ahead:
        harness.respond(request)
    harness.fetch()
    assert {tp: list(range(10))} == harness.collect()
