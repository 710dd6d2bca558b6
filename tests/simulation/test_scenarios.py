"""Generated scenarios: hours of groups and faults in virtual time, in which every rule must hold.

`tox -e simulate` runs thousands of hours. If a seed fails here, `tools/kconsumer-simulate shrink` reduces its scenario;
`support/simulation/regressions.py` keeps those that failed once.
"""

from __future__ import annotations

import pytest

from support.simulation.regressions import REGRESSIONS
from support.simulation.run import run_scenario
from support.simulation.runner import run_one, scenario_of

HOURS = 2.0  # virtual, of each sparse scenario
#: 20 virtual hours in `make test`: 120 times the ten minutes within which each mutation is found. The other seeds
#: run every night, and `tox -e simulate` draws new ones.
SEEDS = [*range(1, 11), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(11, 51))]
BUSY_SEEDS = range(1, 7)  # scenarios as they are generated, with more records and requests


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_sparse_scenario(seed: int) -> None:
    """A run with few records violates no rule (`tools/kconsumer-simulate show SEED --length 2 --sparse`)."""
    assert () == run_one(scenario_of(seed, HOURS, sparse=True)).violations


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", BUSY_SEEDS)
def test_busy_scenario(seed: int) -> None:
    """A run with many records violates no rule (`tools/kconsumer-simulate show SEED --length 0.5`)."""
    assert () == run_one(scenario_of(seed, 0.5)).violations


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression(name: str) -> None:
    """A scenario that once violated a rule violates none any more."""
    assert () == run_scenario(REGRESSIONS[name]).violations
