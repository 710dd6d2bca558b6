"""The check of what an assignor returns, and the view of the cluster that it receives."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kconsumer import assignors
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription, validate
from kconsumer.errors import AssignorError
from kconsumer.types import PartitionInfo, TopicPartition

VIEW = ClusterView([PartitionInfo(topic, partition) for topic in ("t", "u") for partition in range(3)])
MEMBERS = {"a": Subscription(("t", "u")), "b": Subscription(("t",))}


class Canned(Assignor):
    """An assignor that returns, or raises, what the test sets."""

    name = "canned"

    def __init__(self, assignment: object) -> None:
        self.assignment = assignment

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Returns the assignment, or raises it if it is an exception."""
        if isinstance(self.assignment, Exception):
            raise self.assignment
        return self.assignment  # type: ignore[return-value]  # invalid ones too


class Cooperative(Canned):
    """Like Canned, for the cooperative protocol."""

    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)


def given(**members: str) -> dict[str, Assignment]:
    """`given(a="t0 u1")`."""
    return {
        member: Assignment(tuple(TopicPartition(word[:-1], int(word[-1])) for word in text.split()))
        for member, text in members.items()
    }


def problem(assignment: object, members: Mapping[str, Subscription] = MEMBERS, kind: type[Canned] = Canned) -> str:
    """Returns the error message of the check for this assignment."""
    with pytest.raises(AssignorError) as caught:
        assignors.assign(kind(assignment), VIEW, members)
    text = str(caught.value)
    assert text.startswith(f'assignor "canned" ({__name__}:{kind.__name__}) ')
    return text


def test_a_valid_assignment_passes() -> None:
    """An assignment of each partition to exactly one subscriber passes."""
    validate(Canned(None), VIEW, MEMBERS, given(a="t0 u0 u1 u2", b="t1 t2"))


def test_omitted_members_have_no_partitions() -> None:
    """A plugin may omit members without partitions; the result has all members, in the group's order."""
    assignment = assignors.assign(Canned(given(b="t1")), VIEW, MEMBERS)
    assert ["a", "b"] == list(assignment)
    assert given(a="", b="t1") == assignment


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        (given(c="t0"), '"c", which is not a member'),
        (given(b="t0 u0"), 'gave u-0 to member "b", which does not subscribe to u'),
        (given(b="t3"), 'gave t-3 to member "b", but there is no such partition'),
        (given(a="t0 t1", b="t2 t1"), 'gave t-1 twice: to "a" and to "b"'),
        (given(a="t0 t0"), 'gave t-0 twice: to "a" and to "a"'),
        ([("a", ())], "returned list instead of a mapping"),
        ({"a": [TopicPartition("t", 0)]}, "which is not an Assignment"),
        ({"a": Assignment(("t-0",))}, "an invalid partition"),  # type: ignore[arg-type]  # an invalid assignment
        ({"a": Assignment((("t", []),))}, "an invalid partition"),  # type: ignore[arg-type]  # an invalid assignment
    ],
)
def test_an_invalid_assignment_is_described(assignment: object, says: str) -> None:
    """The error names plugin, member and partition."""
    assert says in problem(assignment)


def test_what_the_plugin_raises_is_the_cause() -> None:
    """The plugin's exception is the cause of the error, whose message repeats its text."""
    error = KeyError("rack")
    with pytest.raises(AssignorError, match="failed to assign: KeyError: 'rack'") as caught:
        assignors.assign(Canned(error), VIEW, MEMBERS)
    assert error is caught.value.__cause__


def owning(**members: str) -> dict[str, Subscription]:
    """Returns members that subscribe to both topics and own these partitions."""
    return {
        member: Subscription(("t", "u"), owned_partitions=assignment.partitions)
        for member, assignment in given(**members).items()
    }


def test_a_cooperative_hand_over_takes_two_rebalances() -> None:
    """A partition must not move from one member to another in one rebalance; it may become unassigned, or be assigned
    if it had no owner.
    """
    members = owning(a="t0 t1", b="")
    assert 'gave t-1 to "b" while "a" still owns it' in problem(given(a="t0", b="t1"), members, Cooperative)
    validate(Cooperative(None), VIEW, members, given(a="t0", b="u1"))
    validate(Cooperative(None), VIEW, members, given(a="t0 t1 u0", b=""))


def test_eager_and_built_in_assignors_may_move_partitions() -> None:
    """Eager assignors are not checked for this, because eager members have revoked all partitions; as in Java, neither
    are the built-in assignors.
    """
    members, assignment = owning(a="t0 t1", b=""), given(a="t0", b="t1")
    validate(Canned(None), VIEW, members, assignment)
    validate(assignors.load("cooperative-sticky"), VIEW, members, assignment)


def test_a_plugin_with_a_built_in_name_is_checked() -> None:
    """A user's class with the name of a built-in assignor is checked."""
    impostor = type("Impostor", (Cooperative,), {"name": "cooperative-sticky"})
    with pytest.raises(AssignorError, match="still owns it"):
        validate(impostor(None), VIEW, owning(a="t0 t1", b=""), given(a="t0", b="t1"))


def test_the_view_sorts_partitions_and_accepts_unknown_topics() -> None:
    """Partitions are returned in ascending order; an unknown topic has no partitions and no count."""
    view = ClusterView([PartitionInfo("t", 2), PartitionInfo("t", 0), PartitionInfo("s", 0), PartitionInfo("t", 1)])
    assert [0, 1, 2] == [info.partition for info in view.partitions("t")]
    assert frozenset({"s", "t"}) == view.topics()
    assert (3, 1, None) == (view.partition_count("t"), view.partition_count("s"), view.partition_count("x"))
    assert () == view.partitions("x")
    assert "<ClusterView of 2 topics, 4 partitions>" == repr(view)


def test_views_compare_by_content() -> None:
    """Two views of the same partitions are equal."""
    assert VIEW == ClusterView([info for topic in ("u", "t") for info in VIEW.partitions(topic)])
    assert VIEW != ClusterView([])
    assert VIEW != 3
