"""How the cluster model creates, changes and deletes topics, and what it returns of their settings."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.error_codes import Errors
from kconsumer.schema.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient

TOPIC, BROKER = 2, 4  # types of resources


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


@pytest.fixture
def client(cluster: Cluster) -> ClusterClient:
    return ClusterClient(cluster, VirtualClock())


def create(client: ClusterClient, version: int = 7, validate_only: bool = False, **fields: Any) -> Any:
    """Create topic `t`. Returns its row of the response."""
    topic = CreatableTopic(**{"name": "t", "num_partitions": 2, "replication_factor": 1, **fields})
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    return client.call(CREATE_TOPICS, version, request).topics[0]


@pytest.mark.parametrize("version", range(2, 8))
def test_create(cluster: Cluster, client: ClusterClient, version: int) -> None:
    """A topic gets its partitions, replicas and settings; newer versions return them."""
    configs = [CreatableTopicConfig(name="retention.ms", value="5")]
    row = create(client, version, replication_factor=2, configs=configs)
    assert 0 == row.error_code
    topic = cluster.topics["t"]
    assert 2 == len(topic.partitions)
    assert all((b - a) % 3 == 1 for a, b in (partition.replicas for partition in topic.partitions))
    assert "5" == topic.configs["retention.ms"]
    if version >= 5:
        assert (2, 2) == (row.num_partitions, row.replication_factor)
        assert ["5"] == [config.value for config in row.configs if config.name == "retention.ms"]
    if version >= 7:
        assert topic.id == row.topic_id


def test_brokers_decide_the_sizes(cluster: Cluster, client: ClusterClient) -> None:
    """With -1 the topic gets the brokers' numbers of partitions and replicas (KIP-464)."""
    row = create(client, num_partitions=-1, replication_factor=-1)
    assert (0, 1, 1) == (row.error_code, row.num_partitions, row.replication_factor)


def test_given_assignments(cluster: Cluster, client: ClusterClient) -> None:
    """A request may assign the replicas; the first one leads."""
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[3, 1])]
    row = create(client, num_partitions=-1, replication_factor=-1, assignments=assignments)
    assert 0 == row.error_code
    (partition,) = cluster.topics["t"].partitions
    assert ([3, 1], 3) == (partition.replicas, partition.leader)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "a b"}, Errors.INVALID_TOPIC_EXCEPTION),
        ({"name": "old"}, Errors.TOPIC_ALREADY_EXISTS),
        ({"num_partitions": 0}, Errors.INVALID_PARTITIONS),
        ({"replication_factor": 4}, Errors.INVALID_REPLICATION_FACTOR),
        ({"configs": [CreatableTopicConfig(name="x", value="y")]}, Errors.INVALID_CONFIG),
        ({"assignments": [CreatableReplicaAssignment(broker_ids=[1])]}, Errors.INVALID_REQUEST),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [CreatableReplicaAssignment(broker_ids=[9])],
            },
            Errors.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_refused_topics(cluster: Cluster, client: ClusterClient, fields: dict[str, Any], error: int) -> None:
    """Each invalid topic gets Kafka's error and a message, and is not created."""
    cluster.create_topic("old")
    row = create(client, **fields)
    assert (error, True) == (row.error_code, bool(row.error_message))
    assert ["old"] == list(cluster.topics)


def test_validate_only(cluster: Cluster, client: ClusterClient) -> None:
    """With validate_only nothing is created."""
    assert 0 == create(client, validate_only=True).error_code
    assert {} == cluster.topics


def test_the_same_name_twice(client: ClusterClient) -> None:
    """A request that names a topic twice creates none of the two."""
    topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)] * 2
    rows = client.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics)).topics
    assert {Errors.INVALID_REQUEST} == {row.error_code for row in rows}


@pytest.mark.parametrize("version", [1, 5, 6])
def test_delete(cluster: Cluster, client: ClusterClient, version: int) -> None:
    """A topic is deleted by name; a new topic of the same name has another id."""
    first = cluster.create_topic("t").id
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=1)
    assert [0] == [row.error_code for row in client.call(DELETE_TOPICS, version, request).responses]
    (again,) = client.call(DELETE_TOPICS, version, request).responses
    assert Errors.UNKNOWN_TOPIC_OR_PARTITION == again.error_code
    assert first != cluster.create_topic("t").id


def test_delete_by_id(cluster: Cluster, client: ClusterClient) -> None:
    """Since version 6 a topic may be deleted by its id."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=cluster.create_topic("t").id)])
    rows = [client.call(DELETE_TOPICS, 6, request).responses[0] for _ in range(2)]
    assert [("t", 0), (None, Errors.UNKNOWN_TOPIC_ID)] == [(row.name, row.error_code) for row in rows]


def test_more_partitions(cluster: Cluster, client: ClusterClient) -> None:
    """CreatePartitions adds partitions up to the given number; it cannot remove any."""
    cluster.create_topic("t", 1)
    assignments = [CreatePartitionsAssignment(broker_ids=[3])]
    rows = [CreatePartitionsTopic(name="t", count=count, assignments=assignments) for count in (2, 2, 1)]
    rows += [CreatePartitionsTopic(name="x", count=1, assignments=None)]
    rows += [CreatePartitionsTopic(name="t", count=9, assignments=assignments)]
    results = [client.call(CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[row])).results[0] for row in rows]
    invalid = Errors.INVALID_PARTITIONS
    wanted = [0, invalid, invalid, Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.INVALID_REPLICA_ASSIGNMENT]
    assert wanted == [row.error_code for row in results]
    assert [1, 3] == [partition.leader for partition in cluster.topics["t"].partitions]


@pytest.mark.parametrize(
    ("offset", "error", "start"),
    [
        (1, Errors.NONE, 1),
        (-1, Errors.NONE, 3),
        (4, Errors.OFFSET_OUT_OF_RANGE, -1),
        (-2, Errors.OFFSET_OUT_OF_RANGE, -1),
    ],
)
def test_delete_records(cluster: Cluster, client: ClusterClient, offset: int, error: int, start: int) -> None:
    """DeleteRecords moves the start of the log, to the high watermark with -1."""
    partition = cluster.create_topic("t").partitions[0]
    partition.append(build_batch([b"a", b"b", b"c"]), 0)
    rows = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=rows)])
    (row,) = client.call(DELETE_RECORDS, 2, request).topics[0].partitions
    assert (error, start) == (row.error_code, row.low_watermark)
    assert max(0, start) == partition.log.start


def test_settings_of_a_topic(cluster: Cluster, client: ClusterClient) -> None:
    """Settings of a topic can be changed, and DescribeConfigs returns them with their source."""
    cluster.create_topic("t")
    configs = [
        AlterableConfig(name="retention.ms", config_operation=0, value="7"),
        AlterableConfig(name="cleanup.policy", config_operation=2, value="compact"),
    ]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    assert 0 == client.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code
    keys = ["retention.ms", "cleanup.policy", "retention.bytes"]
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=keys)
    (result,) = client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[asked])).results
    found = {row.name: (row.value, row.config_source) for row in result.configs}
    assert {"retention.ms": ("7", 1), "cleanup.policy": ("delete,compact", 1), "retention.bytes": ("-1", 5)} == found
    configs[:] = [AlterableConfig(name="retention.ms", config_operation=1, value=None)]
    configs += [AlterableConfig(name="cleanup.policy", config_operation=3, value="delete")]
    client.call(INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert ("604800000", "compact") == tuple(cluster.topics["t"].configs[key] for key in keys[:2])


def test_settings_that_cannot_be_changed(cluster: Cluster, client: ClusterClient) -> None:
    """Unknown settings, unknown topics and brokers are refused, and nothing is changed."""
    topic = cluster.create_topic("t")
    good = AlterableConfig(name="retention.ms", config_operation=0, value="7")
    bad = AlterableConfig(name="x", config_operation=0, value="7")
    resources = [
        AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[good, bad]),
        AlterConfigsResource(resource_type=TOPIC, resource_name="u", configs=[good]),
        AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[good]),
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    rows = client.call(INCREMENTAL_ALTER_CONFIGS, 0, request).responses
    wanted = [Errors.INVALID_CONFIG, Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.INVALID_REQUEST]
    assert wanted == [row.error_code for row in rows]
    assert "604800000" == topic.configs["retention.ms"]


def test_settings_of_a_broker(client: ClusterClient) -> None:
    """DescribeConfigs returns the settings of a broker by Kafka's names; an unknown topic is an error."""
    asked = [
        DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None),
        DescribeConfigsResource(resource_type=TOPIC, resource_name="x", configuration_keys=None),
        DescribeConfigsResource(resource_type=99, resource_name="x", configuration_keys=None),
    ]
    broker, topic, other = client.call(DESCRIBE_CONFIGS, 1, DescribeConfigsRequest(resources=asked)).results
    found = {row.name: row.value for row in broker.configs}
    assert ("false", "uniform,range") == (found["auto.create.topics.enable"], found["group.consumer.assignors"])
    assert (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.INVALID_REQUEST) == (topic.error_code, other.error_code)


def test_describe_cluster(cluster: Cluster, client: ClusterClient) -> None:
    """DescribeCluster returns the running brokers."""
    cluster.kill(2)
    response = client.call(DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
    assert (cluster.id, 1, [1, 3]) == (
        response.cluster_id,
        response.controller_id,
        [broker.broker_id for broker in response.brokers],
    )


def test_topics_begin_on_different_brokers(cluster: Cluster, client: ClusterClient) -> None:
    """The partitions of a topic are on consecutive brokers. Which one is the first differs between topics."""
    names = [f"t{number}" for number in range(20)]
    for name in names:
        create(client, name=name, num_partitions=3)
    leaders = [tuple(partition.leader for partition in cluster.topics[name].partitions) for name in names]
    assert {(1, 2, 3), (2, 3, 1), (3, 1, 2)} == set(leaders)


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("min.cleanable.dirty.ratio", "0.01", True),
        ("min.cleanable.dirty.ratio", "1.5", False),
        ("min.cleanable.dirty.ratio", "half", False),
        ("preallocate", "true", True),
        ("preallocate", "yes", False),
        ("segment.index.bytes", "16384", True),
        ("leader.replication.throttled.replicas", "*", True),
    ],
)
def test_values_of_settings(client: ClusterClient, name: str, value: str, valid: bool) -> None:
    """A topic is created only if its settings have valid values, also those that have no effect in the model."""
    row = create(client, configs=[CreatableTopicConfig(name=name, value=value)])
    assert (Errors.NONE if valid else Errors.INVALID_CONFIG) == row.error_code
