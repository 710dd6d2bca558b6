"""Each violation by a plugin raises an error that names plugin and distribution and quotes what it returned."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kconsumer import assignors
from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.errors import AssignorError
from kconsumer.types import PartitionInfo, TopicPartition
from support.harnesses.group_harness import GroupHarness

MODULE = "violations_of_acme"
SOURCE = """
from kconsumer.assignors import Assignor, RebalanceProtocol

class Eager(Assignor):
    name = "acme-eager"
    assignment = None

    def assign(self, cluster, subscriptions):
        if isinstance(self.assignment, Exception):
            raise self.assignment
        return self.assignment

class Cooperative(Eager):
    name = "acme-cooperative"
    protocols = (RebalanceProtocol.COOPERATIVE,)
"""
ENTRIES = f"[kconsumer.assignors]\nacme-eager = {MODULE}:Eager\nacme-cooperative = {MODULE}:Cooperative\n"
ORIGIN = 'assignor "acme-{0}" (acme-violations 2.1, violations_of_acme:{1}) '

VIEW = ClusterView([PartitionInfo(topic, partition) for topic in ("t", "u") for partition in range(3)])
A0, A1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBERS = {
    "a": Subscription(("t", "u"), owned_partitions=(A0, A1)),
    "b": Subscription(("t",)),
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the distribution acme-violations 2.1, as pip does."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    info = tmp_path / "acme_violations-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-violations\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("KCONSUMER_DISABLE_PLUGINS", raising=False)
    yield
    sys.modules.pop(MODULE, None)


def broken(protocol: str, assignment: object) -> Assignor:
    """Returns the plugin, loaded by name, with the object that its assign() returns or raises."""
    loaded: Any = assignors.load(f"acme-{protocol}")
    loaded.assignment = assignment
    return loaded  # type: ignore[no-any-return]  # found by name


def to(**members: tuple[TopicPartition, ...]) -> Mapping[str, Assignment]:
    """Returns the assignment of these partitions."""
    return {member: Assignment(partitions) for member, partitions in members.items()}


VIOLATIONS: dict[str, tuple[object, str]] = {
    "unknown member": (to(c=(A0,)), 'gave partitions to "c", which is not a member of the group'),
    "topic not subscribed": (to(b=(TopicPartition("u", 0),)), 'gave u-0 to member "b", which does not subscribe to u'),
    "unknown topic": (to(a=(TopicPartition("x", 0),)), 'gave x-0 to member "a", which does not subscribe to x'),
    "no such partition": (to(a=(TopicPartition("t", 7),)), 'gave t-7 to member "a", but there is no such partition'),
    "negative partition": (to(a=(TopicPartition("t", -1),)), 'gave t--1 to member "a", but there is no such partition'),
    "twice to two": (to(a=(A0, A1), b=(A1,)), 'gave t-1 twice: to "a" and to "b"'),
    "twice to one": (to(a=(A0, A1, A0)), 'gave t-0 twice: to "a" and to "a"'),
    "no mapping": ([("a", Assignment((A0,)))], "returned list instead of a mapping"),
    "nothing": (None, "returned NoneType instead of a mapping"),
    "no assignment": ({"a": (A0,)}, "which is not an Assignment"),
    "no partition": ({"a": Assignment(("t-0",))}, 'gave member "a" an invalid partition'),  # type: ignore[arg-type]
    "an exception": (ZeroDivisionError("weights"), "failed to assign: ZeroDivisionError: weights"),
}


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
@pytest.mark.parametrize("violation", VIOLATIONS)
def test_each_violation(violation: str, protocol: str) -> None:
    """The error message begins with the origin of the plugin and describes the violation."""
    assignment, says = VIOLATIONS[violation]
    with pytest.raises(AssignorError) as caught:
        assignors.assign(broken(protocol, assignment), VIEW, MEMBERS)
    text = str(caught.value)
    assert text.startswith(ORIGIN.format(protocol, protocol.capitalize()))
    assert says in text


@pytest.mark.parametrize(
    ("assignment", "right"),
    [
        (to(a=(A0,), b=(A1,)), False),  # t-1 moves in one rebalance
        (to(b=(A0, A1)), False),  # an omitted partition is revoked, too
        (to(a=(A0,)), True),  # t-1 is revoked first
        (to(a=(A0, A1), b=(TopicPartition("t", 2),)), True),  # t-2 had no owner
    ],
)
def test_cooperative_hand_over(assignment: Mapping[str, Assignment], right: bool) -> None:
    """A cooperative plugin that moves a partition in one rebalance is named in an error; an eager plugin may do so."""
    assignors.assign(broken("eager", assignment), VIEW, MEMBERS)
    if right:
        assignors.assign(broken("cooperative", assignment), VIEW, MEMBERS)
        return
    with pytest.raises(AssignorError, match=r'gave t-\d to "b" while "a" still owns it') as caught:
        assignors.assign(broken("cooperative", assignment), VIEW, MEMBERS)
    assert str(caught.value).startswith(ORIGIN.format("cooperative", "Cooperative"))


def test_a_leader_with_an_invalid_assignment_sends_no_sync() -> None:
    """The violation is raised to the caller once, no SyncGroup is sent, and the member joins again."""
    group = GroupHarness(assignor=broken("eager", to(me=(A0, A0))))
    group.respond(group.until("JoinGroup"), group.joined(leader=True))
    assert [] == group.poll()
    error = group.membership.take_error()
    assert isinstance(error, AssignorError)
    assert str(error).startswith(ORIGIN.format("eager", "Eager"))
    assert group.membership.take_error() is None
    group.now += 1000
    assert "JoinGroup" == group.until("JoinGroup").api.name
