"""Range and round robin equal Java, by the results of Java in golden.json."""

from __future__ import annotations

import pytest

from kconsumer.assignors import assign, load
from support.oracles.assignor_golden import cases

CASES = list(cases())


def test_there_are_cases() -> None:
    """The file contains cases; without cases the comparison would always pass."""
    assert 60 == len(CASES)
    assert any(subscription.rack_id for case in CASES for subscription in case.subscriptions.values())


@pytest.mark.parametrize("number", range(len(CASES)))
def test_range_equals_java(number: int) -> None:
    """range gives every member the same partitions as Java, whose order of topics is that of a hash map."""
    case = CASES[number]
    given = assign(load("range"), case.view, case.subscriptions)
    assert case.results["range"] == {member: sorted(assignment.partitions) for member, assignment in given.items()}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_roundrobin_equals_java(number: int) -> None:
    """roundrobin gives every member the same partitions in the same order as Java."""
    case = CASES[number]
    given = assign(load("roundrobin"), case.view, case.subscriptions)
    assert case.results["roundrobin"] == {member: list(assignment.partitions) for member, assignment in given.items()}
