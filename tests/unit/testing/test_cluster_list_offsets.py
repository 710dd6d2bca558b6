"""What the cluster model responds to ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.error_codes import Errors
from kconsumer.schema import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kconsumer.schema.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import Partition
from support.fakes.cluster_client import ClusterClient, advance

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    cluster.create_topic("t", 1, 3)
    return cluster


@pytest.fixture
def client(cluster: Cluster, clock: VirtualClock) -> ClusterClient:
    return ClusterClient(cluster, clock)


@pytest.fixture
def partition(cluster: Cluster) -> Partition:
    return cluster.topics["t"].partitions[0]


def list_offsets(
    client: ClusterClient, *asked: int, version: int = 10, topic: str = "t", epoch: int = -1, **fields: int
) -> list[Any]:
    """Returns the rows for timestamps in partition 0: error code, timestamp, offset and leader epoch."""
    rows = [ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=epoch) for timestamp in asked]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=rows)], **fields)
    response = client.call(LIST_OFFSETS, version, request)
    return [
        (row.error_code, row.timestamp, row.offset, row.leader_epoch)
        for topic in response.topics
        for row in topic.partitions
    ]


def lookup(client: ClusterClient, timestamp: int, **fields: Any) -> tuple[int, int, int]:
    """Returns timestamp, offset and leader epoch."""
    ((error, *found),) = list_offsets(client, timestamp, **fields)
    assert Errors.NONE == error
    return found[0], found[1], found[2]


def test_earliest_and_latest(cluster: Cluster, client: ClusterClient, partition: Partition) -> None:
    """The earliest offset is the start of the log, and the latest one the high watermark, each with its epoch."""
    assert [(-1, 0, 0), (-1, 0, 0)] == [lookup(client, timestamp) for timestamp in (EARLIEST, LATEST)]
    partition.append(build_batch([b"a", b"b"]), 5)
    cluster.move_leader("t", 0, 1)
    partition.append(build_batch([b"c", b"d"]), 5)
    partition.log.delete_before(1)
    assert [(-1, 1, 0), (-1, 4, 1)] == [lookup(client, timestamp) for timestamp in (EARLIEST, LATEST)]
    assert [(-1, 1, 0), (-1, -1, -1)] == [lookup(client, timestamp) for timestamp in (EARLIEST_LOCAL, LATEST_TIERED)]


def test_timestamps(client: ClusterClient, partition: Partition) -> None:
    """A lookup by time finds the first record that is not older."""
    partition.append(build_batch([Rec(b"a", timestamp=10), Rec(b"b", timestamp=30), Rec(b"c", timestamp=20)]), 5)
    found = [lookup(client, timestamp) for timestamp in (0, 10, 11, 30, 31, MAX_TIMESTAMP)]
    assert [(10, 0, 0), (10, 0, 0), (30, 1, 0), (30, 1, 0), (-1, -1, -1), (30, 1, 0)] == found


def test_isolation(client: ClusterClient, partition: Partition) -> None:
    """With read_committed the latest offset is the last stable one, and later records are not found."""
    partition.append(build_batch([b"a"], timestamp=1), 5)
    partition.append(build_batch([b"b"], timestamp=2, producer_id=7, producer_epoch=0, transactional=True), 5)
    assert (-1, 1, 0) == lookup(client, LATEST, isolation_level=1)
    assert (-1, 2, 0) == lookup(client, LATEST)
    assert (-1, -1, -1) == lookup(client, 2, isolation_level=1)
    assert (2, 1, 0) == lookup(client, 2)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)],
)
def test_special_timestamps_by_version(client: ClusterClient, timestamp: int, version: int) -> None:
    """A special timestamp is unsupported in versions before it was added."""
    ((error, *_),) = list_offsets(client, timestamp, version=version)
    assert Errors.NONE == error
    assert [(Errors.UNSUPPORTED_VERSION, -1, -1, -1)] == list_offsets(client, timestamp, version=version - 1)
    assert [(Errors.UNSUPPORTED_VERSION, -1, -1, -1)] == list_offsets(client, -99, version=version)


def test_errors(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """Unknown topics, followers and other leader epochs are errors."""
    assert [(Errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)] == list_offsets(client, LATEST, topic="absent")
    follower = ClusterClient(cluster, clock, 2)
    assert [(Errors.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)] == list_offsets(follower, LATEST)
    assert [(Errors.NONE, -1, 0, 0)] == list_offsets(follower, LATEST, replica_id=-2)
    assert [(Errors.UNKNOWN_LEADER_EPOCH, -1, -1, -1)] == list_offsets(client, LATEST, epoch=1)
    cluster.move_leader("t", 0, 1)
    assert [(Errors.FENCED_LEADER_EPOCH, -1, -1, -1)] == list_offsets(client, LATEST, epoch=0)


@pytest.mark.parametrize(("release", "rows"), [("3.9", 2), ("4.0", 1)])
def test_a_partition_that_occurs_twice(release: str, rows: int) -> None:
    """A partition that occurs twice in a request is an error, in one row since Kafka 4.0."""
    cluster = Cluster(release=release)
    cluster.create_topic("t")
    found = list_offsets(ClusterClient(cluster, VirtualClock()), LATEST, EARLIEST, version=9)
    assert [(Errors.INVALID_REQUEST, -1, -1, -1)] * rows == found


@pytest.mark.parametrize(("version", "error"), [(4, Errors.LEADER_NOT_AVAILABLE), (5, Errors.OFFSET_NOT_AVAILABLE)])
def test_a_new_leader_that_is_not_replicated(
    cluster: Cluster, clock: VirtualClock, client: ClusterClient, partition: Partition, version: int, error: int
) -> None:
    """The end is unknown until the records that a new leader had are replicated. The start is known."""
    cluster.replication.stop_replica(partition, 3, clock.now())
    partition.append(build_batch([b"a"], timestamp=9), 5)
    assert (-1, 0, 0) == lookup(client, LATEST, version=version)
    cluster.move_leader("t", 0, 2)
    client = ClusterClient(cluster, clock, 2)
    for timestamp in (LATEST, 0):
        assert [(error, -1, -1, -1)] == list_offsets(client, timestamp, version=version)
    assert (-1, 0, 0) == lookup(client, EARLIEST, version=version)
    advance(cluster, clock, 30_000)  # replica.lag.time.max.ms
    assert [(-1, 1, 1), (9, 0, 0)] == [lookup(client, timestamp, version=version) for timestamp in (LATEST, 0)]


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version(client: ClusterClient, partition: Partition, version: int) -> None:
    """Each version has the offset; leader epochs are there since v4."""
    partition.append(build_batch([b"a"]), 5)
    assert (-1, 1, 0 if version >= 4 else -1) == lookup(client, LATEST, version=version)


# --- OffsetForLeaderEpoch ---


def epoch_end(client: ClusterClient, epoch: int, *, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
    """Returns error code, leader epoch and end offset."""
    rows = [OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=rows)])
    (found,) = client.call(OFFSET_FOR_LEADER_EPOCH, 4, request).topics
    (row,) = found.partitions
    return row.error_code, row.leader_epoch, row.end_offset


def test_offset_for_leader_epoch(cluster: Cluster, client: ClusterClient, partition: Partition) -> None:
    """The end of a leader epoch is the start of the next one; an epoch that never led has the one before it."""
    partition.append(build_batch([b"a", b"b"]), 5)
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    partition.append(build_batch([b"c"]), 5)
    assert [(0, 0, 2), (0, 0, 2), (0, 2, 3), (0, -1, -1)] == [epoch_end(client, epoch) for epoch in range(4)]


def test_offset_for_leader_epoch_errors(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """Unknown topics, followers and other leader epochs are errors."""
    assert (Errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1) == epoch_end(client, 0, topic="absent")
    assert (Errors.NOT_LEADER_OR_FOLLOWER, -1, -1) == epoch_end(ClusterClient(cluster, clock, 2), 0)
    assert (Errors.UNKNOWN_LEADER_EPOCH, -1, -1) == epoch_end(client, 0, current=1)
