"""The plugin of pytest: the fixture `kafka_cluster`.

pytest imports every installed plugin in every run. So this module is outside `kconsumer`, and imports it when a test
uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kconsumer.testing import FakeCluster

MARKER = "kafka_cluster(**options): the arguments of FakeCluster for the fixture kafka_cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """A fake Kafka cluster of one broker. `@pytest.mark.kafka_cluster(brokers=3)` sets the arguments of FakeCluster."""
    from kconsumer.testing import FakeCluster

    marker = request.node.get_closest_marker("kafka_cluster")
    with FakeCluster(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as cluster:
        yield cluster
