"""Asynchronous commits that have no response yet when the member joins again, leaves or closes, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.errors import KafkaError
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.fake_cluster import committed
from support.simulation.scheduler import Process
from support.simulation.settings import GROUP, TOPIC
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

TP = TopicPartition(TOPIC, 0)
CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 500}
ENGINES: dict[str, dict[str, Any]] = {
    "classic": CLASSIC,
    "cooperative": CLASSIC | {"assignors": ["cooperative-sticky"]},
    "threaded": CLASSIC | {"engine": "threaded"},
    "asyncio": CLASSIC | {"asyncio": True},
    "consumer": {"group_protocol": "consumer"},
    "asyncio, consumer": {"group_protocol": "consumer", "asyncio": True},
}
MANY = 15  # more than are in flight at a time


def member(simulation: Simulation, engine: str, count: int, **options: Any) -> Consumer:
    """Returns a member that has read `count` records."""
    consumer = simulation.consumer(
        Process("test"), group_id=GROUP, auto_offset_reset="earliest", **ENGINES[engine], **options
    )
    consumer.subscribe([TOPIC])
    append(simulation, TOPIC, [b"value"] * count)
    read = 0
    while read < count:
        read += len(consumer.poll(0.1))
    simulation.sleep(1000)
    consumer.poll(0.1)
    return consumer


def cluster_of(*topics: str) -> Cluster:
    """Returns a cluster with these topics."""
    cluster = Cluster(1, seed=1)
    for topic in topics:
        cluster.create_topic(topic, 1)
    return cluster


@pytest.mark.parametrize("in_callback", [False, True], ids=["before", "in on_revoke"])
@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("end", ["join again", "unsubscribe", "close"])
@pytest.mark.parametrize("engine", ENGINES)
def test_commits_without_waiting_are_sent_first(engine: str, end: str, count: int, in_callback: bool) -> None:
    """What was committed without waiting reaches the coordinator before the member joins again, leaves or closes."""
    errors: list[KafkaError | None] = []

    def test(simulation: Simulation) -> None:
        consumer = member(simulation, engine, count, enable_auto_commit=False)

        def commit(*_: object) -> None:
            for offset in range(1, count + 1):
                consumer.commit_async({TP: OffsetAndMetadata(offset)}, lambda _offsets, error: errors.append(error))

        on_revoke = commit if in_callback else None
        if end != "join again":
            consumer.subscribe([TOPIC], on_revoke=on_revoke)
        if not in_callback:
            commit()
        if end == "join again":
            consumer.subscribe(["another"], on_revoke=on_revoke)
            for _ in range(20):
                consumer.poll(0.1)
            assert [None] * count == errors
        elif end == "unsubscribe":
            consumer.unsubscribe()
        else:
            consumer.close(timeout=0)
        simulation.sleep(1000)
        assert count == committed(simulation.cluster, GROUP)[TP].offset
        consumer.close(timeout=0)

    run_simulated(test, cluster_of(TOPIC, "another"))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_automatic_commit_is_sent_by_a_close_without_waiting(engine: str) -> None:
    """`close(timeout=0)` commits the positions before it leaves the group."""

    def test(simulation: Simulation) -> None:
        member(simulation, engine, 3).close(timeout=0)
        simulation.sleep(1000)
        assert 3 == committed(simulation.cluster, GROUP)[TP].offset

    run_simulated(test, cluster_of(TOPIC))


@pytest.mark.parametrize("engine", ENGINES)
def test_close_calls_every_commit_callback(engine: str) -> None:
    """Each callback is called once, although all of them raise, and close() raises the first error."""
    called: list[int] = []

    def test(simulation: Simulation) -> None:
        consumer = member(simulation, engine, 1)

        def fail(number: int) -> None:
            called.append(number)
            raise ValueError(number)

        for number in range(3):
            consumer.commit_async({TP: OffsetAndMetadata(1)}, lambda _offsets, _error, number=number: fail(number))
        with pytest.raises(ValueError, match="^0$"):
            consumer.close()
        assert [0, 1, 2] == called

    run_simulated(test, cluster_of(TOPIC))
