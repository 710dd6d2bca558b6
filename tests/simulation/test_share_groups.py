"""Share groups in virtual time: random members and faults, and defects that the simulation must find.

`share_journal.py` has the rules. `KCONSUMER_SHARE_SEEDS=100:400` runs other seeds.
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace

import pytest

from simulation.mutation import Mutation
from simulation.share_mutations import MUTATIONS
from support.simulation.scenario import Fault, FaultKind
from support.simulation.share_run import run_share_scenario
from support.simulation.share_scenario import ShareMember, ShareScenario, generate_share

# A run that ends at a violation leaves its consumers open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ShareConsumer:ResourceWarning")

FIRST, END = map(int, os.environ.get("KCONSUMER_SHARE_SEEDS", "0:12").split(":"))
SEEDS = range(12)  # a mutation must be found with one of them, because each may miss the moment that a defect needs

SLOW_FETCHES = tuple(Fault(FaultKind.SLOW_REQUESTS, 1_000.0 + 20_000.0 * n, 15_000.0, number=0) for n in range(4))
RESETS = tuple(Fault(FaultKind.RESET, 5_000.0 + 9_000.0 * n, 0.0, member=n) for n in range(9))


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_no_rule_is_violated(seed: int) -> None:
    """Every record is accepted or given up, and at each moment at most one member holds it."""
    outcome = run_share_scenario(generate_share(seed))
    assert () == outcome.violations
    assert 0 < outcome.records <= outcome.returned


def test_the_same_seed_gives_the_same_history() -> None:
    """A run can be repeated."""
    first, second = (run_share_scenario(generate_share(9)) for _ in range(2))
    assert first.digest == second.digest


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_simulation_finds_the_defect(mutation: Mutation) -> None:
    """A scenario violates the expected rule first with the mutation, and none without it."""
    scenario, text = EXPECTED[mutation.name]
    seed = next((seed for seed in SEEDS if _found(mutation, replace(scenario, seed=seed), text)), None)
    assert seed is not None, f"not found: {mutation.description}"
    assert () == run_share_scenario(replace(scenario, seed=seed)).violations


def _found(mutation: Mutation, scenario: ShareScenario, text: str) -> bool:
    """Returns whether the expected violation was the first one."""
    with mutation.applied():
        violations = run_share_scenario(scenario, until_violation=True).violations
    gc.collect()  # the warnings about open consumers
    return bool(violations) and text in violations[0]


def _group(*faults: Fault, **fields: object) -> ShareScenario:
    """Returns a scenario with three members of one kind."""
    scenario = ShareScenario(0, (), faults, duration_ms=210_000.0, record_interval_ms=500.0, topics=2)
    return replace(scenario, members=(ShareMember(**fields),) * 3)  # type: ignore[arg-type]


EXPECTED = {
    "lock-counts-from-the-response": (_group(*SLOW_FETCHES, max_poll_records=1, slow=0.3), "not locked"),
    "expired-records-returned": (_group(max_poll_records=1, slow=0.3), "not locked"),
    "expired-renewals-returned": (_group(explicit=True, renews=0.3, commits=1.0, slow=0.3), "not locked"),
    "late-renewals-returned": (
        replace(
            _group(),
            members=(ShareMember(explicit=True, renews=0.4, slow=0.4),) * 2 + (ShareMember(explicit=True),) * 2,
            record_interval_ms=1_000.0,
            partitions=1,
            topics=1,
        ),
        "received after its acknowledgement",
    ),
    "records-before-unsubscribe-returned": (_group(resubscribes=0.3), "not"),
    "unsubscribed-records-returned": (_group(max_poll_records=1, resubscribes=0.3), "not subscribed"),
    "unreached-records-accepted": (_group(iterates=0.5), "accepted without processing"),
    "one-type-for-all": (_group(explicit=True, releases=0.3), "accepted without processing"),
    "dead-letters-accepted": (_group(explicit=True, workers=4), "wrong acknowledgement"),
    "accepted-at-close": (_group(reopens=0.2), "accepted without processing"),
    "failures-reported-as-success": (_group(*RESETS, explicit=True), "not stored"),
}
