"""Reduces a scenario that violates a rule to a small one that still violates it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pprint import pformat

from support.simulation.run import run_scenario
from support.simulation.scenario import HOUR_MS, MINUTE_MS, Fault, Member, Program, Scenario

SHORTEST_MS = 20 * MINUTE_MS  # a run ends with ten minutes without faults
MAX_RUNS = 200


def kind_of(violation: str) -> str:
    """Returns the rule that a violation is about: its text without the time, names and numbers."""
    text = violation.partition(" ")[2]
    if "without owning" in text:
        return "not owned"
    head = text.partition(":")[0]
    return re.sub(r" of \S+$", "", head)


def violated(scenario: Scenario) -> set[str]:
    """Run a scenario. Returns the rules that it violates. An exception of the run counts as a violation."""
    try:
        return {kind_of(violation) for violation in run_scenario(scenario).violations}
    except Exception as error:  # what it is does not matter: the scenario shows a defect
        return {f"exception {type(error).__name__}"}


def shrink(
    scenario: Scenario,
    *,
    check: Callable[[Scenario], set[str]] = violated,
    report: Callable[[str], None] = lambda _: None,
    max_runs: int = MAX_RUNS,
) -> Scenario:
    """Returns a scenario that violates a rule that `scenario` violates, and has less of everything.

    Tries smaller scenarios one after the other, and continues from each that still violates the same rule. Returns
    `scenario` if it violates no rule.
    """
    wanted = check(scenario)
    runs = 1
    smaller = bool(wanted)
    while smaller and runs < max_runs:
        smaller = False
        for candidate in candidates(scenario):
            runs += 1
            if wanted & check(candidate):
                scenario, smaller = candidate, True
                report(f"run {runs}: {describe(scenario)}")
                break
            if runs >= max_runs:
                break
    return scenario


def describe(scenario: Scenario) -> str:
    """Returns the size of a scenario in words."""
    hours = scenario.duration_ms / HOUR_MS
    return (
        f"{hours:.2f} h, {len(scenario.members)} members, {len(scenario.faults)} faults, "
        f"{scenario.partitions} partitions, {scenario.brokers} brokers"
    )


def candidates(scenario: Scenario) -> Iterator[Scenario]:
    """Yields smaller scenarios, those that remove most first."""
    yield from _shorter(scenario)
    yield from _fewer_faults(scenario)
    if len(scenario.members) > 1:
        for index in range(len(scenario.members)):
            yield _without_member(scenario, index)
    for partitions in dict.fromkeys((1, scenario.partitions // 2)):
        if 0 < partitions < scenario.partitions:
            yield replace(scenario, partitions=partitions)
    if scenario.brokers > 1:
        faults = tuple(replace(fault, broker=1) for fault in scenario.faults)
        yield replace(scenario, brokers=1, faults=faults)
    yield from _simpler_members(scenario)
    yield from _simpler_faults(scenario)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    for factor in (0.25, 0.5, 0.75):
        duration = scenario.duration_ms * factor
        if duration < SHORTEST_MS:
            continue
        members = tuple(
            replace(m, stop_ms=None if m.stop_ms is None or m.stop_ms >= duration else m.stop_ms)
            for m in scenario.members
            if m.start_ms < duration - 10 * MINUTE_MS
        )
        if members:
            faults = tuple(fault for fault in scenario.faults if fault.at_ms < duration - 10 * MINUTE_MS)
            yield replace(scenario, duration_ms=duration, members=members, faults=faults)


def _fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    faults = scenario.faults
    size = len(faults)
    while size:
        for first in range(0, len(faults), size):
            yield replace(scenario, faults=faults[:first] + faults[first + size :])
        size //= 2


def _without_member(scenario: Scenario, index: int) -> Scenario:
    """Returns the scenario without a member, and without the faults that concern it only."""
    members = scenario.members[:index] + scenario.members[index + 1 :]
    faults = tuple(_renumbered(fault, index) for fault in scenario.faults)
    return replace(scenario, members=members, faults=faults)


def _renumbered(fault: Fault, removed: int) -> Fault:
    return replace(fault, member=fault.member - 1) if fault.member > removed else fault


def _simpler_members(scenario: Scenario) -> Iterator[Scenario]:
    plain = Member(Program.AUTO_COMMIT)
    for index, member in enumerate(scenario.members):
        for name in ("stop_ms", "start_ms", "static", "program", "workers", "engine"):
            value = getattr(plain, name)
            if getattr(member, name) != value:
                simpler = replace(member, **{name: value})
                members = (*scenario.members[:index], simpler, *scenario.members[index + 1 :])
                yield replace(scenario, members=members)


def _simpler_faults(scenario: Scenario) -> Iterator[Scenario]:
    for index, fault in enumerate(scenario.faults):
        if fault.duration_ms:
            simpler = replace(fault, duration_ms=0.0)
            yield replace(scenario, faults=(*scenario.faults[:index], simpler, *scenario.faults[index + 1 :]))


def as_test(scenario: Scenario) -> str:
    """Returns the code of a test that runs a scenario."""
    code = "    scenario = " + pformat(scenario, width=100).replace("\n", "\n    ")
    return "\n".join(
        [
            f"def test_seed_{scenario.seed}() -> None:",
            '    """This scenario violates no rule."""',
            code,
            "    assert () == run_scenario(scenario).violations",
        ]
    )
