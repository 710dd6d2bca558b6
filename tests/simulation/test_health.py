"""`consumer.health()` in virtual time: applications that stop polling, that poll for long, and that hang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import (
    SimulatedAsyncConsumer,
    SimulatedShareConsumer,
    Simulation,
    run_coroutine,
)

TOPIC, GROUP = "t", "g"
INTERVAL_MS = 10_000
LATE = "no poll() for 11 s, more than max_poll_interval_ms (10 s)"
KINDS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 60_000},
    "threaded": {"engine": "threaded", "session_timeout_ms": 60_000},
    "consumer": {"group_protocol": "consumer"},
    "no group": {},
    "share": {},
}


def make(simulation: Simulation, kind: str) -> Any:
    """Returns a consumer of a kind that reads the topic."""
    options = {"fetch_max_wait_ms": 500, "max_poll_interval_ms": INTERVAL_MS, **KINDS[kind]}
    if kind == "share":
        return SimulatedShareConsumer(simulation, Process("test"), TOPIC, group_id=GROUP, **options)
    group = None if kind == "no group" else GROUP
    consumer = simulation.consumer(Process("test"), group_id=group, auto_offset_reset="earliest", **options)
    if group:
        consumer.subscribe([TOPIC])
    else:
        consumer.assign([(TOPIC, 0)])
    return consumer


def simulate(test: Any) -> None:
    """Run a test with a cluster that has the topic."""
    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    run_simulated(test, cluster, limit_ms=300_000)


@pytest.mark.parametrize("kind", KINDS)
def test_polling_in_time(kind: str) -> None:
    """A consumer is healthy from its first assignment on, during and after a poll that is longer than the interval, and
    not after an interval without polls: then a restart helps. It is healthy again when it polls again.
    """

    def test(simulation: Simulation) -> None:
        consumer = make(simulation, kind)
        before = consumer.health()
        assert (False, True, "poll() was not called yet") == (before.ok, before.live, before.reasons[0])
        while not consumer.health().ok:
            consumer.poll(0.1)
        during: list[Any] = []

        def probe() -> None:
            for _ in range(3):
                simulation.sleep(0.8 * INTERVAL_MS)
                during.append(consumer.health())

        simulation.spawn(Process("probe"), "probe", probe)
        consumer.poll(2.5 * INTERVAL_MS / 1000)
        assert [(True, ())] * 3 == [(found.ok, found.reasons) for found in during]
        consumer.poll(0.0)
        simulation.sleep(INTERVAL_MS + 1_000)
        late = consumer.health()
        assert (False, False, LATE) == (late.ok, late.live, late.reasons[0])
        assert ("no group" == kind) == (1 == len(late.reasons))  # the member has left its group
        consumer.poll(0.0)
        assert consumer.health().live
        while not consumer.health().ok:
            consumer.poll(0.1)
        consumer.close()
        closed = consumer.health()
        assert (False, True) == (closed.ok, closed.live)
        simulation.sleep(INTERVAL_MS + 1_000)
        assert not consumer.health().live  # its process hangs

    simulate(test)


def test_a_consumer_that_never_polls() -> None:
    """After an interval without a first poll, a restart helps."""

    def test(simulation: Simulation) -> None:
        consumer = make(simulation, "classic")
        simulation.sleep(INTERVAL_MS + 1_000)
        assert (LATE, "poll() was not called yet") == consumer.health().reasons[:2]
        assert not consumer.health().live
        consumer.close()

    simulate(test)


@pytest.mark.parametrize("kind", ["classic", "threaded", "consumer"])
def test_a_callback_that_hangs(kind: str) -> None:
    """A poll whose callback does not return for longer than the interval is not in time."""

    def test(simulation: Simulation) -> None:
        consumer, found = make(simulation, kind), []

        def hang(_consumer: object, _partitions: object) -> None:
            simulation.sleep(INTERVAL_MS + 1_000)
            found.append(consumer.health())

        consumer.subscribe([TOPIC], on_assign=hang)
        while not found:
            consumer.poll(1.0)
        assert not found[0].live
        consumer.close()

    simulate(test)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_event_loop_that_hangs(protocol: str) -> None:
    """Another thread learns that the event loop of an AsyncConsumer is blocked, although a task waits in `poll`."""

    def test(simulation: Simulation) -> None:
        async def main() -> None:
            consumer = SimulatedAsyncConsumer(
                simulation,
                Process("test"),
                TOPIC,
                group_id=GROUP,
                group_protocol=protocol,
                max_poll_interval_ms=INTERVAL_MS,
                **({"session_timeout_ms": 60_000} if protocol == "classic" else {}),
            )
            while not consumer.health().ok:
                await consumer.poll(0.1)
            found: list[Any] = []

            def probe() -> None:
                found.append(consumer.health())
                simulation.sleep(INTERVAL_MS + 2_000)
                found.append(consumer.health())

            poll = asyncio.create_task(consumer.poll(60.0))
            await asyncio.sleep(1.0)
            simulation.spawn(Process("probe"), "probe", probe)
            append(simulation, TOPIC, [b"late"])
            simulation.sleep(INTERVAL_MS + 3_000)  # code of the application blocks the event loop
            assert [(True, True), (False, False)] == [(health.ok, health.live) for health in found]
            await poll
            assert consumer.health().live
            await consumer.close()

        run_coroutine(simulation, main)

    simulate(test)


def test_lag_in_seconds() -> None:
    """With `max_lag_seconds`, the last record that was returned may be this old while there are more."""

    def test(simulation: Simulation) -> None:
        consumer = make(simulation, "no group")
        append(simulation, TOPIC, [b"0", b"1"])
        while not consumer.poll(0.1, max_records=1):
            pass
        simulation.sleep(5_000)
        assert consumer.health(max_lag_seconds=60).ok
        assert (f"{TOPIC}-0 has a lag of 5 s, more than 1.5 s",) == consumer.health(max_lag_seconds=1.5).reasons
        consumer.poll(0.1)
        assert consumer.health(max_lag_seconds=1.5).ok  # it has read all
        consumer.close()

    simulate(test)
