"""ListGroups, DescribeGroups and DeleteGroups in the cluster model."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.error_codes import Errors
from kconsumer.schema import DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_COMMIT
from kconsumer.schema.admin import DescribeGroupsRequest, ListGroupsRequest
from kconsumer.schema.group_deletion import DELETE_GROUPS, DeleteGroupsRequest
from kconsumer.schema.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.classic_members import METADATA, FakeMember, stable
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


def test_list_groups(client: ClusterClient) -> None:
    """ListGroups has the state and the type of each group; a group with offsets only has no protocol type."""
    expected = [
        ("g", "consumer", "Stable", "classic"),
        ("h", "", "Empty", "classic"),
        ("i", "consumer", "PreparingRebalance", "classic"),
    ]
    rows = [(row.group_id, row.protocol_type, row.group_state, row.group_type) for row in listed(client)]
    assert expected == rows
    assert ["", "", ""] == [row.group_state for row in listed(client, version=3)]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"states_filter": ["Stable", "Dead"]}, "g"),
        ({"states_filter": [" EMPTY", "preparingrebalance "]}, "hi"),
        ({"types_filter": ["CLASSIC"]}, "ghi"),
        ({"types_filter": ["consumer"]}, ""),
        ({"types_filter": ["nonsense"]}, ""),
        ({"types_filter": ["classic"], "states_filter": ["empty"]}, "h"),
    ],
)
def test_filters(client: ClusterClient, filters: dict[str, list[str]], names: str) -> None:
    """States and types are compared without case."""
    assert list(names) == [row.group_id for row in listed(client, **filters)]


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


def test_describe_a_stable_group(client: ClusterClient) -> None:
    """A stable group has its protocol, and for each member its metadata and assignment."""
    (row,) = described(client, "g")
    (member,) = row.members
    assert (0, "g", "Stable", "consumer", "range") == (
        row.error_code,
        row.group_id,
        row.group_state,
        row.protocol_type,
        row.protocol_data,
    )
    assert ("x", "test", "/127.0.0.1", METADATA, member.member_id.encode()) == (
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.member_metadata,
        member.member_assignment,
    )


def test_describe_a_rebalance(client: ClusterClient) -> None:
    """During a rebalance the members have no metadata, and the group no protocol."""
    (row,) = described(client, "i")
    assert ("PreparingRebalance", "consumer", "") == (row.group_state, row.protocol_type, row.protocol_data)
    assert [(b"", b"")] == [(member.member_metadata, member.member_assignment) for member in row.members]


@pytest.mark.parametrize(("release", "assigned"), [("3.9", False), ("4.4", True)])
def test_assignments_during_a_rebalance(clock: VirtualClock, release: str, assigned: bool) -> None:
    """During a rebalance the members keep their old assignments; before Kafka 4.0 they are not described."""
    cluster = Cluster(release=release)
    member = FakeMember(cluster, clock)
    stable(cluster, clock, member)
    FakeMember(cluster, clock).enter()
    (row,) = described(ClusterClient(cluster, clock), "g", version=5)
    found = {one.member_id: one.member_assignment for one in row.members}
    assert (member.id.encode() if assigned else b"") == found[member.id]


@pytest.mark.parametrize(
    ("version", "error", "message"), [(5, 0, None), (6, Errors.GROUP_ID_NOT_FOUND, "Group absent not found.")]
)
def test_describe_a_group_that_does_not_exist(
    client: ClusterClient, version: int, error: int, message: str | None
) -> None:
    """A group that does not exist is dead; since version 6 it has an error, too."""
    (row,) = described(client, "absent", version=version)
    assert (error, message, "Dead") == (row.error_code, row.error_message, row.group_state)


def test_describe_at_another_broker(clock: VirtualClock) -> None:
    """A broker that does not coordinate the group responds NOT_COORDINATOR for it."""
    cluster = Cluster(2)
    coordinator = cluster.coordinator("g", "group")
    assert coordinator is not None
    client = ClusterClient(cluster, clock, 3 - coordinator.id)
    (row,) = described(client, "g")
    assert (Errors.NOT_COORDINATOR, "") == (row.error_code, row.group_state)


def test_delete_groups(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """An empty group is deleted with its offsets; a group with members is not."""
    request = DeleteGroupsRequest(groups_names=["g", "h", "absent", "i", "h"])
    response = client.call(DELETE_GROUPS, 2, request)
    expected = {
        "g": Errors.NON_EMPTY_GROUP,
        "h": Errors.NONE,
        "absent": Errors.GROUP_ID_NOT_FOUND,
        "i": Errors.NON_EMPTY_GROUP,
    }
    assert expected == {row.group_id: row.error_code for row in response.results}
    assert ["g", "i"] == [row.group_id for row in listed(client)]
    assert {} == cluster.groups.offsets.of_group("h")


def test_delete_a_group_whose_members_have_left(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """A group can be deleted when its members have left; ids that were handed out do not count."""
    member = FakeMember(cluster, clock, "j")
    member.join()
    response = client.call(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["j"]))
    assert [0] == [row.error_code for row in response.results]
    assert Errors.UNKNOWN_MEMBER_ID == member.heartbeat()
