"""Tests of the command kconsumer-simulate: histories, diagrams, shrinking, coverage."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace

import pytest

from support.simulation.__main__ import main
from support.simulation.diagram import history_of, sequence_diagram, window
from support.simulation.generate import generate
from support.simulation.run import run_scenario
from support.simulation.runner import first_seed, run_one, scenario_of
from support.simulation.scenario import MINUTE_MS, Fault, FaultKind, Member, Program, Scenario, Workers
from support.simulation.shrink import as_test, kind_of, shrink
from support.simulation.transition_coverage import UNREACHABLE, all_transitions, unseen

SMALL = Scenario(
    3,
    (Member(Program.AUTO_COMMIT), Member(Program.COMMIT, engine="threaded")),
    (Fault(FaultKind.RESET, 2 * MINUTE_MS),),
    duration_ms=20 * MINUTE_MS,
    partitions=2,
    record_interval_ms=30_000.0,
)


def test_a_history_until_a_time() -> None:
    """A replay up to a time has the same history as the beginning of the whole run."""
    whole = run_scenario(SMALL).history
    part = history_of(SMALL, 130_000.0)
    assert part
    assert whole[: len(part)] == part
    assert window(whole, 0.0, 130_000.0) == part


def test_requests_in_a_history() -> None:
    """Recording requests changes nothing else, and a diagram shows each request and each response."""
    plain, detailed = history_of(SMALL, 5_000.0), history_of(SMALL, 5_000.0, requests=True)
    assert plain == [entry for entry in detailed if " -> " not in entry]
    lines = sequence_diagram(detailed).splitlines()
    assert "sequenceDiagram" == lines[0]
    joins = re.findall(r"(m\d)->>b\d: \S+ JoinGroup v\d+ no\. (\d+)", "\n".join(lines))
    responses = re.findall(r"b\d-->>(m\d): \S+ JoinGroup response no\. (\d+)", "\n".join(lines))
    in_flight = [join for join in joins if join not in responses]  # when the history ends
    assert len(responses) > 1
    assert sorted(joins) == sorted(responses + in_flight)
    assert all(join == [other for other in joins if other[0] == join[0]][-1] for join in in_flight)
    assert any("JoinGroup response" in line and "MEMBER_ID_REQUIRED" in line for line in lines)
    assert any("Note over m0" in line and "assigned" in line for line in lines)


def test_shrink() -> None:
    """Everything that a violation does not need is removed; the result is code that creates the scenario."""

    def check(scenario: Scenario) -> set[str]:
        crash = any(fault.kind is FaultKind.CRASH for fault in scenario.faults)
        return {"lost"} if crash and scenario.partitions >= 2 else set()

    large = generate(11)
    crash = Fault(FaultKind.CRASH, 3 * MINUTE_MS, 1_000.0, member=0, broker=2)
    large = replace(large, faults=(*large.faults[:2], crash, *large.faults[2:]), partitions=12)
    small = shrink(large, check=check)
    assert (1, 1, 3) == (len(small.members), len(small.faults), small.partitions)
    assert (1, 0.0) == (small.brokers, small.faults[0].duration_ms)
    assert small.duration_ms < 30 * MINUTE_MS
    names = {kind.__name__: kind for kind in (Scenario, Member, Program, Workers, Fault, FaultKind)}
    code = as_test(small).split("scenario = ", 1)[1].rsplit("\n    assert", 1)[0]
    assert small == eval(code, names)


def test_nothing_to_shrink() -> None:
    """A scenario that violates no rule stays as it is."""
    assert SMALL is shrink(SMALL, check=lambda _: set())


@pytest.mark.parametrize(
    ("violation", "kind"),
    [
        ("12.000 two owners of t-11: m0 and m1", "two owners"),
        ("12.000 gap: m0 returned t-1@2 after 0", "gap"),
        ("12.000 m0 returned t-1@2 without owning the partition", "not owned"),
        ("12.000 not stable: t-3 has owners []", "not stable"),
    ],
)
def test_kinds_of_violations(violation: str, kind: str) -> None:
    """Violations of the same rule have the same kind."""
    assert kind == kind_of(violation)


def test_coverage() -> None:
    """A run reports the transitions of each state machine, and only legal ones."""
    seen = run_one(SMALL).transitions
    assert seen < set(all_transitions())
    assert ("connection", "CONNECTING", "CHECKING_VERSIONS") in seen
    assert ("partition", "INITIALIZING", "AWAIT_RESET") in seen
    assert {"connection", "partition", "member of the classic protocol"} == {machine for machine, _, _ in seen}
    assert set(all_transitions()) == {*seen, *unseen(seen), *UNREACHABLE}
    assert not seen & set(UNREACHABLE)


def test_each_day_has_its_seeds() -> None:
    """The seeds of two days differ, and a sparse scenario differs from the usual one in its rates only."""
    today = datetime.date(2030, 1, 1)
    assert first_seed(today) + 100_000 == first_seed(datetime.date(2030, 1, 2))
    dense, sparse = scenario_of(5, 1.0), scenario_of(5, 1.0, sparse=True)
    assert dense == replace(
        sparse, fetch_max_wait_ms=dense.fetch_max_wait_ms, record_interval_ms=dense.record_interval_ms
    )


def test_run_prints_violations(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code of `run` says whether a rule was violated, and the output names the seed."""
    command = ["run", "--seeds", "7..8", "--length", "0.4", "--sparse", "--jobs", "1", "--coverage"]
    assert 0 == main(command)
    output = capsys.readouterr().out
    assert "2 runs, 0.8 virtual hours" in output
    assert "transitions happened" in output
    monkeypatch.setattr("support.simulation.runner.run_scenario", lambda _: 1 / 0)
    assert 1 == main(command)
    assert "seed 7: exception: ZeroDivisionError" in capsys.readouterr().out
