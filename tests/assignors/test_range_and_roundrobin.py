"""The rules of the range and round-robin assignors, each with a small table of cases."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kconsumer.assignors import ClusterView, RebalanceProtocol, Subscription, assign, load
from kconsumer.types import PartitionInfo
from support.oracles.assignor_groups import plain_view, view_of


def table(name: str, view: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
    """Returns an assignment as text."""
    given = assign(load(name), view, subscriptions)
    return {member: " ".join(f"{t}{p}" for t, p in assignment.partitions) for member, assignment in given.items()}


def members(text: str, rack: Mapping[str, str] | None = None) -> dict[str, Subscription]:
    """Returns members from text such as `members("a:tu b:t")`, in which topics are single letters."""
    pairs = (word.split(":") for word in text.split())
    return {member: Subscription(tuple(topics), rack_id=(rack or {}).get(member)) for member, topics in pairs}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_both_are_eager(name: str) -> None:
    """Both assignors use only the present subscriptions, so they support only the eager protocol."""
    assignor = load(name)
    assert (RebalanceProtocol.EAGER,) == assignor.protocols
    assert (0, None) == (assignor.version, assignor.subscription_user_data(frozenset("t")))


@pytest.mark.parametrize(
    ("view", "group", "expected"),
    [
        (plain_view(t=3, u=3), "a:tu b:tu", {"a": "t0 t1 u0 u1", "b": "t2 u2"}),
        (plain_view(t=1), "a:t b:t c:t", {"a": "t0", "b": "", "c": ""}),
        (plain_view(t=7), "c:t b:t a:t", {"c": "t5 t6", "b": "t3 t4", "a": "t0 t1 t2"}),
        (plain_view(t=3, u=2), "a:t b:tu c:t", {"a": "t0", "b": "t1 u0 u1", "c": "t2"}),
        (plain_view(t=2), "a:tx b:x c:", {"a": "t0 t1", "b": "", "c": ""}),
        (plain_view(t=2), "a:tt b:t", {"a": "t0", "b": "t1"}),
    ],
)
def test_range(view: ClusterView, group: str, expected: dict[str, str]) -> None:
    """range divides each topic into ranges. If the partitions do not divide evenly, the first subscribers get one
    partition more. Unknown and repeated topics are ignored.
    """
    assert expected == table("range", view, members(group))


@pytest.mark.parametrize(
    ("view", "group", "expected"),
    [
        (plain_view(t=3, u=3), "a:tu b:tu", {"a": "t0 t2 u1", "b": "t1 u0 u2"}),
        (plain_view(u=2, t=1), "a:tu b:tu", {"a": "t0 u1", "b": "u0"}),
        (plain_view(t=1, u=2, v=3), "a:t b:tu c:tuv", {"a": "t0", "b": "u0", "c": "u1 v0 v1 v2"}),
        (plain_view(t=2), "a:tx b:x c:", {"a": "t0 t1", "b": "", "c": ""}),
    ],
)
def test_roundrobin(view: ClusterView, group: str, expected: dict[str, str]) -> None:
    """roundrobin assigns the partitions of all topics in one sequence to the members in turn, and skips members that
    are not subscribed.
    """
    assert expected == table("roundrobin", view, members(group))


def test_roundrobin_can_be_far_from_balanced() -> None:
    """In this case, for which the sticky assignor was made, roundrobin assigns a member no partitions."""
    view = plain_view(a=2, b=1, c=2, d=1, e=2)
    group = members("1:abcde 2:ace 3:ace 4:abcde")
    assert [3, 3, 0, 2] == [len(mine.split()) for mine in table("roundrobin", view, group).values()]


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_members_with_an_instance_id_come_first(name: str) -> None:
    """Static members are ordered by instance id, so a restart with a new member id changes nothing (KIP-345)."""

    def group(*ids: str) -> dict[str, Subscription]:
        static = {member: Subscription(("t",), group_instance_id=f"i{n}") for n, member in enumerate(ids)}
        return {"a": Subscription(("t",)), **static}

    before = table(name, plain_view(t=3), group("z", "y"))
    after = table(name, plain_view(t=3), group("k", "x"))
    assert {"z": "t0", "y": "t1", "a": "t2"} == before
    assert [before["z"], before["y"], before["a"]] == [after["k"], after["x"], after["a"]]


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_member_ids_are_ordered_as_java_orders_text(name: str) -> None:
    """Member ids are ordered by UTF-16 code unit: a character beyond U+FFFF comes before U+FF5E, although its code
    point is greater.
    """
    group = {"\uff5e": Subscription(("t",)), "\U0001f600": Subscription(("t",))}
    assert {"\U0001f600": "t0", "\uff5e": "t1"} == table(name, plain_view(t=2), group)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_partitions_need_not_be_numbered_from_zero(name: str) -> None:
    """Partitions whose numbers have gaps are divided evenly."""
    view = ClusterView([PartitionInfo("t", number) for number in (7, 3, 9)])
    assert ["t3", "t7", "t9"] == sorted(" ".join(table(name, view, members("a:t b:t")).values()).split())


ONE_RACK_EACH = {"a": "x", "b": "y", "c": "z"}


def test_range_gives_members_what_is_in_their_rack() -> None:
    """Each member gets, up to its share, partitions with a replica in its rack (KIP-881)."""
    view = view_of({"t": [["z"], ["y"], ["x"], ["z"], ["y"], ["x"]]})
    expected = {"a": "t2 t5", "b": "t1 t4", "c": "t0 t3"}
    assert expected == table("range", view, members("a:t b:t c:t", ONE_RACK_EACH))


def test_range_keeps_co_partitioned_topics_together() -> None:
    """A partition number is assigned to a member whose rack has a replica for every topic; otherwise plain ranges
    apply.
    """
    view = view_of({"t": [["z"], ["y"], ["x"]], "u": [["z"], ["x"], ["x"]]})
    expected = {"a": "t2 u2", "b": "t1 u1", "c": "t0 u0"}
    assert expected == table("range", view, members("a:tu b:tu c:tu", ONE_RACK_EACH))


@pytest.mark.parametrize(
    ("racks", "rack_of"),
    [
        ([["x", "y"], ["x", "y"]], {"a": "y", "b": "x"}),  # every partition is in every rack
        ([["x"], ["y"]], {"a": "v", "b": "w"}),  # no member is in a rack with replicas
        ([["y"], ["x"]], {}),  # no member has a rack
        ([[], []], {"a": "y", "b": "x"}),  # brokers have no racks
    ],
)
def test_range_is_plain_when_racks_make_no_difference(racks: list[list[str]], rack_of: dict[str, str]) -> None:
    """The result equals that of a group without racks."""
    assert {"a": "t0", "b": "t1"} == table("range", view_of({"t": racks}), members("a:t b:t", rack_of))


def test_range_with_racks_gives_no_member_more_than_plain_range() -> None:
    """Racks never make a range assignment uneven: two members share six partitions of one member's rack three each."""
    view = view_of({"t": [["x"]] * 5 + [["y"]]})
    assert {"a": "t0 t1 t2", "b": "t3 t4 t5"} == table("range", view, members("a:t b:t", ONE_RACK_EACH))
