"""Waits of AsyncConsumer: calls that end in callbacks, and calls that must not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kconsumer import ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import WakeupError
from kconsumer.testing import FakeCluster
from support.harnesses.inside import engine_of

pytestmark = pytest.mark.network_thread

TP = TopicPartition("orders", 0)
Polling = asyncio.Task[ConsumerRecords]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic that has ten records."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", map(str, range(10)))
        yield cluster


def consumer_of(cluster: FakeCluster, **options: object) -> AsyncConsumer:
    """Returns a consumer in the group `g` that reads from the beginning."""
    return AsyncConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **options
    )


class CallableObject:
    """A callback that is an object, which is called."""

    def __init__(self, callback: Callable[..., Coroutine[Any, Any, None]]) -> None:
        self._callback = callback

    async def __call__(self, *arguments: object) -> None:
        await self._callback(*arguments)


@pytest.mark.parametrize(
    "form",
    [
        lambda callback: callback,
        lambda callback: partial(callback),
        lambda callback: partial(CallableObject(callback)),
        CallableObject,
        lambda callback: lambda *arguments: callback(*arguments),
        lambda callback: lambda *arguments: asyncio.ensure_future(callback(*arguments)),
    ],
    ids=["coroutine function", "partial", "partial of an object", "object", "lambda", "future"],
)
def test_forms_of_callbacks(cluster: FakeCluster, form: Callable[..., Any]) -> None:
    """Whatever a rebalance callback or a commit callback returns is awaited if it is awaitable."""
    ended: list[str] = []

    def make(name: str) -> Any:
        async def callback(*_: object) -> None:
            await asyncio.sleep(0.01)
            ended.append(name)

        return form(callback)

    async def main() -> None:
        async with consumer_of(cluster, auto_commit_interval_ms=1, on_commit=make("auto")) as consumer:
            consumer.subscribe(["orders"], on_assign=make("assigned"), on_revoke=make("revoked"))
            while not await consumer.poll():
                pass
            assert "assigned" in ended
            consumer.commit_async(callback=make("committed"))
            while not {"auto", "committed"} <= set(ended):
                await consumer.poll(0.01)

    asyncio.run(asyncio.wait_for(main(), 20))
    assert "revoked" in ended


def test_a_callback_that_closes_and_continues(cluster: FakeCluster) -> None:
    """The poll that runs the callback returns no records at its end, as with `Consumer`."""
    ended = []

    async def on_assign(consumer: AsyncConsumer, _: object) -> None:
        await consumer.close()
        await asyncio.sleep(0.05)
        ended.append(True)

    async def main() -> None:
        consumer = consumer_of(cluster)
        consumer.subscribe(["orders"], on_assign=on_assign)
        while not ended:
            assert not await consumer.poll()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_call_while_a_callback_is_due_lets_other_tasks_run(cluster: FakeCluster) -> None:
    """A call that runs no rebalance callbacks does not poll without waiting while one is due."""

    async def main() -> None:
        async with consumer_of(cluster, group_protocol="consumer", max_poll_interval_ms=300) as consumer:
            consumer.subscribe(["orders"])
            callbacks = engine_of(consumer).callbacks
            while not await consumer.poll():
                pass
            while not callbacks.due:  # on_lost, because no task polls
                await asyncio.sleep(0.01)
            cluster.kill(1)
            before = engine_of(consumer).driver.suspensions
            with pytest.raises(TimeoutError):
                await consumer.end_offsets([TP], timeout=0.3)
            assert engine_of(consumer).driver.suspensions > before
            cluster.start(1)

    asyncio.run(asyncio.wait_for(main(), 20))


def total(consumer: AsyncConsumer, name: str) -> float:
    """Returns the value of a metric."""
    (value,) = [value for metric, value in consumer.metrics().items() if metric.name == name and len(metric.tags) < 2]
    return value


async def fetches(consumer: AsyncConsumer, count: int) -> None:
    """Wait until the consumer has received this many more Fetch responses."""
    before = total(consumer, "fetch-total")
    while total(consumer, "fetch-total") < before + count:
        await asyncio.sleep(0.005)


@asynccontextmanager
async def idle_poll(cluster: FakeCluster, **options: object) -> AsyncIterator[tuple[AsyncConsumer, Polling]]:
    """A consumer that has read all records, and a task that polls it. The poll is cancelled at the end."""
    async with consumer_of(cluster, fetch_max_wait_ms=10, **options) as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 0)
        while await consumer.position(TP) < (await consumer.end_offsets([TP]))[TP]:
            await consumer.poll(0.1)
        polling = asyncio.create_task(consumer.poll(15))
        await fetches(consumer, 3)
        yield consumer, polling
        polling.cancel()
        await asyncio.wait([polling])


def test_an_idle_poll_is_not_resumed(cluster: FakeCluster) -> None:
    """Fetch responses without records do not end the wait of a poll. A record does, and so do calls of other tasks."""

    async def main() -> None:
        async with idle_poll(cluster) as (consumer, polling):
            driver = engine_of(consumer).driver
            counts = []
            while len(counts) < 2 or counts[-1] != counts[-2]:  # until all that a new consumer requests has arrived
                counts.append(driver.suspensions)
                await fetches(consumer, 10)
                assert len(counts) < 10, counts
            cluster.produce("orders", ["new"])
            assert [b"new"] == [record.value for record in await asyncio.wait_for(polling, 5)]
        async with idle_poll(cluster, enable_auto_commit=False) as (consumer, polling):
            await consumer.commit({TP: 4})
            assert 4 == (await consumer.committed([TP]))[TP].offset
            consumer.seek(TP, 9)
            assert [9, 10] == [record.offset for record in await asyncio.wait_for(polling, 5)]
        async with idle_poll(cluster) as (consumer, polling):
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await asyncio.wait_for(polling, 5)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_poll_that_moves_over_control_records(cluster: FakeCluster) -> None:
    """A poll that only moves over the end of a transaction returns nothing, and the position stays behind this end."""

    async def main() -> None:
        async with idle_poll(cluster) as (consumer, polling):
            with cluster.transaction() as transaction:
                transaction.produce("orders", ["in a transaction"])
                assert 1 == len(await asyncio.wait_for(polling, 5))
                over = asyncio.create_task(consumer.poll(15))
                await fetches(consumer, 3)
            assert not await asyncio.wait_for(over, 5)
            assert 12 == await consumer.position(TP)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_an_idle_poll_starts_auto_commits(cluster: FakeCluster) -> None:
    """A poll that waits for long commits the records of earlier polls when the interval is over."""

    async def main() -> None:
        async with idle_poll(cluster, auto_commit_interval_ms=300) as (consumer, polling):
            while not cluster.committed("g"):
                await asyncio.sleep(0.01)
            assert not polling.done()
            commits = total(consumer, "commit-total")
            await asyncio.sleep(1)
            assert 2 <= total(consumer, "commit-total") - commits <= 5

    asyncio.run(asyncio.wait_for(main(), 10))
    assert {TP: 10} == {tp: committed.offset for tp, committed in cluster.committed("g").items()}
