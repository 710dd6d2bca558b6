"""When `kconsumer.parallel` starts records, renews locks and ends, in virtual time: pauses, rates, circuit breakers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.parallel import CircuitBreaker, Retry
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import SimulatedShareConsumer, SimulatedShareProcessor, Simulation

PROCESS = Process("test")
RECORDS, IDLE_MS = 10, 1_000
LOCK_MS = 15_000
Handler = Callable[[ConsumerRecord], object]
executors = pytest.mark.parametrize("executor", ["threads", "asyncio"])


class Run:
    """A run of a group member that reads ten records, whose values are their offsets, and then becomes idle."""

    def __init__(self, simulation: Simulation, handler: Handler, executor: str = "threads", **arguments: Any) -> None:
        options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        self.consumer = simulation.consumer(PROCESS, "t", **options, consumer_timeout_ms=IDLE_MS)
        append(simulation, "t", [b"%d" % number for number in range(RECORDS)])

        async def handle_async(record: ConsumerRecord) -> None:
            handler(record)

        chosen = handle_async if executor == "asyncio" else handler
        self.processor = simulation.processor(PROCESS, self.consumer, chosen, executor=executor, **arguments)


def simulate(test: Callable[[Simulation], None]) -> None:
    """Run a test with a cluster of two brokers, each of which leads a partition."""
    cluster = Cluster(2, seed=1)
    cluster.create_topic("t", 2)
    for index in range(2):
        cluster.move_leader("t", index, index + 1)
    run_simulated(test, cluster, limit_ms=600_000)


@executors
def test_a_paused_run(executor: str) -> None:
    """It starts nothing, does not become idle, pauses its partitions, and continues after `resume`."""

    def test(simulation: Simulation) -> None:
        seen: list[bytes | None] = []

        def handler(record: ConsumerRecord) -> None:
            seen.append(record.value)
            if record.value == b"2":
                run.processor.pause()

        def resume() -> None:
            simulation.sleep(60 * IDLE_MS)
            assert ([b"0", b"1", b"2"], True) == (seen, TopicPartition("t", 0) in run.consumer.paused())
            run.processor.resume()

        run = Run(simulation, handler, executor)
        simulation.spawn(PROCESS, "resume", resume)
        assert "idle" == run.processor.run().reason
        assert [b"%d" % number for number in range(RECORDS)] == seen
        run.consumer.close()

    simulate(test)


def test_a_rate_limit() -> None:
    """Records start at the chosen rate per second."""

    def test(simulation: Simulation) -> None:
        started: list[float] = []
        run = Run(simulation, lambda _: started.append(simulation.now), order="none", rate_limit=0.5)
        assert RECORDS == run.processor.run().processed
        assert 2_000 * (RECORDS - 1) == pytest.approx(started[-1] - started[0], rel=0.1)
        run.consumer.close()

    simulate(test)


@executors
def test_a_sink_that_is_down(executor: str) -> None:
    """A circuit breaker tries one record after each pause. Nothing is lost or repeated."""

    def test(simulation: Simulation) -> None:
        attempts: list[float] = []

        def handler(record: ConsumerRecord) -> None:
            attempts.append(simulation.now)
            if len(attempts) < 8:
                raise ConnectionError

        breaker = CircuitBreaker(failures=3, pause_s=60)
        retry = Retry(attempts=100, backoff_s=0)
        run = Run(simulation, handler, executor, order="none", workers=1, retry=retry, circuit_breaker=breaker)
        summary = run.processor.run()
        assert (RECORDS, 7) == (summary.processed, summary.retries)
        gaps = [after - before for before, after in pairwise(attempts)]
        assert [60_000] * 5 == [round(gap, -2) for gap in gaps if gap > 1_000]
        run.consumer.close()

    simulate(test)


def share_run(simulation: Simulation, handler: Handler, records: int = RECORDS, **options: Any) -> Any:
    """Process records of a share group. Returns the summary and the number of acknowledgements that were sent."""
    configs = simulation.cluster.group_configs
    for name, value in {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": str(LOCK_MS),
        **options,
    }.items():
        configs.set("g", name, value)
    for partition in range(2):
        append(simulation, "t", [b"%d" % number for number in range(records)], partition)
    consumer = SimulatedShareConsumer(
        simulation,
        PROCESS,
        "t",
        group_id="g",
        share_acknowledgement_mode="explicit",
        consumer_timeout_ms=IDLE_MS,
        request_timeout_ms=200_000,
    )
    summary = SimulatedShareProcessor(simulation, PROCESS, consumer, handler, workers=2, order="none").run()
    [sent] = [value for name, value in consumer.metrics().items() if name.name == "acknowledgements-send-total"]
    consumer.close()
    return summary, sent


def test_renewals_only_when_they_are_due() -> None:
    """While one broker does not respond, the locks of the other one are renewed as often as without that."""

    def test(simulation: Simulation) -> None:
        def interrupt() -> None:
            simulation.sleep(10_000)
            simulation.network.block(PROCESS, 1)  # the other one is the coordinator
            simulation.sleep(90_000)
            simulation.network.unblock(PROCESS, 1)

        simulation.spawn(PROCESS, "interrupt", interrupt)
        ends_ms = simulation.now + 110_000
        summary, sent = share_run(simulation, lambda _: simulation.sleep(max(0.0, ends_ms - simulation.now)))
        assert (True, 0) == (summary.processed >= 2 * RECORDS, summary.failed)
        # Each record is acknowledged once, a few again after they were lost, and at most 8 are renewed each 10 s.
        assert 2 * RECORDS < sent <= 4 * RECORDS + 8 * 12

    simulate(test)


def test_a_group_without_renewals() -> None:
    """If the group refuses renewals, a record whose handler returns before the end of its lock is accepted, once."""

    def test(simulation: Simulation) -> None:
        handled: list[tuple[int, int]] = []

        def handler(record: ConsumerRecord) -> None:
            simulation.sleep(0.72 * LOCK_MS)  # a renewal would be due after two thirds
            handled.append((record.partition, record.offset))

        summary, _ = share_run(simulation, handler, 1, **{"share.renew.acknowledge.enable": "false"})
        assert (2, [(0, 0), (1, 0)]) == (summary.processed, sorted(handled))

    simulate(test)
