"""The rules of the sticky assignors, each with a small table of cases: even loads first, then racks, then few moves."""

from __future__ import annotations

import pytest

from kconsumer.assignors import ClusterView, RebalanceProtocol, load
from kconsumer.types import PartitionInfo
from support.oracles.assignor_groups import member, plain_view, table

BOTH = pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])


def test_protocols() -> None:
    """`sticky` supports only the eager protocol; `cooperative-sticky` also supports eager groups, for rolling
    upgrades.
    """
    eager, cooperative = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
    assert (eager,) == load("sticky").protocols
    assert (cooperative, eager) == load("cooperative-sticky").protocols


# --- loads and moves ------------------------------------------------------------------------------------------------


@BOTH
def test_every_member_is_in_the_result(name: str) -> None:
    """The result contains every member, even without partitions: if there are fewer partitions than members, unknown
    topics, or no topics.
    """
    group = {"a": member(name, "t"), "b": member(name, "t"), "c": member(name, "x"), "d": member(name, "")}
    assert {"a": "t0", "b": "", "c": "", "d": ""} == table(name, plain_view(t=1), group)


@BOTH
def test_partitions_need_not_be_numbered_from_zero(name: str) -> None:
    """Claims are matched by partition number, whatever the numbers are."""
    view = ClusterView([PartitionInfo("t", number) for number in (3, 5, 9)])
    group = {"a": member(name, "t", "t9 t4"), "b": member(name, "t", "t3"), "c": member(name, "t")}
    assert {"a": "t9", "b": "t3", "c": "t5"} == table(name, view, group)


@BOTH
def test_a_topic_that_vanished_is_forgotten(name: str) -> None:
    """Claims of a deleted topic do not count in their owners' loads."""
    group = {"a": member(name, "tu", "u0 u1 u2"), "b": member(name, "tu", "t0")}
    assert {"a": "t1", "b": "t0"} == table(name, plain_view(t=2), group)


def test_cooperative_members_get_nothing_that_others_still_have() -> None:
    """A partition that moves is withheld until its owner has revoked it; the next rebalance assigns it."""
    name, view = "cooperative-sticky", plain_view(t=4)
    first = {"a": member(name, "t", "t0 t1 t2 t3"), "b": member(name, "t")}
    assert {"a": "t0 t1", "b": ""} == table(name, view, first)
    second = {"a": member(name, "t", "t0 t1", generation=2), "b": member(name, "t", "", generation=2)}
    assert {"a": "t0 t1", "b": "t2 t3"} == table(name, view, second)


def test_cooperative_sticky_in_an_eager_group() -> None:
    """Members that revoked all partitions own none, so all partitions are assigned at once."""
    group = {"a": member("cooperative-sticky", "t", ""), "b": member("cooperative-sticky", "t", "")}
    assert {"a": "t0 t2", "b": "t1 t3"} == table("cooperative-sticky", plain_view(t=4), group)
