"""ListGroups, DescribeGroups and DeleteGroups in the cluster model."""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.admin import DESCRIBE_GROUPS, DescribeGroupsRequest
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient


def test_describe_at_another_broker(clock: VirtualClock) -> None:
    """A broker that does not coordinate the group responds NOT_COORDINATOR for it."""
    cluster = Cluster(2)
    coordinator = cluster.coordinator("g", "group")
    assert coordinator is not None
    client = ClusterClient(cluster, clock, 3 - coordinator.id)
    (row,) = client.call(DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups
    assert (Errors.NOT_COORDINATOR, "") == (row.error_code, row.group_state)
