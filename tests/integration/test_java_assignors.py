"""Our assignors compared with Kafka's own on the same random groups.

range and roundrobin must give the same result. The sticky assignors must be valid and at least as balanced as Java's.
With equal balance, at least as many partitions must be read locally; with equal locality, at most as many may move.
Faults of Java (partitions outside the subscription, exceptions) are counted and skipped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import pytest

from kconsumer.assignors import Assignment, Subscription
from kconsumer.types import GroupMetadata, TopicPartition
from support.oracles.assignor_groups import Given, Members, imbalance, kind, lists, partitions, plain_view, random_group
from support.oracles.assignor_oracle import AssignorOracle

Lists = dict[str, list[TopicPartition]]


@pytest.fixture(scope="module")
def java() -> Iterator[AssignorOracle]:
    """A JVM for all cases."""
    with AssignorOracle() as oracle:
        yield oracle


def as_sets(given: Given) -> dict[str, set[TopicPartition]]:
    """Returns the assignment without the order of partitions, which in Java may be that of a hash map."""
    return {member: set(mine) for member, mine in given.items()}


@pytest.mark.parametrize("racks", [0, 1, 3])
@pytest.mark.parametrize("equal", [True, False])
def test_range_and_roundrobin_equal_java(java: AssignorOracle, racks: int, equal: bool) -> None:
    """range gives every member the same partitions as Java; roundrobin gives them in the same order, too."""
    for seed in range(150):
        view, group = random_group(random.Random(seed), racks=racks, equal=equal, static=True)
        expected = java.assign("range", view, group)
        assert as_sets(expected.given) == as_sets(lists("range", view, group)), f"seed {seed}"
        expected = java.assign("roundrobin", view, group)
        assert expected.given == lists("roundrobin", view, group), f"seed {seed}"


def test_range_and_roundrobin_equal_java_in_large_groups(java: AssignorOracle) -> None:
    """range and roundrobin equal Java for up to 60 members and 60 topics."""
    for seed in range(20):
        rng = random.Random(seed)
        view, group = random_group(rng, racks=seed % 4, equal=seed % 3 == 0, static=True, members=60, topics=60)
        for name in ("range", "roundrobin"):
            expected = java.assign(name, view, group)
            assert as_sets(expected.given) == as_sets(lists(name, view, group)), f"seed {seed}"


def sound(given: Given, group: Mapping[str, Subscription], members: Members) -> bool:
    """Returns whether an assignment has only subscribed and existing partitions."""
    real = members.wanted()
    return all(p in real and p.topic in group[member].topics for member, mine in given.items() for p in mine)


def rank(members: Members, given: Given) -> tuple[int, int, int]:
    """Returns the numbers by which assignments are compared; lower is better. Locality counts only where racks make a
    difference.
    """
    return imbalance(given), -members.local(given) if members.racks_matter() else 0, members.moved(given)


@pytest.mark.parametrize("racks", [0, 3])
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("size", ["small", "large"])
def test_sticky_is_no_worse_than_java(java: AssignorOracle, size: str, equal: bool, racks: int) -> None:
    """The sticky assignor is at least as good as Java's through five generations with joins, leaves, new subscriptions
    and members that miss a generation.

    Every other group starts the next generation from Java's result, the rest from ours.
    """
    faults = compared = 0
    limits = {"members": 40, "topics": 25} if size == "large" else {}
    for seed in range(12 if size == "large" else 100):
        rng = random.Random(seed)
        members = Members(rng, *random_group(rng, racks=racks, equal=equal, **limits))
        for _ in range(5):
            subscriptions = members.subscriptions("sticky")
            ours = lists("sticky", members.view, subscriptions)
            assert members.wanted() == {partition for mine in ours.values() for partition in mine}
            theirs = java.assign("sticky", members.view, subscriptions)
            usable = not theirs.failure and sound(theirs.given, members.group, members)
            if usable:
                compared += 1
                assert rank(members, ours) <= rank(members, theirs.given), f"seed {seed}"
            else:
                faults += 1
            members.take(theirs.given if usable and seed % 2 else ours, missing=0.1)
            members.change(resubscribe=not equal)
    assert compared > 10 * faults


class Cooperation:
    """A group that rebalances until nothing changes. Counts the generations and the revoked partitions."""

    def __init__(self, members: Members, assign: Callable[[Members], Lists | None]) -> None:
        self.members = members
        self.rounds = 0
        self.revoked = 0
        self.settled = self._settle(assign)

    def _settle(self, assign: Callable[[Members], Lists | None]) -> bool:
        """Returns whether the group settles within eight generations. Returns False, too, if a partition ever had two
        owners.
        """
        while self.rounds < 8:
            before = {member: set(self.members.owned.get(member, (0, []))[1]) for member in self.members.group}
            given = assign(self.members)
            if given is None or not self._one_owner_each(before, given):
                return False
            self.members.take(given)
            if before == as_sets(given) and self.members.wanted() == set().union(*as_sets(given).values()):
                return True
            self.rounds += 1
            self.revoked += sum(len(before[member] - set(given[member])) for member in before)
        return False

    @staticmethod
    def _one_owner_each(before: dict[str, set[TopicPartition]], given: Lists) -> bool:
        had = {partition: member for member, mine in before.items() for partition in mine}
        return all(had.get(p, member) == member for member, mine in given.items() for p in mine)

    def rank(self) -> tuple[int, int, int]:
        """Returns balance, locality and the number of revoked partitions; lower is better."""
        balance, far, _ = rank(self.members, {m: self.members.owned[m][1] for m in self.members.group})
        return balance, far, self.revoked


@pytest.mark.parametrize("racks", [0, 3])
@pytest.mark.parametrize("equal", [True, False])
def test_cooperative_sticky_is_no_worse_than_java(java: AssignorOracle, equal: bool, racks: int) -> None:
    """The cooperative-sticky assignor settles in two generations and never gives a partition two owners. It is at least
    as balanced as Java's and, with equal balance, revokes no more partitions.

    Java takes up to nine generations with racks, or does not settle; those cases are not compared.
    """
    name = "cooperative-sticky"

    def ours(members: Members) -> Lists:
        return lists(name, members.view, members.subscriptions(name))

    def theirs(members: Members) -> Lists | None:
        result = java.assign(name, members.view, members.subscriptions(name))
        return None if result.failure or not sound(result.given, members.group, members) else result.given

    compared = 0
    for seed in range(60):
        rng = random.Random(seed)
        members = Members(rng, *random_group(rng, racks=racks, equal=equal))
        for _ in range(3):
            start = Members(rng, members.view, dict(members.group), dict(members.owned), members.generation)
            mine, other = Cooperation(members, ours), Cooperation(start, theirs)
            assert mine.settled
            assert mine.rounds <= 2
            if other.settled:
                compared += 1
                assert mine.rank() <= other.rank(), f"seed {seed}"
            members.change(resubscribe=not equal)
            for member, (generation, owned) in members.owned.items():  # revoked before joining
                kept = [partition for partition in owned if partition.topic in members.group[member].topics]
                members.owned[member] = generation, kept
    assert compared > 100


# --- user data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", ["", "t0", "t5 t1 t3", "t0 u2 t1 u7"])
def test_sticky_user_data_has_javas_bytes(java: AssignorOracle, mine: str) -> None:
    """The user data equals Java's byte for byte. Topics have one-letter names, whose order Java's hash map keeps."""
    owned = tuple(sorted(partitions(mine), key=lambda partition: partition.topic))
    assignor = kind("sticky")()
    assignor.on_assignment(Assignment(owned), GroupMetadata("g", 7, "m"))
    assert java.user_data("sticky", 7, owned) == assignor.subscription_user_data(frozenset("tu"))


@pytest.mark.parametrize("generation", [0, 1, 258, 2**31 - 1])
def test_cooperative_user_data_has_javas_bytes(java: AssignorOracle, generation: int) -> None:
    """The user data is the generation in four bytes."""
    assignor = kind("cooperative-sticky")()
    assignor.on_assignment(Assignment(()), GroupMetadata("g", generation, "m"))
    assert java.user_data("cooperative-sticky", generation, ()) == assignor.subscription_user_data(frozenset())


def test_each_reads_the_others_user_data(java: AssignorOracle) -> None:
    """A Java leader uses the claims of a Python member, and a Python leader those of a Java member."""
    view = plain_view(t=4)
    for owned in ("t3 t1", "t2"):
        claim = partitions(owned)
        ours = kind("sticky")()
        ours.on_assignment(Assignment(claim), GroupMetadata("g", 3, "m"))
        for data in (ours.subscription_user_data(frozenset("t")), java.user_data("sticky", 3, claim)):
            group = {"a": Subscription(("t",)), "b": Subscription(("t",), user_data=data)}
            assert set(claim) <= set(java.assign("sticky", view, group).given["b"])
            assert set(claim) <= set(lists("sticky", view, group)["b"])


# --- faults of Java's that are not ours -----------------------------------------------------------------------------


def test_java_still_gives_partitions_to_members_without_a_subscription(java: AssignorOracle) -> None:
    """Java assigns partitions to members without a subscription. If Java fixes this, the comparisons need not skip it
    any more.
    """
    outside = []
    for prefix in "abcdefgh":  # whether it happens depends on the hash of the member's name
        group = {f"{prefix}-none": Subscription(()), f"{prefix}-some": Subscription(("t",))}
        outside += java.assign("sticky", plain_view(t=2), group).given[f"{prefix}-none"]
        assert [] == lists("sticky", plain_view(t=2), group)[f"{prefix}-none"]
    assert outside


def test_java_still_gives_out_partitions_that_are_gone(java: AssignorOracle) -> None:
    """Java assigns partitions that do not exist: a topic was re-created with two partitions, and a member claims the
    third and fourth.
    """
    gone = partitions("t2 t3")
    owner = Subscription(("t",), owned_partitions=gone, generation_id=1)
    group = {"a": owner, "b": Subscription(("t",))}
    theirs = java.assign("cooperative-sticky", plain_view(t=2), group)
    assert theirs.failure or set(gone) & {partition for mine in theirs.given.values() for partition in mine}
    ours = lists("cooperative-sticky", plain_view(t=2), group)
    assert set(partitions("t0 t1")) == {partition for mine in ours.values() for partition in mine}
