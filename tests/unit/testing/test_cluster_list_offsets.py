"""What the cluster model responds to ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kconsumer.schema.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.testing.batches import build_batch
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


def test_errors(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """Unknown topics, followers and other leader epochs are errors."""
    assert [(Errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)] == list_offsets(client, LATEST, topic="absent")
    follower = ClusterClient(cluster, clock, 2)
    assert [(Errors.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)] == list_offsets(follower, LATEST)
    assert [(Errors.NONE, -1, 0, 0)] == list_offsets(follower, LATEST, replica_id=-2)
    assert [(Errors.UNKNOWN_LEADER_EPOCH, -1, -1, -1)] == list_offsets(client, LATEST, epoch=1)
    cluster.move_leader("t", 0, 1)
    assert [(Errors.FENCED_LEADER_EPOCH, -1, -1, -1)] == list_offsets(client, LATEST, epoch=0)


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


# --- OffsetForLeaderEpoch ---


def epoch_end(client: ClusterClient, epoch: int, *, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
    """Returns error code, leader epoch and end offset."""
    rows = [OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=rows)])
    (found,) = client.call(OFFSET_FOR_LEADER_EPOCH, 4, request).topics
    (row,) = found.partitions
    return row.error_code, row.leader_epoch, row.end_offset


def test_offset_for_leader_epoch_errors(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """Unknown topics, followers and other leader epochs are errors."""
    assert (Errors.UNKNOWN_TOPIC_OR_PARTITION, -1, -1) == epoch_end(client, 0, topic="absent")
    assert (Errors.NOT_LEADER_OR_FOLLOWER, -1, -1) == epoch_end(ClusterClient(cluster, clock, 2), 0)
    assert (Errors.UNKNOWN_LEADER_EPOCH, -1, -1) == epoch_end(client, 0, current=1)
