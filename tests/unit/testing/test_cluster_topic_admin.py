"""How the cluster model creates, changes and deletes topics, and what it returns of their settings."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.topics import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
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
