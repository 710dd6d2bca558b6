"""How the cluster model creates, changes and deletes topics, and what it returns of their settings."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.topics import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
