"""What the cluster model responds to ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema import LIST_OFFSETS
from kconsumer.schema.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import Partition
from support.fakes.cluster_client import ClusterClient, advance

LATEST, EARLIEST = -1, -2


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
