"""What the cluster model responds to ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
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
def cluster() -> Cluster:
    cluster = Cluster(3)
    cluster.create_topic("t", 1, 3)
    return cluster


def list_offsets(client: ClusterClient, timestamp: int, version: int) -> tuple[int, int, int, int]:
    """Returns the error code, timestamp, offset and leader epoch for a timestamp in partition 0."""
    rows = [ListOffsetsPartition(timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=rows)])
    ((row,),) = [topic.partitions for topic in client.call(LIST_OFFSETS, version, request).topics]
    return row.error_code, row.timestamp, row.offset, row.leader_epoch


@pytest.mark.parametrize(("version", "error"), [(4, Errors.LEADER_NOT_AVAILABLE), (5, Errors.OFFSET_NOT_AVAILABLE)])
def test_a_new_leader_that_is_not_replicated(
    cluster: Cluster, clock: VirtualClock, client: ClusterClient, partition: Partition, version: int, error: int
) -> None:
    """The end is unknown until the records that a new leader had are replicated. The start is known."""
    cluster.replication.stop_replica(partition, 3, clock.now())
    partition.append(build_batch([b"a"], timestamp=9), 5)
    assert (0, -1, 0, 0) == list_offsets(client, LATEST, version)
    cluster.move_leader("t", 0, 2)
    client = ClusterClient(cluster, clock, 2)
    for timestamp in (LATEST, 0):
        assert (error, -1, -1, -1) == list_offsets(client, timestamp, version)
    assert (0, -1, 0, 0) == list_offsets(client, EARLIEST, version)
    advance(cluster, clock, 30_000)  # replica.lag.time.max.ms
    assert [(0, -1, 1, 1), (0, 9, 0, 0)] == [list_offsets(client, timestamp, version) for timestamp in (LATEST, 0)]
