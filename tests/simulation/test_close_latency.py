"""How long close() takes while brokers delay the responses to fetches, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, members, run_simulated
from support.simulation.simulation import Simulation

TOPIC, GROUP = "t", "g"
FETCH_WAIT_MS = 20_000
MAX_CLOSE_MS = 200.0  # round trips, and delays of threads
BROKERS = 3
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer protocol": {"group_protocol": "consumer"},
    "asyncio": {"asyncio": True},
}


def consumer(simulation: Simulation, name: str, **options: Any) -> Consumer:
    """Returns a consumer whose fetches wait long at the brokers."""
    defaults = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": FETCH_WAIT_MS, "group_id": GROUP}
    return simulation.consumer(Process(name), **(defaults | options))


def read_all(simulation: Simulation, reader: Consumer) -> None:
    """Read a record of each partition, and poll until the next fetches wait at the brokers."""
    for partition in range(BROKERS):
        append(simulation, TOPIC, [b"value"], partition)
    count = 0
    while count < BROKERS:
        count += len(reader.poll(1.0))
    assert not reader.poll(2.0)


def close_ms(simulation: Simulation, closed: Consumer) -> float:
    """Close a consumer. Returns how long that took (ms)."""
    began = simulation.now
    closed.close()
    return simulation.now - began


def cluster_of(brokers: int) -> Cluster:
    """Returns a cluster with a topic that has a partition on each broker."""
    cluster = Cluster(brokers, seed=1)
    cluster.create_topic(TOPIC, BROKERS)
    return cluster


@pytest.mark.parametrize("brokers", [1, BROKERS])
@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_a_member(options: dict[str, Any], brokers: int) -> None:
    """A member commits, leaves the group and ends its fetch sessions, and does not wait for fetches in flight."""

    def test(simulation: Simulation) -> None:
        reader = consumer(simulation, "test", **options)
        reader.subscribe([TOPIC])
        read_all(simulation, reader)
        assert close_ms(simulation, reader) < MAX_CLOSE_MS
        assert members(simulation, GROUP) == 0
        assert not any(broker.fetch_sessions.sessions for broker in simulation.cluster.brokers.values())

    run_simulated(test, cluster_of(brokers))


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_without_a_group(options: dict[str, Any]) -> None:
    """A consumer without a group ends its fetch sessions, and does not wait for fetches in flight."""

    def test(simulation: Simulation) -> None:
        reader = consumer(simulation, "test", **options, group_id=None)
        reader.assign([(TOPIC, partition) for partition in range(BROKERS)])
        read_all(simulation, reader)
        assert close_ms(simulation, reader) < MAX_CLOSE_MS
        assert not any(broker.fetch_sessions.sessions for broker in simulation.cluster.brokers.values())

    run_simulated(test, cluster_of(BROKERS))


def test_during_a_rebalance() -> None:
    """A cooperative member that waits for others to join again leaves at once, although it reads meanwhile."""

    def test(simulation: Simulation) -> None:
        options = {"assignors": ["cooperative-sticky"], "enable_auto_commit": False}
        first, second, third = (consumer(simulation, name, **options) for name in ("first", "second", "third"))
        for member in (first, second):
            member.subscribe([TOPIC])
        while not first.assignment() or not second.assignment():
            first.poll(0.1)
            second.poll(0.1)
        third.subscribe([TOPIC])
        third.poll(0.1)
        end = simulation.now + 8_000
        while simulation.now < end:  # longer than the heartbeat interval; `second` does not join again
            first.poll(0.1)
        assert not third.assignment()
        assert close_ms(simulation, first) < MAX_CLOSE_MS

    run_simulated(test, cluster_of(1))


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_no_broker(options: dict[str, Any]) -> None:
    """A consumer that has never reached a broker closes at once."""

    def test(simulation: Simulation) -> None:
        simulation.cluster.kill(1)
        reader = consumer(simulation, "test", **options)
        reader.subscribe([TOPIC])
        assert not reader.poll(2.0)
        assert close_ms(simulation, reader) < MAX_CLOSE_MS

    run_simulated(test, cluster_of(1))
