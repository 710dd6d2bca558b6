"""ListGroups, DescribeGroups and DeleteGroups in the cluster model."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema import DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_COMMIT
from kconsumer.schema.admin import DescribeGroupsRequest, ListGroupsRequest
from kconsumer.schema.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.classic_members import FakeMember, stable
from support.fakes.cluster_client import ClusterClient


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(cluster: Cluster, clock: VirtualClock) -> ClusterClient:
    """A client of a broker with the groups g (stable, a consumer), h (offsets only) and i (a rebalance)."""
    cluster.create_topic("t")
    client = ClusterClient(cluster, clock)
    stable(cluster, clock, FakeMember(cluster, clock, "g", instance="x"))
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
    client.call(OFFSET_COMMIT, 9, OffsetCommitRequest(group_id="h", topics=topics))
    FakeMember(cluster, clock, "i").enter()
    return client


def listed(client: ClusterClient, version: int = 5, **filters: list[str]) -> list[Any]:
    """Returns the listed groups, by name."""
    response = client.call(LIST_GROUPS, version, ListGroupsRequest(**filters))
    assert response.error_code == 0
    return sorted(response.groups, key=lambda row: row.group_id)


def test_each_broker_lists_its_groups(clock: VirtualClock) -> None:
    """A broker lists the groups that it coordinates; while it loads some, it responds with an error."""
    cluster = Cluster(2)
    names = list("abcdef")
    for name in names:
        FakeMember(cluster, clock, name).enter()
    clients = [ClusterClient(cluster, clock, broker) for broker in (1, 2)]
    found = [[row.group_id for row in listed(client)] for client in clients]
    coordinators = [[cluster.coordinator(name, "group").id == node for name in names] for node in (1, 2)]
    expected = [[name for name, mine in zip(names, row, strict=True) if mine] for row in coordinators]
    assert expected == found
    assert [] not in found
    cluster.groups.load_ms = 100
    cluster.kill(2)
    response = clients[0].call(LIST_GROUPS, 5, ListGroupsRequest())
    assert Errors.COORDINATOR_LOAD_IN_PROGRESS == response.error_code


def described(client: ClusterClient, *names: str, version: int = 6, operations: bool = False) -> list[Any]:
    """Returns the rows of a DescribeGroups response."""
    request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=operations)
    rows: list[Any] = client.call(DESCRIBE_GROUPS, version, request).groups
    return rows


def test_describe_at_another_broker(clock: VirtualClock) -> None:
    """A broker that does not coordinate the group responds NOT_COORDINATOR for it."""
    cluster = Cluster(2)
    coordinator = cluster.coordinator("g", "group")
    assert coordinator is not None
    client = ClusterClient(cluster, clock, 3 - coordinator.id)
    (row,) = described(client, "g")
    assert (Errors.NOT_COORDINATOR, "") == (row.error_code, row.group_state)
