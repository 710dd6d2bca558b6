"""The compliance suite passes on our four assignors and on another one, and detects faults."""

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
    """`range` keeps ranges and racks, not balance over topics."""

    rack_aware = True

    def make(self) -> Assignor:
        """One more of the class that is found by name."""
        return BUILT_IN["range"]()


class TestRoundRobin(AssignorCompliance):
    """`roundrobin` balances equal subscriptions."""

    balanced = True

    def make(self) -> Assignor:
        """One more of the class that is found by name."""
        return BUILT_IN["roundrobin"]()


class TestSticky(AssignorCompliance):
    """`sticky` claims everything."""

    balanced = sticky = rack_aware = True

    def make(self) -> Assignor:
        """One more of the class that is found by name."""
        return BUILT_IN["sticky"]()


class TestCooperativeSticky(TestSticky):
    """`cooperative-sticky` too."""

    def make(self) -> Assignor:
        """One more of the class that is found by name."""
        return BUILT_IN["cooperative-sticky"]()


class Modulo(Assignor):
    """A stranger's assignor, about as simple as one can be: partition p goes to subscriber p modulo their number."""

    name = "modulo"

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Each topic by itself."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for topic in sorted(cluster.topics()):
            takers = sorted(member for member, s in subscriptions.items() if topic in s.topics)
            for info in cluster.partitions(topic) if takers else ():
                given[takers[info.partition % len(takers)]].append(TopicPartition(topic, info.partition))
        return {member: Assignment(tuple(mine)) for member, mine in given.items()}


class TestStrangers(AssignorCompliance):
    """The suite suits an assignor that claims nothing."""

    def make(self) -> Assignor:
        """The toy."""
        return Modulo()


class Edited(Modulo):
    """An assignor with a fault: `edit` changes its result."""

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Right, then made wrong."""
        given = super().assign(cluster, subscriptions)
        lists = {member: list(assignment.partitions) for member, assignment in given.items()}
        self.edit(lists, subscriptions)
        return {member: Assignment(tuple(mine)) for member, mine in lists.items()}

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Change the result in place."""


class Forgetful(Edited):
    """Loses a partition."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Drop the first."""
        next((mine for mine in given.values() if mine), [None]).pop()  # type: ignore[list-item]  # any list will do


class Generous(Edited):
    """Gives a partition twice."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Repeat one."""
        for mine in given.values():
            mine += mine[:1]


class Pushy(Edited):
    """Gives everything to one member, subscribed or not."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Gather it."""
        everything = sorted(partition for mine in given.values() for partition in mine)
        for member in given:
            given[member] = everything if member == min(given) else []


class Silent(Edited):
    """Leaves out members that get nothing."""

    def edit(self, given: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]) -> None:
        """Drop them."""
        for member in [member for member, mine in given.items() if not mine]:
            del given[member]


class Hasty(Modulo):
    """Says it is cooperative, and hands partitions over while their owners still have them."""

    protocols = (RebalanceProtocol.COOPERATIVE,)


class Moody(Modulo):
    """Depends on the order in which members are named."""

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
        """Decode it."""
        for subscription in subscriptions.values():
            (subscription.user_data or b"").decode()
        return super().assign(cluster, subscriptions)


class Nameless(Modulo):
    """Has a name that cannot be one."""

    name = "No Name"


def suite(assignor: type[Assignor], **claims: object) -> AssignorCompliance:
    """A suite for this assignor."""
    made = type("Suite", (AssignorCompliance,), {"make": lambda self: assignor(), **claims})
    return made()  # type: ignore[no-any-return]  # a class made at run time


def checks() -> Iterable[str]:
    """The names of all tests of the suite."""
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
    """Each fault, or claim that is not kept, fails the test that is there for it, in words that name it."""
    broken = suite(assignor, balanced=True, sticky=True, rack_aware=True)
    with pytest.raises((AssertionError, AssignorError, ValueError), match=says):
        getattr(broken, check)()


def test_slowness_is_a_failure() -> None:
    """An assignor over the time limit fails."""
    with pytest.raises(AssertionError, match="more than"):
        suite(Modulo, scale_limit_s=0.0).test_is_quick_enough()


def test_claims_not_made_are_skipped() -> None:
    """Tests of balance, stickiness and racks are skipped unless claimed."""
    skipped = []
    for check in checks():
        try:
            getattr(suite(Modulo), check)()
        except SkipTest:
            skipped.append(check)
    claims = ["balances", "sticks_when_members_leave", "moves_only_what_newcomers_need", "reads_locally"]
    assert [f"test_{claim}" for claim in claims] == skipped
