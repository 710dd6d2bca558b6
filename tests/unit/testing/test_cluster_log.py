"""The log of the cluster model: offsets, leader epochs, transactions, lookups by time, and what is removed."""

from __future__ import annotations

import pytest

from kconsumer.decode import decode_batches
from kconsumer.testing.batches import abort_marker, build_batch, build_message_set, commit_marker
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS


def values(data: bytes) -> list[tuple[int, bytes | None]]:
    """Returns offset and value of each record."""
    return [(record.offset, record.value) for record in decode_batches(data)]


def log_of(*batches: bytes, configs: dict[str, str] | None = None) -> Log:
    """Returns a log with batches that have offsets. All of them are replicated."""
    log = Log({**TOPIC_DEFAULTS, **(configs or {})})
    for batch in batches:
        log.append_stored(batch)
    log.set_high_watermark(log.end)
    return log


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_produced_message_sets_get_offsets(magic: int, codec: str) -> None:
    """Messages of the formats before 0.11 get their offsets, also inside a wrapper."""
    log = Log()
    log.append(build_batch([b"a"]), 0, 5)
    result = log.append(build_message_set([b"b", b"c"], magic=magic, codec=codec), 0, 5)
    assert (1, 2) == (result.base_offset, result.last_offset)
    assert [(1, b"b"), (2, b"c")] == values(log.read(1, 1 << 20, log.end).data)


@pytest.mark.parametrize("data", [build_batch([b"a"], timestamp=3), build_message_set([b"a"], timestamp=3)])
def test_log_append_time(data: bytes) -> None:
    """With LogAppendTime the broker's time replaces that of the producer."""
    log = Log()
    result = log.append(data, 0, 1234, log_append_time=True)
    (record,) = decode_batches(log.read(0, 1 << 20, 1).data)
    assert (1234, 1234, 1) == (result.log_append_time_ms, record.timestamp, record.timestamp_type)


def transactions_log() -> Log:
    """Returns a log with an aborted, a committed and an open transaction, which overlap."""
    return log_of(
        build_batch([b"a"], base_offset=0, producer_id=1, transactional=True),
        build_batch([b"b"], base_offset=1, producer_id=2, transactional=True),
        abort_marker(2, 1),
        commit_marker(3, 2),
        build_batch([b"c"], base_offset=4, producer_id=1, transactional=True),
    )


def test_aborted_index_with_a_transaction_that_ends_late() -> None:
    """A transaction that began early is found, even if others began and ended before its marker."""
    log = log_of(
        build_batch([b"a"], base_offset=0, producer_id=1, transactional=True),
        build_batch([b"b"], base_offset=1, producer_id=2, transactional=True),
        abort_marker(2, 2),
        build_batch([b"c"], base_offset=3, producer_id=2, transactional=True),
        abort_marker(4, 2),
        abort_marker(5, 1),
        build_batch([b"d"], base_offset=6, producer_id=1, transactional=True),
        abort_marker(7, 1),
    )
    found = {end: [ended.last_offset for ended in log.aborted_between(0, end)] for end in (1, 2, 4, 7)}
    assert {1: [5], 2: [2, 5], 4: [2, 4, 5], 7: [2, 4, 5, 7]} == found


def test_truncation_opens_transactions() -> None:
    """A transaction whose marker was truncated is open again."""
    log = transactions_log()
    log.truncate(2)
    assert (2, 2, {1: 0, 2: 1}, 0) == (
        log.end,
        log.high_watermark,
        log.transactions.open,
        log.last_stable_offset,
    )
    assert [] == log.aborted_between(0, 5)


def test_leader_epochs() -> None:
    """The end offset of a leader epoch is the start of the next one; truncation removes epochs."""
    log = Log()
    for epoch, count in ((0, 2), (2, 3), (5, 1)):
        log.append(build_batch([b"x"] * count), epoch, 0)
    assert [None, (0, 2), (0, 2), (2, 5), (2, 5), (5, 6), None] == [
        log.end_offset_for(epoch) for epoch in (-1, 0, 1, 2, 4, 5, 6)
    ]
    log.truncate(3)  # in the middle of a batch
    assert ([(0, 0), (2, 2)], 3, (2, 3)) == (log.epochs.entries(), log.end, log.end_offset_for(2))
    log.delete_before(2)
    assert ([(2, 2)], (1, 2)) == (log.epochs.entries(), log.end_offset_for(1))


def test_retention_by_time() -> None:
    """Old segments below the high watermark are deleted, also the last one."""
    log = log_of(
        build_batch([b"a"], timestamp=100),
        build_batch([b"b"], base_offset=1, timestamp=200),
        configs={"retention.ms": "50", "segment.ms": "10"},
    )
    log.apply_retention(150)
    assert 0 == log.start
    log.apply_retention(151)
    assert (1, 2) == (log.start, log.end)
    log.apply_retention(1000)
    assert (2, 2, 0) == (log.start, log.end, log.size)
    log.append(build_batch([b"c"]), 0, 1000)
    assert [(2, b"c")] == values(log.read(2, 1 << 20, 3).data)


def test_retention_by_size() -> None:
    """The oldest segments are deleted as long as the rest has at least `retention.bytes`."""
    size = len(build_batch([b"a"]))
    log = log_of(
        *(build_batch([b"a"], base_offset=i, timestamp=1) for i in range(4)),
        configs={"retention.ms": "-1", "retention.bytes": str(2 * size + 1), "segment.bytes": str(size)},
    )
    log.apply_retention(10)
    assert (1, 3 * size) == (log.start, log.size)


def test_control_types() -> None:
    """The type of a marker is read from its key."""
    log = transactions_log()
    kinds = [(batch.base_offset, batch.control_type) for batch in log.batches()]
    assert [(0, None), (1, None), (2, 0), (3, 1), (4, None)] == kinds
