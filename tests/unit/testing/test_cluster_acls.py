"""Access control lists of the cluster model: the rules, and where each API applies them."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.admin import LIST_GROUPS, ListGroupsRequest
from kconsumer.schema.metadata import (
    FIND_COORDINATOR,
    METADATA,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kconsumer.schema.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kconsumer.schema.transactions import (
    INIT_PRODUCER_ID,
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


def test_topics_that_may_not_be_created(cluster: Cluster, client: ClusterClient) -> None:
    """Metadata creates a topic only for a client that may create it."""
    cluster.settings.auto_create_topics_enable = True
    cluster.acls.add(Acl(USER, "DESCRIBE", "topic", "absent"))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="absent")], allow_auto_topic_creation=True)
    assert [TOPIC_DENIED] == [row.error_code for row in client.call(METADATA, 9, asked).topics]
    cluster.acls.add(Acl(USER, "CREATE", "topic", "absent"))
    client.call(METADATA, 9, asked)
    assert "absent" in cluster.topics


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
