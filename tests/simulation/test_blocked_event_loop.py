"""An AsyncConsumer whose event loop is blocked by other code, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, members, run_simulated
from support.simulation.simulation import SimulatedAsyncConsumer, Simulation, run_coroutine

TOPIC, GROUP = "t", "g"
POLL_INTERVAL_MS = 30_000


@pytest.mark.parametrize("polling", [True, False], ids=["in poll", "between polls"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("records", [True, False], ids=["records arrive", "nothing arrives"])
@pytest.mark.parametrize(("blocked_ms", "expected"), [(POLL_INTERVAL_MS - 5_000, 1), (POLL_INTERVAL_MS + 5_000, 0)])
def test_membership(blocked_ms: float, expected: int, records: bool, protocol: str, polling: bool) -> None:
    """A consumer whose event loop is blocked stays a member for max_poll_interval_ms, and then leaves, so that others
    read what it cannot process. When the event loop runs again, it joins again and reads on.
    """
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        options |= {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 3_000}

    def test(simulation: Simulation) -> None:
        async def main() -> None:
            consumer = SimulatedAsyncConsumer(
                simulation,
                Process("test"),
                TOPIC,
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                max_poll_interval_ms=POLL_INTERVAL_MS,
                **options,
            )
            for number in range(5):
                append(simulation, TOPIC, [b"%d" % number])
                assert [b"%d" % number] == [record.value for record in await read(consumer)]
                await consumer.commit()
            poll = asyncio.create_task(read(consumer)) if polling else None
            await asyncio.sleep(2.0)
            assert members(simulation, GROUP) == 1
            if records:
                append(simulation, TOPIC, [b"late"])
            simulation.sleep(blocked_ms)  # code of the application blocks the event loop
            assert expected == members(simulation, GROUP)
            if not records:
                append(simulation, TOPIC, [b"late"])
            assert [b"late"] == [record.value for record in await (poll or read(consumer))]
            await consumer.close()

        async def read(consumer: SimulatedAsyncConsumer) -> Any:
            while not (records := await consumer.poll(5.0)):
                pass
            return records

        run_coroutine(simulation, main)

    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    run_simulated(test, cluster, limit_ms=300_000)
