"""Real brokers respond to the scenarios as recorded, so the responses that hold the cluster model are still theirs.

`make test` runs a part of the scenarios, another one each day.
"""

from __future__ import annotations

from datetime import date

import pytest

from support.brokers.kafka import Kafka
from support.scenarios import clients
from support.scenarios.real_broker import of_release, recorded, run_all
from support.scenarios.scenario import RELEASES

PARTS = 5
TODAY = slice(date.today().toordinal() % PARTS, None, PARTS)
ALL = slice(None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [TODAY, pytest.param(ALL, marks=pytest.mark.long)], ids=["today", "all"])
@pytest.mark.parametrize("release", RELEASES)
def test_recorded_responses_are_those_of_a_broker(release: str, part: slice) -> None:
    """A broker of each release responds to every scenario as it did when the responses were recorded.

    `python -m support.scenarios.real_broker` records them again. Scenarios that differ run a second time, one by one,
    because some of them need a broker that responds within their session timeouts.
    """
    expected, scenarios = recorded(release), of_release(release)[part]
    found = run_all(release, scenarios)
    differing = [scenario for scenario in scenarios if found[scenario.name] != expected[scenario.name]]
    if differing:
        found |= run_all(release, differing, workers=1)
    assert {s.name: expected[s.name] for s in differing} == {s.name: found[s.name] for s in differing}


@pytest.mark.long
@pytest.mark.parametrize("name", clients.SCENARIOS)
def test_other_clients_see_what_they_saw(kafka: Kafka, name: str) -> None:
    """On a real broker, other clients see what is recorded, and what they must see on a FakeCluster."""
    assert clients.recorded()[name] == clients.seen(name, kafka.bootstrap_servers)
