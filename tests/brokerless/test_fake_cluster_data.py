"""Whole consumers with assigned partitions read from FakeCluster: positions, truncation, followers, deleted topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer._core.lock import Clock
from kconsumer.errors import LogTruncationError
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


def test_the_system_clock_is_adjusted(cluster: FakeCluster, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers have the wall clock of the system, also after it was set to another time."""
    cluster.create_topic("t", message_timestamp_type="LogAppendTime")
    adjusted = Clock().wall_ms() + 3_600_000
    monkeypatch.setattr("kconsumer._core.lock.time", lambda: adjusted / 1000)
    cluster.produce("t", [b"a"])
    with consumer_of(cluster, engine) as consumer:
        (record,) = consumer.poll(DEADLINE_S)
    assert adjusted == record.timestamp
