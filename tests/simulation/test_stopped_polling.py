"""An application that stops polling, in virtual time: when its consumer ceases to fetch."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

TOPIC, GROUP = "t", "g"
INTERVAL_MS = 10_000
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 60_000},
    "threaded": {"engine": "threaded", "session_timeout_ms": 60_000},
    "consumer": {"group_protocol": "consumer"},
}


def fetches(consumer: Consumer) -> float:
    """Returns how many Fetch responses the consumer has received."""
    [value] = [value for name, value in consumer.metrics().items() if name.name == "fetch-total"]
    return value


@pytest.mark.parametrize(
    ("engine", "group"),
    [(engine, group) for engine in ENGINES for group in (GROUP, None) if group or engine != "consumer"],
)
def test_nothing_is_fetched_after_the_interval(engine: str, group: str | None) -> None:
    """After max_poll_interval_ms without a poll nothing is fetched; later polls return what was written since."""

    def test(simulation: Simulation) -> None:
        options = {"fetch_max_wait_ms": 500, "max_poll_interval_ms": INTERVAL_MS, "auto_offset_reset": "earliest"}
        reader = simulation.consumer(Process("test"), **(options | ENGINES[engine]), group_id=group)
        if group == GROUP:
            reader.subscribe([TOPIC])
        else:
            reader.assign([(TOPIC, 0)])
        append(simulation, TOPIC, [b"first"])
        while not reader.poll(0.1):
            pass
        simulation.sleep(INTERVAL_MS + 1_000)
        before = fetches(reader)
        simulation.sleep(INTERVAL_MS)
        assert before == fetches(reader)
        append(simulation, TOPIC, [b"second"])
        while b"second" not in {record.value for record in reader.poll(0.1)}:
            pass
        reader.close()

    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    run_simulated(test, cluster, limit_ms=300_000)
