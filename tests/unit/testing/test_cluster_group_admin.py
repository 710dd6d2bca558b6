"""ListGroups, DescribeGroups and DeleteGroups in the cluster model."""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.admin import DESCRIBE_GROUPS, LIST_GROUPS, DescribeGroupsRequest, ListGroupsRequest
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.classic_members import FakeMember
from support.fakes.cluster_client import ClusterClient


def test_each_broker_lists_its_groups(clock: VirtualClock) -> None:
    """A broker lists the groups that it coordinates; while it loads some, it responds with an error."""
    cluster = Cluster(2)
    names = list("abcdef")
    for name in names:
        FakeMember(cluster, clock, name).enter()
    clients = [ClusterClient(cluster, clock, broker) for broker in (1, 2)]
    responses = [client.call(LIST_GROUPS, 5, ListGroupsRequest()) for client in clients]
    found = [sorted(row.group_id for row in response.groups) for response in responses]
    coordinators = [[cluster.coordinator(name, "group").id == node for name in names] for node in (1, 2)]
    expected = [[name for name, mine in zip(names, row, strict=True) if mine] for row in coordinators]
    assert expected == found
    assert [] not in found
    cluster.groups.load_ms = 100
    cluster.kill(2)
    response = clients[0].call(LIST_GROUPS, 5, ListGroupsRequest())
    assert Errors.COORDINATOR_LOAD_IN_PROGRESS == response.error_code


def test_describe_at_another_broker(clock: VirtualClock) -> None:
    """A broker that does not coordinate the group responds NOT_COORDINATOR for it."""
    cluster = Cluster(2)
    coordinator = cluster.coordinator("g", "group")
    assert coordinator is not None
    client = ClusterClient(cluster, clock, 3 - coordinator.id)
    (row,) = client.call(DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups
    assert (Errors.NOT_COORDINATOR, "") == (row.error_code, row.group_state)
