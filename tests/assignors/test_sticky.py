"""The rules of the sticky assignors, each with a small table of cases: even loads first, then racks, then few moves."""

from __future__ import annotations

import pytest

from kconsumer.assignors import ClusterView, RebalanceProtocol, load
from kconsumer.types import PartitionInfo
from support.oracles.assignor_groups import member, plain_view, table, view_of

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
def test_a_first_assignment_deals_partitions_out(name: str) -> None:
    """Without earlier owners, partitions are assigned to the members in turn, so each topic is spread over members."""
    group = {"a": member(name, "tu"), "b": member(name, "tu")}
    assert {"a": "t0 t2 u1", "b": "t1 u0 u2"} == table(name, plain_view(t=3, u=3), group)


@BOTH
def test_those_that_stay_keep_everything_when_others_leave(name: str) -> None:
    """When a member leaves, its partitions are assigned to the members with the fewest, and no other partition
    moves.
    """
    group = {"a": member(name, "t", "t0 t3"), "b": member(name, "t", "t1")}
    assert {"a": "t0 t3", "b": "t1 t2"} == table(name, plain_view(t=4), group)


@BOTH
def test_a_newcomer_gets_its_share_and_nothing_else_moves(name: str) -> None:
    """Members above their quota lose their highest partitions to a new member. Cooperative members revoke them one
    rebalance earlier.
    """
    group = {"a": member(name, "t", "t0 t1 t2"), "b": member(name, "t", "t3 t4 t5"), "c": member(name, "t")}
    newcomer = "t2 t5" if name == "sticky" else ""
    assert {"a": "t0 t1", "b": "t3 t4", "c": newcomer} == table(name, plain_view(t=6), group)


@BOTH
def test_new_partitions_go_to_those_with_the_least(name: str) -> None:
    """New partitions are assigned to the members with the fewest, and no owned partition moves."""
    group = {"a": member(name, "tu", "t0 t1"), "b": member(name, "tu", "t2"), "c": member(name, "tu", "")}
    assert {"a": "t0 t1", "b": "t2 u0", "c": "u1 u2"} == table(name, plain_view(t=3, u=3), group)


def test_the_case_that_round_robin_deals_badly() -> None:
    """Of four members, two subscribe to five topics and two to three of these; each gets two partitions."""
    group = {"1": "abcde", "2": "ace", "3": "ace", "4": "abcde"}
    given = table("sticky", plain_view(a=2, b=1, c=2, d=1, e=2), {m: member("sticky", t) for m, t in group.items()})
    assert [2, 2, 2, 2] == [len(mine.split()) for mine in given.values()]


def test_partitions_pass_along_a_chain_of_members() -> None:
    """a can give t only to b, and b can give u to c. Neither move helps alone, but both together balance the group."""
    group = {
        "a": member("sticky", "t", "t0 t1 t2"),
        "b": member("sticky", "tu", "u0 u1"),
        "c": member("sticky", "u", "u2"),
    }
    loads = {m: len(mine.split()) for m, mine in table("sticky", plain_view(t=3, u=3), group).items()}
    assert {"a": 2, "b": 2, "c": 2} == loads


@BOTH
def test_a_member_that_unsubscribes_loses_that_topic_only(name: str) -> None:
    """A member that unsubscribes from a topic keeps its partitions of the other topics."""
    group = {"a": member(name, "t", "t0 t1 u0"), "b": member(name, "tu", "u1 u2")}
    expected = {"a": "t0 t1", "b": "u0 u1 u2" if name == "sticky" else "u1 u2"}
    assert expected == table(name, plain_view(t=2, u=3), group)


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


# --- racks (KIP-881) ------------------------------------------------------------------------------------------------


def test_members_get_what_is_in_their_rack() -> None:
    """Members get partitions with a replica in their rack, as far as even loads allow."""
    view = view_of({"t": [["x"], ["y"], ["x"], ["y"], ["x"], ["x"]]})
    group = {"a": member("sticky", "t", rack="x"), "b": member("sticky", "t", rack="y")}
    given = table("sticky", view, group)
    assert {"t1", "t3"} < set(given["b"].split())
    assert 3 == len(given["a"].split())


def test_racks_come_before_stickiness() -> None:
    """Two members that each own the partitions of the other's rack exchange them."""
    view = view_of({"t": [["x"], ["y"]]})
    group = {"a": member("sticky", "t", "t1", rack="x"), "b": member("sticky", "t", "t0", rack="y")}
    assert {"a": "t0", "b": "t1"} == table("sticky", view, group)


def test_racks_come_before_stickiness_with_different_subscriptions() -> None:
    """The same holds where members differ in their topics; u has one subscriber and does not move."""
    view = view_of({"t": [["x"], ["y"]], "u": [["y"]]})
    group = {"a": member("sticky", "tu", "t1 u0", rack="x"), "b": member("sticky", "t", "t0", rack="y")}
    assert {"a": "t0 u0", "b": "t1"} == table("sticky", view, group)


def test_balance_comes_before_racks() -> None:
    """A member without a replica in its rack still gets its share."""
    view = view_of({"t": [["x"], ["x"], ["x"], ["y"]]})
    group = {"a": member("sticky", "t", rack="x"), "b": member("sticky", "t", rack="z")}
    assert [2, 2] == [len(mine.split()) for mine in table("sticky", view, group).values()]


def test_partitions_without_a_local_member_stay() -> None:
    """t1 and t3 are in a rack without members and do not move, because moving them would gain nothing."""
    view = view_of({"t": [["x"], ["z"], ["y"], ["z"]]})
    group = {"a": member("sticky", "t", "t3 t0", rack="x"), "b": member("sticky", "t", "t1 t2", rack="y")}
    assert {"a": "t0 t3", "b": "t1 t2"} == table("sticky", view, group)


def test_members_without_a_rack_take_anything() -> None:
    """Members without a rack leave local partitions to members with one."""
    view = view_of({"t": [["x"], ["y"], ["x"], ["y"]]})
    group = {"a": member("sticky", "t", "t0 t2"), "b": member("sticky", "t", "t1 t3", rack="x")}
    assert {"a": "t1 t3", "b": "t0 t2"} == table("sticky", view, group)
