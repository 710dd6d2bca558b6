"""The compliance suite passes for our four assignors and a third-party one, and detects faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from unittest import SkipTest

import pytest

from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription, load
from kconsumer.errors import AssignorError
from kconsumer.testing.assignors import AssignorCompliance
from kconsumer.types import TopicPartition

BUILT_IN = {name: type(load(name)) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")}


class TestRange(AssignorCompliance):
    """The suite for `range`, which claims ranges and racks, and not balance over topics."""

    rack_aware = True

    def make(self) -> Assignor:
        """Returns another instance of the class that is found by name."""
        return BUILT_IN["range"]()


class TestRoundRobin(AssignorCompliance):
    """The suite for `roundrobin`, which claims balance for equal subscriptions."""

    balanced = True

    def make(self) -> Assignor:
        """Returns another instance of the class that is found by name."""
        return BUILT_IN["roundrobin"]()


class TestSticky(AssignorCompliance):
    """The suite for `sticky`, which claims every property."""

    balanced = sticky = rack_aware = True

    def make(self) -> Assignor:
        """Returns another instance of the class that is found by name."""
        return BUILT_IN["sticky"]()


class TestCooperativeSticky(TestSticky):
    """The suite for `cooperative-sticky`, which claims every property."""

    def make(self) -> Assignor:
        """Returns another instance of the class that is found by name."""
        return BUILT_IN["cooperative-sticky"]()


class Modulo(Assignor):
    """A minimal third-party assignor: partition p is assigned to subscriber p modulo the number of subscribers."""

    name = "modulo"

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Assign each topic separately."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for topic in sorted(cluster.topics()):
            takers = sorted(member for member, s in subscriptions.items() if topic in s.topics)
            for info in cluster.partitions(topic) if takers else ():
                given[takers[info.partition % len(takers)]].append(TopicPartition(topic, info.partition))
        return {member: Assignment(tuple(mine)) for member, mine in given.items()}


class TestStrangers(AssignorCompliance):
    """The suite for an assignor that claims no property."""

    def make(self) -> Assignor:
        """Returns a new Modulo."""
        return Modulo()


class Edited(Modulo):
    """An assignor with a fault: `edit` changes a correct result."""

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Make a correct assignment and change it by `edit`."""
        given = super().assign(cluster, subscriptions)
        lists = {member: list(assignment.partitions) for member, assignment in given.items()}
        self.edit(lists, subscriptions)
        return {member: Assignment(tuple(mine)) for member, mine in lists.items()}

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Change the assignment in place."""


class Forgetful(Edited):
    """Omits a partition."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Remove the first partition."""
        next((mine for mine in given.values() if mine), [None]).pop()  # type: ignore[list-item]  # any list will do


class Generous(Edited):
    """Assigns a partition twice."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Repeat a partition."""
        for mine in given.values():
            mine += mine[:1]


class Pushy(Edited):
    """Assigns all partitions to one member, subscribed or not."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Move all partitions to one member."""
        everything = sorted(partition for mine in given.values() for partition in mine)
        for member in given:
            given[member] = everything if member == min(given) else []


class Silent(Edited):
    """Omits members without partitions."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Remove members without partitions."""
        for member in [member for member, mine in given.items() if not mine]:
            del given[member]


class Hasty(Modulo):
    """Claims to be cooperative, and moves partitions while their owners still have them."""

    protocols = (RebalanceProtocol.COOPERATIVE,)


class Moody(Modulo):
    """Depends on the order of the members' names."""

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Swap names by position."""
        given = super().assign(cluster, subscriptions)
        alike: dict[tuple[str, ...], list[str]] = {}
        for member, subscription in subscriptions.items():
            alike.setdefault(subscription.topics, []).append(member)
        swap = {a: b for group in alike.values() for a, b in zip(group, sorted(group), strict=True)}
        return {member: given[swap[member]] for member in subscriptions}


class Touchy(Modulo):
    """Decodes any user data without checking it."""

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Decode the user data."""
        for subscription in subscriptions.values():
            (subscription.user_data or b"").decode()
        return super().assign(cluster, subscriptions)


class Nameless(Modulo):
    """Has an invalid name."""

    name = "No Name"


def suite(assignor: type[Assignor], **claims: object) -> AssignorCompliance:
    """Returns a suite for this assignor."""
    made = type("Suite", (AssignorCompliance,), {"make": lambda self: assignor(), **claims})
    return made()  # type: ignore[no-any-return]  # a class made at run time


def checks() -> Iterable[str]:
    """Returns the names of all tests of the suite."""
    return [name for name in vars(AssignorCompliance) if name.startswith("test_")]


@pytest.mark.parametrize(
    ("assignor", "check", "says"),
    [
        (Forgetful, "test_gives_every_partition_to_one_subscriber", "remain unassigned"),
        (Generous, "test_gives_every_partition_to_one_subscriber", "twice"),
        (Pushy, "test_gives_every_partition_to_one_subscriber", "does not subscribe"),
        (Silent, "test_gives_every_partition_to_one_subscriber", "not every member"),
        (Hasty, "test_keeps_to_the_rules_as_the_group_changes", "still owns"),
        (Moody, "test_repeats_its_result", "order of members"),
        (Touchy, "test_survives_foreign_user_data", "UnicodeDecodeError"),
        (Nameless, "test_loads", "no usable `name`"),
        (Modulo, "test_balances", "loads are"),
        (Modulo, "test_sticks_when_members_leave", "though it stayed"),
        (Modulo, "test_moves_only_what_newcomers_need", "when another joined"),
        (Modulo, "test_reads_locally", "which is in"),
    ],
)
def test_the_suite_sees_what_is_broken(assignor: type[Assignor], check: str, says: str) -> None:
    """Each fault, and each claim that is not kept, fails the intended test with a message that names it."""
    broken = suite(assignor, balanced=True, sticky=True, rack_aware=True)
    with pytest.raises((AssertionError, AssignorError, ValueError), match=says):
        getattr(broken, check)()


def test_slowness_is_a_failure() -> None:
    """An assignor that exceeds the time limit fails."""
    with pytest.raises(AssertionError, match="more than"):
        suite(Modulo, scale_limit_s=0.0).test_is_quick_enough()


def test_claims_not_made_are_skipped() -> None:
    """Tests of balance, stickiness and racks are skipped unless the assignor claims these properties."""
    skipped = []
    for check in checks():
        try:
            getattr(suite(Modulo), check)()
        except SkipTest:
            skipped.append(check)
    claims = ["balances", "sticks_when_members_leave", "moves_only_what_newcomers_need", "reads_locally"]
    assert [f"test_{claim}" for claim in claims] == skipped
