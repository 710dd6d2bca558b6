"""Deserializers of an AsyncConsumer that need much time, in virtual time: other tasks run meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import SimulatedAsyncConsumer, Simulation, run_coroutine

TOPIC = "t"
ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
COUNT = 300  # records of each partition
RECORD_MS = 1.0
MAX_BLOCKED_MS = 50.0

Test = Callable[["Case"], Coroutine[Any, Any, None]]
Read = Callable[[AsyncConsumer], AsyncIterator[ConsumerRecord]]


class Case:
    """A consumer whose deserializer needs RECORD_MS for each value."""

    def __init__(self, simulation: Simulation, *, coroutine: bool) -> None:
        self.simulation = simulation
        self.deserialized = 0  # records
        self.blocked_ms = 0.0  # the longest time for which other tasks could not run
        self.consumer = SimulatedAsyncConsumer(
            simulation,
            Process("test"),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=2 * COUNT,
            value_deserializer=self.deserialize_in_coroutine if coroutine else self.deserialize,
        )
        self.consumer.assign([ZERO, ONE])

    def deserialize(self, data: bytes) -> int:
        """Returns the number in the data, after RECORD_MS in which the event loop is blocked."""
        self.simulation.sleep(RECORD_MS)
        self.deserialized += 1
        return int(data)

    async def deserialize_in_coroutine(self, data: bytes) -> int:
        """Do the same in a coroutine function that never suspends its task."""
        return self.deserialize(data)

    def write(self) -> None:
        """Append COUNT records to each partition. Their values are their offsets."""
        for tp in (ZERO, ONE):
            partition = self.simulation.cluster.partition(TOPIC, tp.partition)
            assert partition is not None
            first = partition.log.end
            append(self.simulation, TOPIC, [b"%d" % (first + number) for number in range(COUNT)], tp.partition)

    async def watch(self) -> None:
        """Measure for how long this task does not run, without end."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(0.001)
            self.blocked_ms = max(self.blocked_ms, (loop.time() - began) * 1000)


def run(test: Test, *, coroutine: bool) -> None:
    """Run a test with a new case."""

    def simulate(simulation: Simulation) -> None:
        async def main() -> None:
            case = Case(simulation, coroutine=coroutine)
            await test(case)
            await case.consumer.close()

        run_coroutine(simulation, main)

    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 2)
    run_simulated(simulate, cluster)


async def polls(consumer: AsyncConsumer) -> AsyncIterator[ConsumerRecord]:
    """Yield the records of polls."""
    while True:
        for record in await consumer.poll(5):
            yield record


async def batches(consumer: AsyncConsumer) -> AsyncIterator[ConsumerRecord]:
    """Yield the records of `batches()`."""
    async for batch in consumer.batches():
        for record in batch:
            yield record


async def read(records: AsyncIterator[ConsumerRecord], count: int) -> dict[int, list[int]]:
    """Returns the values of the next records of each partition. Checks that they were deserialized."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(count):
        record = await anext(records)
        assert record.offset == record.value
        found[record.partition].append(record.offset)
    return found


LOOPS: dict[str, Read] = {"poll": polls, "async for": aiter, "batches": batches}


@pytest.mark.parametrize("coroutine", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize("loop", LOOPS)
def test_other_tasks_run(loop: str, coroutine: bool) -> None:
    """Another task runs at least every 50 ms while a large batch is deserialized: the first one, and one for which a
    poll has waited.
    """

    async def test(case: Case) -> None:
        watch = asyncio.create_task(case.watch())
        case.write()
        records = LOOPS[loop](case.consumer)
        found = await read(records, 2 * COUNT)
        assert {0: list(range(COUNT)), 1: list(range(COUNT))} == found
        reading = asyncio.create_task(read(records, 2 * COUNT))
        await asyncio.sleep(3)
        case.write()
        found = await reading
        assert {0: list(range(COUNT, 2 * COUNT)), 1: list(range(COUNT, 2 * COUNT))} == found
        watch.cancel()
        assert case.blocked_ms < MAX_BLOCKED_MS

    run(test, coroutine=coroutine)


@pytest.mark.parametrize("coroutine", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize("waiting", [False, True], ids=["buffered", "waiting"])
@pytest.mark.parametrize("at", [1, 50, 200])
def test_cancelled_while_records_are_deserialized(at: int, waiting: bool, coroutine: bool) -> None:
    """A poll that is cancelled between two records loses and skips nothing, and a commit during it has none of its
    records.
    """

    async def test(case: Case) -> None:
        consumer = case.consumer
        if not waiting:
            case.write()
        poll = asyncio.create_task(consumer.poll(5))
        if waiting:
            await asyncio.sleep(3)
            case.write()
        while case.deserialized < at:
            await asyncio.sleep(0)
        await consumer.commit()
        committed = await consumer.committed([ZERO, ONE])
        assert [0, 0] == [0 if offset is None else offset.offset for offset in committed.values()]
        assert not poll.done()
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert [0, 0] == [await consumer.position(tp) for tp in (ZERO, ONE)]
        found = await read(polls(consumer), 2 * COUNT)
        assert {0: list(range(COUNT)), 1: list(range(COUNT))} == found

    run(test, coroutine=coroutine)
