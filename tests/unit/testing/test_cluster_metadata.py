"""What the cluster model responds to ApiVersions, Metadata and FindCoordinator."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import encode_request
from kconsumer.schema.metadata import (
    API_VERSIONS,
    METADATA,
    ApiVersionsRequest,
    MetadataRequest,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3, racks=["a", "b", "c"])


def test_api_versions_in_an_unknown_version(client: ClusterClient) -> None:
    """An ApiVersions request in a version that the broker lacks gets UNSUPPORTED_VERSION and the versions, in v0."""
    data = bytearray(
        encode_request(
            API_VERSIONS, 4, 7, None, ApiVersionsRequest(client_software_name="test", client_software_version="1")
        )
    )
    data[6:8] = (99).to_bytes(2)
    client.connection.receive(bytes(data), 0)
    response = client.connection.take_output()
    assert (7, Errors.UNSUPPORTED_VERSION) == (int.from_bytes(response[4:8]), int.from_bytes(response[8:10]))
    assert not client.connection.closed


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", bytes([0, 0, 0, 2, 1, 2]), bytes([0, 0, 0, 9, 0, 3, 0, 99, *b"12345"])]
)
def test_a_malformed_request_closes_the_connection(client: ClusterClient, data: bytes) -> None:
    """A negative size, a frame without a header and an unsupported version close the connection."""
    client.connection.receive(data, 0)
    assert client.connection.closed


def test_a_stopped_broker_leads_nothing(cluster: Cluster) -> None:
    """When a broker stops, an in-sync replica becomes the leader with the next leader epoch; otherwise none does."""
    cluster.create_topic("t", 1, 2)
    cluster.create_topic("alone", 1, 1)
    client = ClusterClient(cluster, VirtualClock(), broker=3)
    cluster.kill(1)
    response = client.call(METADATA, 9, MetadataRequest(topics=None))
    rows = {topic.name: topic.partitions[0] for topic in response.topics}
    assert (2, 1, 0) == (rows["t"].leader_id, rows["t"].leader_epoch, rows["t"].error_code)
    assert (-1, Errors.LEADER_NOT_AVAILABLE) == (rows["alone"].leader_id, rows["alone"].error_code)
    assert [2, 3] == [broker.node_id for broker in response.brokers]
    cluster.start(1)
    assert [1] == [partition.leader for partition in cluster.topics["alone"].partitions]


@pytest.mark.parametrize(("release", "isr"), [("4.0", [1]), ("4.1", [])])
def test_offline_replicas(release: str, isr: list[int]) -> None:
    """Replicas on stopped brokers are offline. Since Kafka 4.1 a partition without a leader has no in-sync replicas."""
    cluster = Cluster(2, release=release)
    cluster.create_topic("t", 2)
    cluster.create_topic("both", 1, 2)
    cluster.kill(1)
    client = ClusterClient(cluster, VirtualClock(), 2)
    response = client.call(METADATA, 12, MetadataRequest(topics=None))
    rows = {
        (topic.name, row.partition_index): (row.leader_id, row.isr_nodes, row.offline_replicas)
        for topic in response.topics
        for row in topic.partitions
    }
    assert {("t", 0): (-1, isr, [1]), ("t", 1): (2, [2], []), ("both", 0): (2, [2], [1])} == rows
