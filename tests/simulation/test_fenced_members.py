"""Static members whose place another consumer has taken, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.errors import FencedInstanceIdError
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.settings import GROUP, TOPIC
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "cooperative": {"assignors": ["cooperative-sticky"]},
    "threaded": {"engine": "threaded"},
    "asyncio": {"asyncio": True},
}


def failures(simulation: Simulation, consumer: Consumer, other: Consumer, ms: float) -> int:
    """Let two consumers poll for a while. Returns how often the first one was fenced. The other one never is."""
    count, until = 0, simulation.now + ms
    while simulation.now < until:
        try:
            consumer.poll(0.1)
        except FencedInstanceIdError:
            count += 1
        other.poll(0.1)
    return count


@pytest.mark.parametrize("finds_out_by", ["heartbeat", "commit"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fenced_member_does_not_take_its_place_back(engine: str, finds_out_by: str) -> None:
    """A fenced consumer that goes on polling raises the error again and again, and does not fence the other one.

    It takes the place back only after it has unsubscribed and subscribed again.
    """

    def test(simulation: Simulation) -> None:
        options: dict[str, Any] = {"group_id": GROUP, "group_instance_id": "same", "heartbeat_interval_ms": 500}
        options |= {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        append(simulation, TOPIC, [b"value"])
        old, new = (simulation.consumer(Process(name), **options, **ENGINES[engine]) for name in ("old", "new"))
        for consumer in (old, new):
            consumer.subscribe([TOPIC])
            while not consumer.poll(0.1):
                pass
        if finds_out_by == "commit":
            with pytest.raises(FencedInstanceIdError):
                old.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(1)})
        assert failures(simulation, old, new, 30_000) > 3
        with pytest.raises(FencedInstanceIdError):
            old.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(1)})
        new.commit()
        old.unsubscribe()
        assert failures(simulation, new, new, 1000) == 0
        old.subscribe([TOPIC])
        assert failures(simulation, new, old, 5000) > 0
        old.commit()
        old.close()
        new.close()

    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    run_simulated(test, cluster, limit_ms=120_000)
