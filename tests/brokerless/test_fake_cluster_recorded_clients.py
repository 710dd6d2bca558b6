"""aiokafka and kafka-python see the same on FakeCluster as they saw on a real broker when this was recorded."""

from __future__ import annotations

import pytest

from kconsumer.testing import FakeCluster
from support.scenarios.clients import SCENARIOS, recorded, seen


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_clients_see_what_they_saw(name: str) -> None:
    """Each line of a scenario is that of a real broker."""
    with FakeCluster() as cluster:
        assert recorded()[name] == seen(name, cluster.bootstrap_servers)
