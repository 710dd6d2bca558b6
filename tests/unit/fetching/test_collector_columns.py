"""What a poll for columns returns of the buffered data: it is limited by bytes, runs no deserializers and explains
gaps.
"""

from __future__ import annotations

import pytest

from kconsumer._core.decode import PartitionFetch
from kconsumer.arrow import RecordBatch
from kconsumer.testing.batches import CODECS, build_batch, control_batch
from kconsumer.types import TopicPartition
from support.harnesses.fetching import FetchHarness

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("codec", CODECS)
def test_take_stops_with_the_record_that_reaches_the_bytes(codec: str) -> None:
    """Each take ends with the record that reaches the byte limit, over several batches and without loss."""
    data = b"".join(build_batch([b"v" * 100] * 10, base_offset=base, codec=codec) for base in range(0, 50, 10))
    fetch, sizes, offsets = PartitionFetch(TP, data, 0), [], []
    while not fetch.exhausted:
        run = fetch.take(1000, 1300)
        sizes.append(run.size)
        offsets += [record.offset for record in run]
    assert list(range(50)) == offsets
    assert all(1300 <= size < 1300 + 120 for size in sizes[:-1])
    assert 1 == len(PartitionFetch(TP, data, 0).take(1000, 1)), "there is always one"


def test_collect_is_bounded_by_bytes_over_partitions() -> None:
    """The limit applies to the sum of all partitions."""
    harness = FetchHarness(2)
    for log in harness.logs.values():
        log.append(10)
    one, two = harness.tps
    harness.fetch()
    size = sum(run.size for run in harness.collector.collect(1000, 1)._runs)
    records = harness.collector.collect(1000, 11 * size)
    assert {one: [*range(1, 10)], two: [0, 1]} == {
        tp: [record.offset for record in found] for tp, found in records.by_partition().items()
    }


def test_no_deserializer_runs_for_columns() -> None:
    """A deserializer that would fail is not called."""
    harness = FetchHarness(1, value_deserializer=int)
    harness.logs[harness.tps[0]].add(build_batch([b"not a number"]), 1)
    harness.fetch()
    batch = RecordBatch.of(harness.collector.collect(10, 1000)._runs, ["value"])
    assert [b"not a number"] == batch.to_pyarrow()["value"].to_pylist()


def test_batches_passed_over_are_named() -> None:
    """Each skipped marker and aborted batch is reported once, from the fetch offset on."""
    data = (
        build_batch([b"a", b"b"], producer_id=7, transactional=True)
        + control_batch("abort", 2, producer_id=7)
        + build_batch([b"c"], base_offset=3)
    )
    fetch = PartitionFetch(TP, data, 1, read_committed=True, aborted_transactions=[(7, 0)])
    assert [3] == [record.offset for record in fetch.take(10)]
    assert [(1, 2, "aborted"), (2, 3, "control")] == list(fetch.take_skipped())
    assert () == fetch.take_skipped()


def test_records_say_what_was_passed_over() -> None:
    """The result of a poll contains the skipped offsets by partition."""
    harness = FetchHarness(1)
    tp = harness.tps[0]
    harness.logs[tp].append(2)
    harness.logs[tp].add(control_batch("commit", 2), 3)
    harness.fetch()
    assert {tp: ((2, 3, "control"),)} == harness.collector.collect(10).skipped()
