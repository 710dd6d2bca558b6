"""The assignor passes kconsumer's compliance suite, and assigns by weight."""

from __future__ import annotations

from acme_weighted import WeightedAssignor

from kconsumer import ClusterView, Subscription
from kconsumer.assignors import assign
from kconsumer.testing.assignors import AssignorCompliance
from kconsumer.types import PartitionInfo


class TestWeighted(AssignorCompliance):
    """With equal weights it is as even as any."""

    balanced = True

    def make(self) -> WeightedAssignor:
        """Return the assignor under test."""
        return WeightedAssignor(weight=1)


def test_partitions_go_by_weight() -> None:
    """A member of weight 3 gets three quarters, next to one of weight 1."""
    view = ClusterView([PartitionInfo("t", partition) for partition in range(8)])
    members = {name: Subscription(("t",), user_data=data) for name, data in (("big", b"3"), ("small", b"1"))}
    assigned = assign(WeightedAssignor(), view, members)
    assert {member: len(given.partitions) for member, given in assigned.items()} == {"big": 6, "small": 2}


def test_strange_user_data_means_nothing() -> None:
    """Bytes of another version of the plugin, or of none, count as weight 1."""
    view = ClusterView([PartitionInfo("t", partition) for partition in range(2)])
    members = {name: Subscription(("t",), user_data=data) for name, data in (("a", b"\xff"), ("b", None))}
    assigned = assign(WeightedAssignor(), view, members)
    assert {member: len(given.partitions) for member, given in assigned.items()} == {"a": 1, "b": 1}
