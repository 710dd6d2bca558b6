"""Whole consumers without a reset policy notice on FakeCluster that an unclean election has truncated their log."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kconsumer import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kconsumer.errors import LogTruncationError
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)
DEADLINE_S = 20


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster whose topic has four records, of which only the leader has the last two."""
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("t", replication_factor=2, unclean_leader_election_enable=True)
        cluster.produce("t", ["kept0", "kept1"])
        cluster.kill(2)
        cluster.produce("t", ["lost2", "lost3"])
        yield cluster


def lose_records(cluster: FakeCluster) -> None:
    """Lose the records from offset 2 on by an unclean election, and write another one in their place."""
    cluster.kill(1)
    cluster.start(2)
    cluster.produce("t", "new2")


@pytest.fixture(params=["classic", "threaded"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def consumer_of(cluster: FakeCluster, engine: str) -> Consumer:
    """Returns a consumer of the partition that commits only on request."""
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="none",
        enable_auto_commit=False,
        retry_backoff_ms=20,
        fetch_max_wait_ms=100,
        engine="threaded" if engine == "threaded" else "classic",
    )
    consumer.assign([TP])
    return consumer


@pytest.fixture
def consumer(cluster: FakeCluster, engine: str) -> Iterator[Consumer]:
    """A consumer that begins with the first record."""
    with consumer_of(cluster, engine) as consumer:
        consumer.seek(TP, 0)
        yield consumer


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Returns the values of the next records."""
    records: list[ConsumerRecord] = []
    end = time.monotonic() + DEADLINE_S
    while len(records) < count:
        assert time.monotonic() < end, f"only {records} were returned"
        records.extend(consumer.poll(0.1))
    return [record.value for record in records]


def test_poll(cluster: FakeCluster, consumer: Consumer) -> None:
    """`poll` raises LogTruncationError with the offset at which the logs diverge."""
    read(consumer, 4)
    lose_records(cluster)
    with pytest.raises(LogTruncationError) as caught:
        read(consumer, 1)
    (divergent,) = caught.value.divergent_offsets.values()
    assert divergent is not None
    assert ({TP: 4}, 2, 0) == (caught.value.offsets, divergent.offset, divergent.leader_epoch)
    consumer.seek(TP, divergent)
    assert [b"new2"] == read(consumer, 1)


def test_position(cluster: FakeCluster, consumer: Consumer) -> None:
    """`position` waits until a position with an epoch was compared with the log, and raises LogTruncationError."""
    lose_records(cluster)
    read(consumer, 3)
    consumer.seek(TP, OffsetAndMetadata(4, "", 0))
    with pytest.raises(LogTruncationError):
        consumer.position(TP)


def test_commit(cluster: FakeCluster, consumer: Consumer, engine: str) -> None:
    """A position that awaits its comparison with the log is committed with its epoch, so the next consumer compares
    it."""
    lose_records(cluster)
    read(consumer, 3)
    consumer.seek(TP, OffsetAndMetadata(4, "", 0))
    assert "await_validation" == consumer.partition_states()[TP].state.value
    consumer.commit()
    assert {TP: OffsetAndMetadata(4, "", 0)} == consumer.committed([TP])
    with consumer_of(cluster, engine) as successor, pytest.raises(LogTruncationError):
        successor.poll(DEADLINE_S)
