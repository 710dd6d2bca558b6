"""The cluster model responds to every scenario as real brokers did when their responses were recorded."""

from __future__ import annotations

import pytest

from support.scenarios.real_broker import of_release, recorded
from support.scenarios.scenario import RELEASES, Scenario, run_on_the_model

#: Scenarios run in parts of this many, because pytest and its workers need more time for a test than for a scenario.
PART = 40


def parts() -> list[object]:
    """Returns each release with the scenarios of a part; the id of a part is the name of its first scenario."""
    return [
        pytest.param(release, scenarios[at : at + PART], id=f"{release}-{scenarios[at].name}")
        for release in RELEASES
        for scenarios in [of_release(release)]
        for at in range(0, len(scenarios), PART)
    ]


RECORDED = {release: recorded(release) for release in RELEASES}


@pytest.mark.parametrize(("release", "part"), parts())
def test_the_model_equals_a_real_broker(release: str, part: list[Scenario]) -> None:
    """Every response of the model is what a broker of the same release sent, but for the fields that may differ."""
    for scenario in part:
        assert RECORDED[release][scenario.name] == run_on_the_model(scenario, release), scenario.name


@pytest.mark.parametrize("release", RELEASES)
def test_every_scenario_is_recorded(release: str) -> None:
    """The recorded responses belong to the scenarios that a release can run, and to no others."""
    assert sorted(scenario.name for scenario in of_release(release)) == sorted(RECORDED[release])
