"""Access control lists of the cluster model: the rules, and where each API applies them."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.admin import DESCRIBE_GROUPS, LIST_GROUPS, DescribeGroupsRequest, ListGroupsRequest
from kconsumer.schema.classic_group import HEARTBEAT, HeartbeatRequest
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from kconsumer.schema.metadata import (
    FIND_COORDINATOR,
    METADATA,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kconsumer.schema.topics import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kconsumer.schema.transactions import (
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from kconsumer.testing.cluster.acls import Acl
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient

USER = "User:ANONYMOUS"
TOPIC_DENIED, GROUP_DENIED = Errors.TOPIC_AUTHORIZATION_FAILED, Errors.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def cluster() -> Cluster:
    """A cluster with the topics "open" and "shut", of which a client may use the first one, and the group "mine"."""
    cluster = Cluster()
    for name in ("open", "shut"):
        cluster.create_topic(name)
    cluster.acls.add(Acl(USER, "ALL", "topic", "open"))
    cluster.acls.add(Acl(USER, "READ", "group", "mine"))
    return cluster


def test_metadata(client: ClusterClient) -> None:
    """A topic that may not be described has an error, known or not; of all topics, it is left out."""
    names = ["open", "shut", "absent"]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    rows = {row.name: row.error_code for row in client.call(METADATA, 9, asked).topics}
    assert {"open": 0, "shut": TOPIC_DENIED, "absent": TOPIC_DENIED} == rows
    assert ["open"] == [row.name for row in client.call(METADATA, 9, MetadataRequest(topics=None)).topics]


def test_topics_that_may_not_be_created(cluster: Cluster, client: ClusterClient) -> None:
    """Metadata creates a topic only for a client that may create it."""
    cluster.settings.auto_create_topics_enable = True
    cluster.acls.add(Acl(USER, "DESCRIBE", "topic", "absent"))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="absent")], allow_auto_topic_creation=True)
    assert [TOPIC_DENIED] == [row.error_code for row in client.call(METADATA, 9, asked).topics]
    cluster.acls.add(Acl(USER, "CREATE", "topic", "absent"))
    client.call(METADATA, 9, asked)
    assert "absent" in cluster.topics


def test_fetch(client: ClusterClient) -> None:
    """A partition that may not be read has an error, and the others have their records."""
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=100)]) for name in ("open", "shut")]
    response = client.call(FETCH, 11, FetchRequest(topics=topics, session_epoch=-1, max_bytes=1000))
    rows = {topic.topic: topic.partitions[0].error_code for topic in response.responses}
    assert {"open": 0, "shut": TOPIC_DENIED} == rows


def test_list_offsets(client: ClusterClient) -> None:
    """Offsets are listed for topics that may be described."""
    topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)]) for name in ("open", "shut")]
    response = client.call(LIST_OFFSETS, 5, ListOffsetsRequest(topics=topics))
    assert {"open": 0, "shut": TOPIC_DENIED} == {row.name: row.partitions[0].error_code for row in response.topics}


def test_configs(cluster: Cluster, client: ClusterClient) -> None:
    """READ does not allow to read or change the settings of a topic; those of a broker belong to the cluster."""
    cluster.acls.add(Acl(USER, "READ", "topic", "shut"))
    asked = [(2, "open"), (2, "shut"), (4, "1"), (32, "mine")]
    wanted = [0, TOPIC_DENIED, Errors.CLUSTER_AUTHORIZATION_FAILED, GROUP_DENIED]
    described = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in asked]
    response = client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=described))
    assert wanted == [row.error_code for row in response.results]
    altered = [AlterConfigsResource(resource_type=kind, resource_name=name) for kind, name in asked]
    response = client.call(INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=altered))
    assert wanted == [row.error_code for row in response.responses]


def test_partitions_of_transactions(cluster: Cluster, client: ClusterClient) -> None:
    """Without WRITE for one topic, no partition is added to a transaction."""
    cluster.acls.add(Acl(USER, "WRITE", "transactional_id", "x"))
    producer = client.call(
        INIT_PRODUCER_ID, 1, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    )
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("open", "shut")],
    )
    topics = client.call(ADD_PARTITIONS_TO_TXN, 3, request).results_by_topic_v3_and_below
    found = {topic.name: topic.results_by_partition[0].partition_error_code for topic in topics}
    assert {"open": Errors.OPERATION_NOT_ATTEMPTED, "shut": TOPIC_DENIED} == found


def commit(group: str, *topics: str) -> OffsetCommitRequest:
    """Returns a commit of offset 5 in each topic."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(committed_offset=5)])
            for name in topics
        ],
    )


def committed(response: Any) -> dict[str, int]:
    """Returns the error code of each topic."""
    return {topic.name: topic.partitions[0].error_code for topic in response.topics}


def test_commits(cluster: Cluster, client: ClusterClient) -> None:
    """A commit needs read access to the group, and to each topic."""
    assert {"open": 0, "shut": TOPIC_DENIED} == committed(client.call(OFFSET_COMMIT, 8, commit("mine", "open", "shut")))
    assert {"open": GROUP_DENIED} == committed(client.call(OFFSET_COMMIT, 8, commit("other", "open")))
    assert ["open"] == list(cluster.offsets.of_group("mine"))
    assert {} == cluster.offsets.of_group("other")


@pytest.mark.parametrize("named", [True, False])
def test_committed_offsets(cluster: Cluster, client: ClusterClient, named: bool) -> None:
    """Committed offsets need describe access to the group and the topic. Of all topics, others are left out."""
    cluster.acls.add(Acl(USER, "READ", "topic", "shut"))
    client.call(OFFSET_COMMIT, 8, commit("mine", "open", "shut"))
    cluster.acls.remove(Acl(USER, "READ", "topic", "shut"))
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("open", "shut")]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=topics if named else None) for name in ("mine", "other")]
    response = client.call(OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    assert {"mine": 0, "other": GROUP_DENIED} == {group.group_id: group.error_code for group in response.groups}
    mine = next(group for group in response.groups if group.group_id == "mine")
    rows = {row.name: (row.partitions[0].error_code, row.partitions[0].committed_offset) for row in mine.topics}
    assert {"open": (0, 5), **({"shut": (TOPIC_DENIED, -1)} if named else {})} == rows


@pytest.mark.parametrize("version", [3, 4])
def test_coordinators(client: ClusterClient, version: int) -> None:
    """The coordinator of a group needs describe access to the group."""
    found = {}
    for name in ("mine", "other"):
        message = FindCoordinatorRequest(key=name, coordinator_keys=[name])
        response = client.call(FIND_COORDINATOR, version, message)
        found[name] = (response.coordinators[0] if version == 4 else response).error_code
    assert {"mine": 0, "other": GROUP_DENIED} == found


def test_groups(client: ClusterClient) -> None:
    """Members, descriptions and lists of groups need access to the group."""
    client.call(OFFSET_COMMIT, 8, commit("mine", "open"))
    heartbeat = client.call(HEARTBEAT, 4, HeartbeatRequest(group_id="other", member_id="m"))
    assert GROUP_DENIED == heartbeat.error_code
    described = client.call(DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["mine", "other"]))
    assert {"mine": 0, "other": GROUP_DENIED} == {row.group_id: row.error_code for row in described.groups}
    assert ["mine"] == [row.group_id for row in client.call(LIST_GROUPS, 4, ListGroupsRequest()).groups]


def test_listed_groups(cluster: Cluster, client: ClusterClient) -> None:
    """ListGroups leaves out groups that may not be described, unless the cluster may be."""
    client.call(OFFSET_COMMIT, 8, commit("mine", "open"))
    cluster.acls.remove(Acl(USER, "READ", "group", "mine"))
    assert [] == client.call(LIST_GROUPS, 4, ListGroupsRequest()).groups
    cluster.acls.add(Acl(USER, "DESCRIBE", "cluster"))
    assert ["mine"] == [row.group_id for row in client.call(LIST_GROUPS, 4, ListGroupsRequest()).groups]


def test_producer_ids(cluster: Cluster, client: ClusterClient) -> None:
    """An idempotent producer needs write access to any topic; a transactional one to its transactional id."""
    idempotent = InitProducerIdRequest(transactional_id=None)
    transactional = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    errors = [client.call(INIT_PRODUCER_ID, 4, message).error_code for message in (idempotent, transactional)]
    assert [0, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] == errors
    cluster.acls.remove(Acl(USER, "ALL", "topic", "open"))
    assert Errors.CLUSTER_AUTHORIZATION_FAILED == client.call(INIT_PRODUCER_ID, 4, idempotent).error_code
