"""Which claims count in the sticky assignors, and the bytes that contain them; in three of the cases Java fails."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from kconsumer.assignors import Assignment, Subscription, load
from kconsumer.types import GroupMetadata, TopicPartition
from kconsumer_assignors._user_data import decode_sticky
from support.oracles.assignor_groups import lists, member, partitions, plain_view, table

BOTH = pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])

# topics: 2; "t": partitions 1, 0; "topic-é": partition 7; generation 5
V0 = bytes.fromhex("00000002 0001 74 00000002 00000001 00000000 0008 746f7069632dc3a9 00000001 00000007")
V1 = V0 + bytes.fromhex("00000005")


# --- conflicts ------------------------------------------------------------------------------------------------------


@BOTH
def test_the_later_generation_wins(name: str) -> None:
    """A member that missed a generation loses partitions that were assigned to another one meanwhile."""
    group = {"a": member(name, "t", "t0 t1", 4), "b": member(name, "t", "t1 t0", 5)}
    given = table(name, plain_view(t=2), group)
    assert given["a"] == ("t1" if name == "sticky" else "")
    assert "t0" in given["b"]


@BOTH
def test_an_uncontested_claim_counts_however_old(name: str) -> None:
    """The generation decides only between conflicting claims."""
    group = {"a": member(name, "t", "t0 t2", 1), "b": member(name, "t", "t1", 9)}
    assert {"a": "t0 t2", "b": "t1 t3"} == table(name, plain_view(t=4), group)


def test_a_partition_claimed_twice_in_one_generation_is_nobodys() -> None:
    """A partition that two members claim in one generation counts in neither's load; a partition with one claim does
    not move.
    """
    group = {"a": member("sticky", "t", "t0 t1 t2"), "b": member("sticky", "t", "t1 t0")}
    given = lists("sticky", plain_view(t=4), group)
    assert TopicPartition("t", 2) in given["a"]
    assert [2, 2] == [len(mine) for mine in given.values()]


@pytest.mark.parametrize("topics", ["t", "tu"])
def test_cooperative_withholds_what_is_claimed_twice(topics: str) -> None:
    """With equal and with different subscriptions, both claimants must revoke a partition before it is assigned."""
    name = "cooperative-sticky"
    group = {"a": member(name, "t", "t0 t1"), "b": member(name, topics, "t1 t2")}
    given = table(name, plain_view(t=3), group)
    assert {"a": "t0", "b": "t2"} == given


@BOTH
@pytest.mark.parametrize("generations", [(5, 5, 4), (4, 5, 5), (5, 4, 5)])
def test_three_claims(name: str, generations: tuple[int, int, int]) -> None:
    """Two claims of the latest generation cancel each other in any order; an older third claim does not win."""
    group = {
        m: member(name, "t", f"t{number} t9", generation)
        for number, (m, generation) in enumerate(zip("abc", generations, strict=True))
    }
    given = table(name, plain_view(t=10), group)
    if name == "cooperative-sticky":
        assert "t9" not in " ".join(given.values())
    winner = {m: member(name, "t", "t9", generation) for m, generation in zip("abc", (4, 6, 5), strict=True)}
    assert "t9" in table(name, plain_view(t=10), winner)["b"]


@pytest.mark.parametrize(
    "claims",
    [
        {"b": ("t0 t1", 1), "c": ("t0 t1", 1)},
        {"b": ("t0 t1 t2", 1), "c": ("t0 t1 t3", 1)},
        {"b": ("t0 t1", 2), "c": ("t1 t0", 2), "d": ("t1", 1)},
    ],
)
def test_a_contested_partition_stays_with_a_claimant(claims: dict[str, tuple[str, int]]) -> None:
    """A contested partition is assigned to a member that claims it, because that member may have state for it; "a"
    claims none.
    """
    group = {"a": member("sticky", "t")}
    group |= {name: member("sticky", "t", owned, generation) for name, (owned, generation) in claims.items()}
    assert set(partitions("t0 t1")).isdisjoint(lists("sticky", plain_view(t=6), group)["a"])


def test_a_partition_moves_to_a_member_with_an_older_claim() -> None:
    """A partition that its owner loses for balance is assigned to the member that owned it before."""
    group = {
        "a": member("sticky", "t"),
        "b": member("sticky", "t", "t4", 1),
        "c": member("sticky", "t", "t0 t1 t2 t3 t4 t5", 2),
    }
    given = table("sticky", plain_view(t=6), group)
    assert "t4" in given["b"]
    assert given["c"] == "t0 t1"


def test_an_older_claim_counts_when_the_owner_has_unsubscribed() -> None:
    """The partition is assigned to the member that owned it before the member that unsubscribed."""
    group = {"a": member("sticky", "t"), "b": member("sticky", "t", "t0", 1), "c": member("sticky", "u", "t0 u0", 2)}
    assert {"a": "t1", "b": "t0", "c": "u0"} == table("sticky", plain_view(t=2, u=1), group)


def test_many_conflicts_take_no_long_search() -> None:
    """Above a limit only owners count: 400 members have an old claim each to other partitions of the only owner."""
    everything = " ".join(f"t{number}" for number in range(800))
    group = {"a": member("sticky", "t", everything, 2)}
    for number in range(400):
        group[f"m{number:03}"] = member("sticky", "t", f"t{2 * number} t{number}", 1)
    started = time.process_time()
    given = lists("sticky", plain_view(t=800), group)
    assert time.process_time() - started < 5
    assert {len(mine) for mine in given.values()} == {1, 2}
    assert set(given["a"]) <= set(partitions(everything))


@BOTH
def test_naming_a_partition_twice_is_no_conflict(name: str) -> None:
    """A member that names a partition twice does not contest its own claim."""
    group = {"a": member(name, "t", "t1 t1"), "b": member(name, "t")}
    assert {"a": "t1", "b": "t0"} == table(name, plain_view(t=2), group)


def test_sticky_reads_user_data_only() -> None:
    """Eager members have revoked the partitions that `owned_partitions` may still contain."""
    owned = replace(member("sticky", "t", "t0"), owned_partitions=partitions("t1"))
    assert {"a": "t0", "b": "t1"} == table("sticky", plain_view(t=2), {"a": owned, "b": member("sticky", "t")})


def test_sticky_compares_the_generations_in_user_data() -> None:
    """Both claims' generations are taken from the user data, also when the subscription has no generation field."""
    old = replace(member("sticky", "t", "t0", 4), generation_id=-1)
    new = replace(member("sticky", "t", "t0", 5), generation_id=-1)
    assert {"a": "t1", "b": "t0"} == table("sticky", plain_view(t=2), {"a": old, "b": new})
    assert {"a": "t0", "b": "t1"} == table("sticky", plain_view(t=2), {"a": new, "b": old})


def test_cooperative_prefers_the_subscriptions_generation() -> None:
    """Subscriptions have a generation field from version 2 on; below that the generation is in the user data."""
    name = "cooperative-sticky"
    by_field = Subscription(("t",), owned_partitions=partitions("t0"), generation_id=5, user_data=b"\0\0\0\1")
    by_data = Subscription(("t",), owned_partitions=partitions("t0"), user_data=b"\0\0\0\4")
    assert {"a": "t0", "b": "t1"} == table(name, plain_view(t=2), {"a": by_field, "b": by_data})
    later = replace(by_data, user_data=b"\0\0\0\6")
    assert {"a": "t1", "b": "t0"} == table(name, plain_view(t=2), {"a": by_field, "b": later})


# --- where Java fails -----------------------------------------------------------------------------------------------


@BOTH
def test_an_older_claim_of_a_member_that_unsubscribed(name: str) -> None:
    """The claim of a member that unsubscribed does not count. Java raises NullPointerException, or assigns partitions
    outside the subscription.
    """
    group = {
        "a": member(name, "u", "t0 t1", 1),
        "b": member(name, "tu", "u0", 2),
        "c": member(name, "t", "t2", 2),
    }
    sticky = {"a": "u1", "b": "t0 u0", "c": "t1 t2"}
    withheld = {"a": "u1", "b": "u0", "c": "t2"}  # a still owns t0 and t1
    assert (sticky if name == "sticky" else withheld) == table(name, plain_view(t=3, u=2), group)


@BOTH
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_an_empty_subscription_is_a_different_one(name: str, order: str) -> None:
    """A member with an empty subscription gets no partitions. Java assigns it some if it comes first."""
    group = {"a": member(name, ""), "b": member(name, "t")}
    assert {"a": "", "b": "t0 t1"} == table(name, plain_view(t=2), {m: group[m] for m in order})


@BOTH
@pytest.mark.parametrize("topics", ["t", "tu"])
def test_a_topic_recreated_with_fewer_partitions(name: str, topics: str) -> None:
    """Claims above the partition count are ignored. Java raises IllegalStateException, or assigns partitions that do
    not exist.
    """
    group = {"a": member(name, topics, "t0 t2 t3"), "b": member(name, "t", "t1 t4")}
    assert {"a": "t0", "b": "t1"} == table(name, plain_view(t=2), group)


# --- the bytes ------------------------------------------------------------------------------------------------------


def test_sticky_user_data_is_version_1() -> None:
    """The user data is empty before the first assignment; then it has topics, partitions and generation as Java writes
    them.
    """
    assignor = load("sticky")
    assert assignor.subscription_user_data(frozenset("t")) is None
    mine = (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("topic-é", 7))
    assignor.on_assignment(Assignment(mine), GroupMetadata("g", 5, "m"))
    assert V1 == assignor.subscription_user_data(frozenset("t"))
    assignor.on_assignment(Assignment(()), GroupMetadata("g", 6, "m"))
    assert bytes.fromhex("00000000 00000006") == assignor.subscription_user_data(frozenset("t"))


def test_cooperative_user_data_is_the_generation() -> None:
    """The user data is the generation, which is -1 before the first assignment."""
    assignor = load("cooperative-sticky")
    assert b"\xff\xff\xff\xff" == assignor.subscription_user_data(frozenset("t"))
    assignor.on_assignment(Assignment(()), GroupMetadata("g", 258, "m"))
    assert b"\0\0\1\2" == assignor.subscription_user_data(frozenset("t"))


@pytest.mark.parametrize(("data", "wins"), [(V1, True), (V0, False), (V1 + b"more", True)], ids=["1", "0", "1+"])
def test_both_versions_are_read(data: bytes, wins: bool) -> None:
    """Version 0 has no generation: its claim counts if it is uncontested, and loses to any claim with a generation."""
    view, a = plain_view(t=3), Subscription(("t",), user_data=data)
    assert {"a": "t0 t1", "b": "t2"} == table("sticky", view, {"a": a, "b": member("sticky", "t", "")})
    expected = {"a": "t0 t1", "b": "t2"} if wins else {"a": "t0 t2", "b": "t1"}
    assert expected == table("sticky", view, {"a": a, "b": member("sticky", "t", "t1", 4)})


BROKEN = [
    b"",
    V1[:3],
    V0[:-1],
    V0[:9],
    b"\xff\xff\xff\xff",  # -1 topics
    b"\x7f\xff\xff\xff",  # two thousand million topics
    b"\0\0\0\1\0\1t\x7f\xff\xff\xff",  # as many partitions
    b"\0\0\0\1\0\1t\xff\xff\xff\xff",  # -1 partitions
    b"\0\0\0\1\xff\xff",  # a name of length -1
    b"\0\0\0\1\0\1\xff\0\0\0\0",  # a name that is no UTF-8
]


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: data.hex() or "empty")
@BOTH
def test_user_data_that_does_not_parse_claims_nothing(name: str, data: bytes) -> None:
    """A member whose user data cannot be parsed is treated as one without partitions; other members are not
    affected.
    """
    group = {"a": Subscription(("t",), user_data=data), "b": member(name, "t", "t0 t2")}
    assert {"a": "t1 t3", "b": "t0 t2"} == table(name, plain_view(t=4), group)


def test_no_bytes_at_all_raise() -> None:
    """Random bytes, and valid ones with a byte changed, never raise."""
    rng = random.Random(11)
    for _ in range(3000):
        if rng.random() < 0.5:
            data = rng.randbytes(rng.randint(0, 40))
        else:
            data = bytearray(V1)
            data[rng.randrange(len(data))] = rng.randrange(256)
        for topic, partition in decode_sticky(bytes(data)).partitions:
            assert isinstance(topic, str)
            assert isinstance(partition, int)
