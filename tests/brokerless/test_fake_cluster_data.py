"""Whole consumers with assigned partitions read from FakeCluster: positions, truncation, followers, deleted topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer.clock import Clock
from kconsumer.errors import LogTruncationError, OffsetOutOfRangeError
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)
DEADLINE_S = 20


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3, racks=["a", "b", "c"]) as cluster:
        yield cluster


@pytest.fixture(params=["classic", "threaded"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def consumer_of(cluster: FakeCluster, engine: str, **options: Any) -> Consumer:
    """Returns a consumer of the partition, which begins with the first record."""
    chosen = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, "fetch_max_wait_ms": 100, **options}
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, engine=engine, **chosen)
    consumer.assign([TP])
    return consumer


def until(condition: Callable[[], bool]) -> None:
    """Repeat a call until it returns true."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Returns the values of the next records."""
    records: list[ConsumerRecord] = []
    until(lambda: records.extend(consumer.poll(0.1)) or len(records) >= count)
    return [record.value for record in records]


def test_offsets_and_seeks(cluster: FakeCluster, engine: str) -> None:
    """A consumer finds the ends of a partition and offsets by time, and continues where it seeks to."""
    cluster.create_topic("t")
    for number in range(10):
        cluster.produce("t", f"v{number}", timestamp=1000 + number)
    with consumer_of(cluster, engine) as consumer:
        assert ({TP: 0}, {TP: 10}) == (consumer.beginning_offsets([TP]), consumer.end_offsets([TP]))
        found = consumer.offsets_for_times({TP: 1004})[TP]
        assert found is not None
        assert (4, 1004, 0) == (found.offset, found.timestamp, found.leader_epoch)
        assert None is consumer.offsets_for_times({TP: 2000})[TP]
        consumer.seek(TP, 8)
        assert [b"v8", b"v9"] == read(consumer, 2)
        consumer.seek_to_beginning(TP)
        assert b"v0" == read(consumer, 10)[0]
        assert 0 == consumer.current_lag(TP)
        consumer.seek_to_end(TP)
        cluster.produce("t", "v10")
        assert 10 <= consumer.position(TP)


def test_long_poll(cluster: FakeCluster, engine: str) -> None:
    """A record arrives as soon as it is produced, long before the fetch that waits for it would end."""
    cluster.create_topic("t")
    with consumer_of(cluster, engine, fetch_max_wait_ms=1500) as consumer:
        assert not consumer.poll(0.3)
        cluster.produce("t", "v")
        began = time.monotonic()
        assert [b"v"] == read(consumer, 1)
        assert time.monotonic() - began < 1


def test_isolation(cluster: FakeCluster, engine: str) -> None:
    """A read_committed consumer gets committed records in their order, and nothing of aborted transactions."""
    cluster.create_topic("t")
    for number in range(4):
        with cluster.transaction() as transaction:
            transaction.produce("t", f"v{number}")
            cluster.produce("t", f"plain{number}")
            if number % 2:
                transaction.abort()
    with consumer_of(cluster, engine, isolation_level="read_committed") as consumer:
        expected = [b"v0", b"plain0", b"plain1", b"v2", b"plain2", b"plain3"]
        assert expected == read(consumer, len(expected))
        assert {TP: 12} == consumer.end_offsets([TP])


def lose_records(cluster: FakeCluster) -> None:
    """Lose the records from offset 2 on by an unclean election, and write another one in their place."""
    cluster.kill(1)
    cluster.start(2)
    cluster.produce("t", "new2")


@pytest.fixture
def truncatable(cluster: FakeCluster) -> FakeCluster:
    """A cluster whose topic has four records, of which only the leader has the last two."""
    cluster.create_topic("t", replication_factor=2, unclean_leader_election_enable=True)
    cluster.produce("t", ["kept0", "kept1"])
    cluster.kill(2)
    cluster.produce("t", ["lost2", "lost3"])
    return cluster


def test_truncation_with_a_policy(truncatable: FakeCluster, engine: str) -> None:
    """With a reset policy the position returns to the offset at which the logs diverge."""
    with consumer_of(truncatable, engine) as consumer:
        read(consumer, 4)
        lose_records(truncatable)
        assert [b"new2"] == read(consumer, 1)


def test_truncation_without_a_policy(truncatable: FakeCluster, engine: str) -> None:
    """Without a reset policy `poll` raises LogTruncationError with the offset at which the logs diverge."""
    with consumer_of(truncatable, engine, auto_offset_reset="none") as consumer:
        consumer.seek(TP, 0)
        read(consumer, 4)
        lose_records(truncatable)
        errors: list[LogTruncationError] = []

        def raises() -> bool:
            try:
                consumer.poll(0.1)
            except LogTruncationError as error:
                errors.append(error)
            return bool(errors)

        until(raises)
        (divergent,) = errors[0].divergent_offsets.values()
        assert divergent is not None
        assert ({TP: 4}, 2, 0) == (errors[0].offsets, divergent.offset, divergent.leader_epoch)
        consumer.seek(TP, divergent)
        assert [b"new2"] == read(consumer, 1)


def test_deleted_records(engine: str) -> None:
    """A position before the start of the log is out of range."""
    with FakeCluster(log_retention_check_interval_ms=50) as quick:
        quick.create_topic("t", retention_ms=0)
        with consumer_of(quick, engine, auto_offset_reset="none") as consumer:
            consumer.seek(TP, 0)
            quick.produce("t", ["a", "b"], timestamp=1)
            until(lambda: consumer.beginning_offsets([TP]) == {TP: 2})
            consumer.seek(TP, 0)
            with pytest.raises(OffsetOutOfRangeError):
                until(lambda: consumer.poll(0.1) is None)


def test_fetching_from_the_nearest_replica(cluster: FakeCluster, engine: str) -> None:
    """A consumer in the rack of a follower reads there, and from the leader again when the follower dies."""
    cluster.create_topic("t", replication_factor=3)
    cluster.produce("t", ["a", "b"])
    with consumer_of(cluster, engine, client_rack="c") as consumer:
        assert [b"a", b"b"] == read(consumer, 2)
        model = cluster._cluster
        assert [True, False, True] == [bool(broker.fetch_sessions.sessions) for broker in model.brokers.values()]
        cluster.kill(3)
        cluster.produce("t", "c")
        assert [b"c"] == read(consumer, 1)


def test_leaders_move(cluster: FakeCluster, engine: str) -> None:
    """A consumer loses and repeats nothing while the leader moves."""
    cluster.create_topic("t", replication_factor=3)
    with consumer_of(cluster, engine, fetch_max_wait_ms=1500) as consumer:
        for number in range(6):
            cluster.produce("t", f"v{number}")
            assert [f"v{number}".encode()] == read(consumer, 1)
            cluster.move_leader("t", 0, 1 + (number + 1) % 3)


def test_a_topic_is_created_again(cluster: FakeCluster, engine: str) -> None:
    """A consumer reads a topic that was deleted and created again from its start."""
    cluster.create_topic("t")
    cluster.produce("t", ["a", "b"])
    with consumer_of(cluster, engine, metadata_max_age_ms=200) as consumer:
        assert [b"a", b"b"] == read(consumer, 2)
        cluster.delete_topic("t")
        cluster.create_topic("t")
        cluster.produce("t", ["c", "d", "e"])
        assert [b"c", b"d", b"e"] == read(consumer, 3)


def test_without_session_slots(engine: str) -> None:
    """A consumer reads from brokers that have no room for fetch sessions, and after a restart loses nothing."""
    with FakeCluster(max_incremental_fetch_session_cache_slots=0) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", "a")
        with consumer_of(cluster, engine) as consumer:
            assert [b"a"] == read(consumer, 1)
            cluster.kill(1)
            cluster.start(1)
            cluster.produce("t", "b")
            assert [b"b"] == read(consumer, 1)


def test_the_system_clock_is_adjusted(cluster: FakeCluster, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers have the wall clock of the system, also after it was set to another time."""
    cluster.create_topic("t", message_timestamp_type="LogAppendTime")
    adjusted = Clock().wall_ms() + 3_600_000
    monkeypatch.setattr(Clock, "wall_ms", lambda _: adjusted)
    cluster.produce("t", [b"a"])
    with consumer_of(cluster, engine) as consumer:
        (record,) = consumer.poll(DEADLINE_S)
    assert adjusted == record.timestamp
