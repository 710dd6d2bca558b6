"""Compaction and retention of logs in the cluster model."""

from __future__ import annotations

import pytest

from kconsumer.decode import decode_batches
from kconsumer.testing.batches import Rec, abort_marker, build_batch, build_message_set, commit_marker
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.compaction import compact
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS, Settings
from support.fakes.cluster_client import advance

DAY_MS = 24 * 3600 * 1000


def log_of(*batches: bytes) -> Log:
    """Returns a log whose batches, which have offsets, are in a closed segment."""
    log = Log(TOPIC_DEFAULTS)
    for batch in batches:
        log.append_stored(batch)
    log.set_high_watermark(log.end)
    log.roll()
    return log


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns offset, key and value of each record. The checksums of the batches are checked."""
    data = b"".join(batch.data for batch in log.batches())
    return [(record.offset, record.key, record.value) for record in decode_batches(data)]


def offsets(log: Log) -> list[tuple[int, int, int]]:
    """Returns base offset, last offset and number of records of each batch."""
    return [(batch.base_offset, batch.last_offset, batch.record_count) for batch in log.batches()]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_last_record_of_each_key_is_kept(codec: str) -> None:
    """Batches keep their first and last offsets; a batch without records disappears."""
    log = log_of(
        build_batch([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], codec=codec, leader_epoch=3),
        build_batch([(b"b", b"2")], base_offset=3, codec=codec),
        build_batch([(b"c", b"1"), (b"b", b"3"), (b"d", b"1")], base_offset=4, codec=codec),
        build_batch([(b"d", b"2"), (None, b"1")], base_offset=7, codec=codec),
    )
    compact(log, 0)
    assert [(2, b"a", b"2"), (4, b"c", b"1"), (5, b"b", b"3"), (7, b"d", b"2")] == records(log)
    assert [(0, 2, 1), (4, 6, 2), (7, 8, 1)] == offsets(log)
    assert [3, -1, -1] == [batch.leader_epoch for batch in log.batches()]
    assert (0, 9) == (log.start, log.end)
    assert [(4, b"c", b"1"), (5, b"b", b"3")] == [
        (record.offset, record.key, record.value) for record in decode_batches(log.read(3, 1, 9).data)
    ]


@pytest.mark.parametrize(("magic", "codec"), [(0, "none"), (1, "none"), (0, "gzip"), (1, "gzip")])
def test_message_sets(magic: int, codec: str) -> None:
    """Messages of the formats before 0.11 keep their offsets, also inside a wrapper."""
    log = log_of(
        build_message_set([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], magic=magic, codec=codec),
        build_message_set([(b"b", b"2")], magic=magic, codec=codec, base_offset=3),
    )
    compact(log, 0)
    assert [(2, b"a", b"2"), (3, b"b", b"2")] == records(log)


def test_headers_and_timestamps_stay() -> None:
    """A batch that loses records keeps the rest of the others."""
    kept = Rec(b"2", b"a", headers=[("h", b"x"), ("h", None)], timestamp=7)
    log = log_of(build_batch([Rec(b"1", b"a", timestamp=9), kept], timestamp=5))
    compact(log, 0)
    (record,) = decode_batches(next(log.batches()).data)
    assert (7, (("h", b"x"), ("h", None))) == (record.timestamp, record.headers)
    assert 7 == next(log.batches()).max_timestamp


def test_deletions() -> None:
    """A record without a value removes its key, and is removed itself `delete.retention.ms` after that."""
    log = log_of(build_batch([(b"a", b"1"), (b"a", None), (b"b", b"1")], timestamp=5))
    for wall_ms in (1000, 1000 + DAY_MS - 1):
        compact(log, wall_ms)
        assert [(1, b"a", None), (2, b"b", b"1")] == records(log)
    compact(log, 1000 + DAY_MS)
    assert [(2, b"b", b"1")] == records(log)


def test_transactions() -> None:
    """Records of aborted transactions are removed; markers stay while their transaction has batches."""
    log = log_of(
        build_batch([(b"a", b"1")], producer_id=1, transactional=True),
        abort_marker(1, 1),
        build_batch([(b"b", b"1")], base_offset=2, producer_id=2, transactional=True),
        commit_marker(3, 2),
        build_batch([(b"b", b"2"), (b"c", b"1")], base_offset=4, producer_id=2, transactional=True),
        commit_marker(6, 2),
    )
    for wall_ms in (0, 1000, 1000 + DAY_MS - 1):
        compact(log, wall_ms)
        assert [(4, b"b", b"2"), (5, b"c", b"1")] == records(log)
        assert [(0, 0, 0), (1, 1, 1), (3, 3, 1), (4, 5, 2), (6, 6, 1)] == offsets(log)
    compact(log, 1000 + DAY_MS)
    assert [(0, 0, 0), (1, 1, 1), (4, 5, 2), (6, 6, 1)] == offsets(log)


# --- retention ---


def test_retention_is_checked_regularly() -> None:
    """Old records are deleted by the first check after `retention.ms`; then there is nothing left to check."""
    clock = VirtualClock()
    cluster = Cluster(settings=Settings(log_retention_check_interval_ms=1000))
    partition = cluster.create_topic("t", configs={"retention.ms": "1500"}).partitions[0]
    partition.append(build_batch([b"a"], timestamp=cluster.wall_ms(0)), cluster.wall_ms(0))
    advance(cluster, clock, 1999)
    assert 0 == partition.log.start
    advance(cluster, clock, 1)
    assert (1, 1) == (partition.log.start, partition.log.end)
    advance(cluster, clock, 1000)
    assert cluster.next_deadline() is None


# --- the cleaner ---


def test_the_cleaner_runs_at_an_interval() -> None:
    """Closed segments are compacted after `log.cleaner.backoff.ms`, and again when enough of them is dirty."""
    clock = VirtualClock()
    cluster = Cluster(settings=Settings(log_cleaner_backoff_ms=1000))
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}
    partition = cluster.create_topic("t", configs=configs).partitions[0]
    for values in (b"12", b"34"):
        partition.append(build_batch([(b"a", bytes([value])) for value in values]), 0)
        partition.log.roll()
    partition.append(build_batch([(b"b", b"1")]), 0)
    advance(cluster, clock, 999)
    assert 5 == len(records(partition.log))
    advance(cluster, clock, 1)
    assert [3, 4] == [offset for offset, _, _ in records(partition.log)]
    partition.log.roll()
    partition.append(build_batch([(b"b", b"2")]), 0)
    advance(cluster, clock, 1000)
    assert [3, 4, 5] == [offset for offset, _, _ in records(partition.log)]
