"""Fetching with isolation_level=read_committed: the request, the returned records, and the end offset."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.fetch import AbortedTransaction
from kconsumer.testing.batches import abort_marker, commit_marker
from support.harnesses.fetching import FetchHarness


def committed(partitions: int = 1, **options: Any) -> FetchHarness:
    return FetchHarness(partitions, isolation_level="read_committed", **options)


def transaction(harness: FetchHarness, producer_id: int, count: int, *, abort: bool) -> AbortedTransaction:
    """Append a batch of a transaction and its marker to the first partition's log."""
    log = harness.logs[harness.tps[0]]
    first = log.end
    log.append(count, producer_id=producer_id, transactional=True)
    log.add((abort_marker if abort else commit_marker)(log.end, producer_id), log.end + 1)
    return AbortedTransaction(producer_id=producer_id, first_offset=first)


def test_the_level_is_in_the_request() -> None:
    """A request has isolation level 1, and 0 by default."""
    assert [1] == [request.message.isolation_level for request in committed().poll()]
    assert [0] == [request.message.isolation_level for request in FetchHarness().poll()]


def test_records_of_aborted_transactions_are_left_out() -> None:
    """Records of the transactions in the response's list are omitted, only with read_committed."""
    harness = committed()
    transaction(harness, 7, 2, abort=False)
    aborted = transaction(harness, 8, 2, abort=True)
    harness.logs[harness.tps[0]].append(1)
    harness.respond(*harness.poll(), p0={"aborted_transactions": [aborted]})
    assert {harness.tps[0]: [0, 1, 6]} == harness.collect()
    plain = FetchHarness()
    plain.logs = harness.logs
    plain.respond(*plain.poll(), p0={"aborted_transactions": [aborted]})
    assert {harness.tps[0]: [0, 1, 3, 4, 6]} == plain.collect()


def test_no_list_is_an_empty_list() -> None:
    """A null list of aborted transactions is read as an empty one."""
    harness = committed()
    transaction(harness, 7, 2, abort=False)
    harness.respond(*harness.poll(), p0={"aborted_transactions": None})
    assert {harness.tps[0]: [0, 1]} == harness.collect()


def test_an_aborted_tail_moves_the_position() -> None:
    """Aborted batches at the end return no record, but the poll moves the position and the next fetch starts after the
    marker.
    """
    harness = committed()
    aborted = transaction(harness, 8, 3, abort=True)
    harness.respond(*harness.poll(), p0={"aborted_transactions": [aborted]})
    records = harness.collector.collect(500)
    assert (0, True) == (len(records), harness.collector.positions_advanced)
    assert [4] == [position.offset for position in records.next_offsets().values()]
    assert [4] == [row.fetch_offset for request in harness.poll() for row in request.message.topics[0].partitions]


def test_lag_is_to_the_last_stable_offset() -> None:
    """partition_states() and the lag metric measure up to the last stable offset; the high watermark is unchanged."""
    for harness, lag in ((committed(), 2), (FetchHarness(), 7)):
        harness.logs[harness.tps[0]].append(3)
        harness.respond(*harness.poll(), p0={"high_watermark": 10, "last_stable_offset": 5})
        harness.collect()
        harness.poll()  # settles what has been read
        status = harness.status(harness.tps[0])
        assert (10, lag) == (status.high_watermark, status.lag)
        found = {
            m.name: value for m, value in harness.metrics.snapshot(harness.now).items() if ("topic", "t") in m.tags
        }
        assert (lag, lag) == (found["records-lag"], found["records-lag-max"])
