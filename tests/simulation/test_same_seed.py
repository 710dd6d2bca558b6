"""The same seed gives the same history, in the same process and in another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.simulation.run import run_scenario
from support.simulation.scenario import MINUTE_MS, Fault, FaultKind, Member, Program, Scenario

TESTS = Path(__file__).parents[1]
FAULTS = (
    Fault(FaultKind.CRASH, 4 * MINUTE_MS, 20_000.0, member=1),
    Fault(FaultKind.KILL_BROKER, 6 * MINUTE_MS, 30_000.0, broker=2),
    Fault(FaultKind.RESET, 8 * MINUTE_MS),
    Fault(FaultKind.MOVE_LEADERS, 9 * MINUTE_MS),
)


def scenario_of(protocol: str, engine: str, seed: int = 5) -> Scenario:
    """Returns a scenario with three members and four faults."""
    programs = (Program.AUTO_COMMIT, Program.COMMIT, Program.SEEK_BACK)
    return Scenario(
        seed,
        tuple(Member(program, engine=engine, protocol=protocol) for program in programs),
        FAULTS,
        duration_ms=20 * MINUTE_MS,
        partitions=6,
        record_interval_ms=5_000.0,
        session_timeout_ms=10_000,
    )


KINDS = [
    ("classic", "classic"),
    ("classic", "threaded"),
    ("consumer", "classic"),
    ("classic", "asyncio"),
    ("consumer", "asyncio"),
]


@pytest.mark.parametrize(("protocol", "engine"), KINDS)
def test_same_seed_same_history(protocol: str, engine: str) -> None:
    """Two runs of a scenario have the same history, byte for byte. Another seed gives another one."""
    scenario = scenario_of(protocol, engine)
    first, second = run_scenario(scenario), run_scenario(scenario)
    assert first.history == second.history
    assert first.digest == second.digest
    assert first.digest != run_scenario(scenario_of(protocol, engine, seed=6)).digest
    assert first.returned


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_same_seed_in_another_process(hash_seed: str) -> None:
    """The order of sets of strings, which differs from process to process, has no effect on the history."""
    script = (
        "from support.simulation.run import run_scenario; from support.simulation.scenario import *\n"
        f"for scenario in {[scenario_of(*kind) for kind in KINDS]!r}: print(run_scenario(scenario).digest)"
    )
    python_path = [str(TESTS), *(entry for entry in sys.path if entry)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(python_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=500
    )
    assert [run_scenario(scenario_of(*kind)).digest for kind in KINDS] == done.stdout.split()
