"""What the cluster model responds to ApiVersions, Metadata and FindCoordinator."""

from __future__ import annotations

import pytest

from kconsumer._core.codec import encode_request
from kconsumer.error_codes import Errors
from kconsumer.schema import API_VERSIONS, FIND_COORDINATOR, METADATA
from kconsumer.schema.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kconsumer.schema.produce import PRODUCE
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.hashes import java_hash
from kconsumer.testing.cluster.releases import apis
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import ClusterClient


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3, racks=["a", "b", "c"])


@pytest.fixture
def client(cluster: Cluster) -> ClusterClient:
    return ClusterClient(cluster, VirtualClock())


def test_api_versions(client: ClusterClient) -> None:
    """ApiVersions lists the APIs of the model, each with versions that the wire tables have."""
    response = client.call(
        API_VERSIONS, 4, ApiVersionsRequest(client_software_name="test", client_software_version="1")
    )
    assert API_VERSIONS.key in [row.api_key for row in response.api_keys]
    for row in response.api_keys:
        api = apis()[row.api_key]
        assert (0 if api is PRODUCE else api.min_version) <= row.min_version <= row.max_version <= api.max_version
    levels = {row.name: row.max_version_level for row in response.finalized_features}
    assert {"group.version": 1, "transaction.version": 2} == levels


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


def test_bytes_after_a_request(client: ClusterClient) -> None:
    """Bytes after the message of a request are ignored, as in Kafka: librdkafka sends some."""
    data = bytearray(encode_request(METADATA, 12, 7, None, MetadataRequest()) + b"\1\0\0")
    data[:4] = (len(data) - 4).to_bytes(4)
    client.connection.receive(bytes(data), 0)
    assert 7 == int.from_bytes(client.connection.take_output()[4:8])


def test_topics_and_leaders(cluster: Cluster, client: ClusterClient) -> None:
    """Metadata lists the brokers, and the leader and replicas of each partition of the requested topics."""
    cluster.create_topic("t", 2, 2)
    response = client.call(METADATA, 13, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert [(1, "a"), (2, "b"), (3, "c")] == [(broker.node_id, broker.rack) for broker in response.brokers]
    (topic,) = response.topics
    rows = [(row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes) for row in topic.partitions]
    assert [(1, 0, [1, 2], [1, 2]), (2, 0, [2, 3], [2, 3])] == rows
    by_id = client.call(
        METADATA, 13, MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id, name=None)])
    )
    assert [topic] == by_id.topics


@pytest.mark.parametrize(
    ("name", "error"),
    [("absent", Errors.UNKNOWN_TOPIC_OR_PARTITION), ("a b", Errors.INVALID_TOPIC_EXCEPTION)],
)
def test_a_topic_that_does_not_exist(client: ClusterClient, name: str, error: int) -> None:
    """An unknown topic and a name that Kafka does not accept get their errors."""
    response = client.call(METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    assert [(name, error)] == [(row.name, row.error_code) for row in response.topics]


def test_automatic_creation() -> None:
    """With auto_create_topics_enable, a topic that a client asks for exists in the next response."""
    cluster = Cluster(settings=Settings(auto_create_topics_enable=True, num_partitions=4))
    client = ClusterClient(cluster, VirtualClock())
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    client.call(METADATA, 9, request)
    assert [4] == [len(row.partitions) for row in client.call(METADATA, 9, request).topics]


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


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_find_coordinator(cluster: Cluster, client: ClusterClient, version: int) -> None:
    """The coordinator of a group is the leader of the partition of the offsets topic to which the group belongs."""
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    response = client.call(FIND_COORDINATOR, version, request)
    row = response.coordinators[0] if version >= 4 else response
    assert cluster.topics["__consumer_offsets"].partitions[java_hash("g") % 50].leader == row.node_id


def test_java_hash() -> None:
    """The hash is the absolute value of Java's, also for characters beyond the Basic Multilingual Plane."""
    assert 1008770331 == java_hash("orders")  # Java has -1008770331
    assert 0 == java_hash("polygenelubricants")  # the smallest number
    assert 97 == java_hash("a")
    assert 96354 == java_hash("abc")
    assert 1906497762 == java_hash("my-group")
    assert 1772899 == java_hash("\U0001f600")


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
