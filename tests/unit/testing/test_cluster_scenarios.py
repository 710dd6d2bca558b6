"""The cluster model responds to every scenario as real brokers did when their responses were recorded."""

from __future__ import annotations

import pytest

from support.scenarios.real_broker import of_release, recorded
from support.scenarios.scenario import RELEASES, Scenario, run_on_the_model

CASES = [
    pytest.param(release, scenario, id=f"{release}-{scenario.name}")
    for release in RELEASES
    for scenario in of_release(release)
]
RECORDED = {release: recorded(release) for release in RELEASES}


@pytest.mark.parametrize(("release", "scenario"), CASES)
def test_the_model_equals_a_real_broker(release: str, scenario: Scenario) -> None:
    """Every response of the model is what a broker of the same release sent, but for the fields that may differ."""
    assert RECORDED[release][scenario.name] == run_on_the_model(scenario, release)


@pytest.mark.parametrize("release", RELEASES)
def test_every_scenario_is_recorded(release: str) -> None:
    """The recorded responses belong to the scenarios that a release can run, and to no others."""
    assert sorted(scenario.name for scenario in of_release(release)) == sorted(RECORDED[release])
