"""The assignor passes kconsumer's compliance suite, and assigns by weight."""

from __future__ import annotations

from acme_weighted import WeightedAssignor

from kconsumer import ClusterView, Subscription
from kconsumer.assignors import assign
from kconsumer.testing.assignors import AssignorCompliance
from kconsumer.types import PartitionInfo


class TestWeighted(AssignorCompliance):
    """The compliance suite passes. With equal weights, the assignor is balanced."""

    balanced = True

    def make(self) -> WeightedAssignor:
        """Return the assignor under test."""
        return WeightedAssignor(weight=1)


def test_partitions_go_by_weight() -> None:
    """Of two members with the weights 3 and 1, the first one gets three quarters of the partitions."""
    view = ClusterView([PartitionInfo("t", partition) for partition in range(8)])
    members = {name: Subscription(("t",), user_data=data) for name, data in (("big", b"3"), ("small", b"1"))}
    assigned = assign(WeightedAssignor(), view, members)
    assert {member: len(given.partitions) for member, given in assigned.items()} == {"big": 6, "small": 2}


def test_strange_user_data_means_nothing() -> None:
    """A member has the weight 1 if its user data is not a number, or if it has none."""
    view = ClusterView([PartitionInfo("t", partition) for partition in range(2)])
    members = {name: Subscription(("t",), user_data=data) for name, data in (("a", b"\xff"), ("b", None))}
    assigned = assign(WeightedAssignor(), view, members)
    assert {member: len(given.partitions) for member, given in assigned.items()} == {"a": 1, "b": 1}
