"""Groups of members that process records by `kconsumer.parallel`, in virtual time: what is lost, and what is repeated.

The generated scenarios have such members, too. `handler_journal.py` has the rules.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.simulation.run import Outcome, run_scenario
from support.simulation.scenario import MINUTE_MS, Fault, FaultKind, Member, Program, Scenario, Workers
from support.simulation.settings import MAX_POLL_INTERVAL_MS

FAST = Workers(slow=0.0, run_ms=1e9)
EXECUTORS = ("threads", "asyncio")
KINDS = (("classic", "classic"), ("threaded", "classic"), ("classic", "consumer"), ("asyncio", "classic"))
MAX_DELAY_MS = 1_500.0  # how long the commit of a finished record takes, besides the interval between commits


def group(workers: Workers, protocols: tuple[str, ...] = ("classic",), **fields: object) -> Scenario:
    """Returns a scenario of ten minutes with three members."""
    kinds = [kind for kind in KINDS if kind[1] in protocols] * 3
    members = tuple(
        Member(Program.PARALLEL, engine=engine, protocol=protocol, workers=workers) for engine, protocol in kinds[-3:]
    )
    scenario = Scenario(
        3,
        members,
        duration_ms=10 * MINUTE_MS,
        keys=10,
        record_interval_ms=200.0,
        session_timeout_ms=10_000,
        fetch_max_wait_ms=2_500,
    )
    return replace(scenario, **fields)  # type: ignore[arg-type]


def run(scenario: Scenario) -> Outcome:
    """Run a scenario, which must not violate a rule, and process all records."""
    outcome = run_scenario(scenario)
    assert () == outcome.violations
    assert 300 < outcome.records == outcome.handlers.finished - len(outcome.handlers.repeated)
    return outcome


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_killed_members_repeat_what_is_not_committed_yet(executor: str, protocol: str) -> None:
    """A record is processed again only if its handler returned less than a commit interval before a kill.

    The kills are so rare that the group is stable before each of them: no member can commit while it joins.
    """
    kills = [30_000.0 + 40_000.0 * n for n in range(5)]
    faults = tuple(Fault(FaultKind.CRASH, at_ms, 3_000.0, member=n % 3) for n, at_ms in enumerate(kills))
    workers = replace(FAST, executor=executor, order="none", number=8, commit_interval_s=2.0)
    handlers = run(group(workers, (protocol,), faults=faults, duration_ms=12 * MINUTE_MS)).handlers
    assert handlers.repeated
    window_ms = 1000 * workers.commit_interval_s + MAX_DELAY_MS
    unexplained = [
        repetition
        for repetition in handlers.repeated
        if not any(kill - window_ms <= repetition.first_ms <= kill <= repetition.again_ms for kill in kills)
    ]
    assert [] == unexplained


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_members_that_come_and_go_repeat_nothing(order: str) -> None:
    """Rebalances and runs that end repeat no record, because handlers are waited for and their records committed."""
    workers = replace(FAST, order=order, slow=0.05, slow_ms=4_000.0, run_ms=30_000.0)
    scenario = group(workers, ("classic", "consumer"))
    starts = [(0.0, None), (20_000.0, 60_000.0), (40_000.0, None), (50_000.0, 90_000.0), (80_000.0, None)]
    members = tuple(
        replace(scenario.members[n % 2], protocol="classic", start_ms=start, stop_ms=stop)
        for n, (start, stop) in enumerate(starts)
    )
    outcome = run(replace(scenario, members=members))
    assert [] == outcome.handlers.repeated
    assert outcome.handlers.dead_letters


@pytest.mark.parametrize("executor", EXECUTORS)
def test_slow_handlers_keep_the_membership(executor: str) -> None:
    """While handlers take longer than `max_poll_interval_ms` and the window is full, no member is removed."""
    slow_ms = 3.0 * MAX_POLL_INTERVAL_MS
    workers = replace(
        FAST, executor=executor, order="none", number=2, max_in_flight=4, slow=1.0, slow_ms=slow_ms, failing=0.0
    )
    workers = replace(workers, drain_timeout_s=2 * slow_ms / 1000)
    scenario = group(workers, duration_ms=15 * MINUTE_MS, record_interval_ms=5_000.0)
    outcome = run(replace(scenario, members=scenario.members[:1]))
    assert [] == outcome.handlers.repeated
    assert [] == [line for line in outcome.history if ": lost " in line]
    began = {line.split()[-1]: float(line.split()[0]) for line in outcome.history if ": starts " in line}
    ended = {line.split()[-1]: float(line.split()[0]) for line in outcome.history if ": finishes " in line}
    assert max(ended[record] - began[record] for record in ended) > MAX_POLL_INTERVAL_MS
