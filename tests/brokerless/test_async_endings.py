"""unsubscribe() and close() of an AsyncConsumer while other tasks and callbacks use the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kconsumer import TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import StateError
from kconsumer.testing import FakeCluster

TOPIC = "t"
Test = Callable[[AsyncConsumer], Awaitable[None]]
Partitions = tuple[TopicPartition, ...]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Returns the address of a cluster with a topic of two partitions."""
    with FakeCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        cluster.produce(TOPIC, [b"value"] * 10)
        yield cluster.bootstrap_servers


@pytest.fixture(params=["classic", "consumer"])
def run(servers: str, request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Returns a function that runs a test with a new consumer, in a new event loop."""
    options: dict[str, Any] = {"group_protocol": request.param, "group_id": request.node.name}

    @asynccontextmanager
    async def consumer() -> AsyncIterator[AsyncConsumer]:
        async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options) as created:
            yield created

    def run_test(test: Test) -> None:
        async def main() -> None:
            async with asyncio.timeout(30), consumer() as created:
                await test(created)

        asyncio.run(main())

    return run_test


class Gate:
    """A rebalance callback that runs until the test opens it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.log: list[str] = []

    async def on_assign(self, _consumer: AsyncConsumer, _partitions: Partitions) -> None:
        """Run until the gate is open."""
        self.log.append("on_assign begins")
        self.entered.set()
        await self.opened.wait()
        self.log.append("on_assign ends")

    def on_revoke(self, _consumer: AsyncConsumer, _partitions: Partitions) -> None:
        """Only note the call."""
        self.log.append("on_revoke")


async def polling(consumer: AsyncConsumer) -> None:
    """Poll until an error."""
    while True:
        await consumer.poll(1.0)


async def settled() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", [AsyncConsumer.unsubscribe, AsyncConsumer.close])
def test_the_end_waits_for_a_running_callback(
    run: Callable[[Test], None], end: Callable[[AsyncConsumer], Awaitable[None]]
) -> None:
    """If another task unsubscribes or closes while on_assign runs, on_revoke runs after it, not at the same time."""

    async def test(consumer: AsyncConsumer) -> None:
        gate = Gate()
        consumer.subscribe([TOPIC], on_assign=gate.on_assign, on_revoke=gate.on_revoke)
        poll = asyncio.create_task(polling(consumer))
        await gate.entered.wait()
        ending = asyncio.ensure_future(end(consumer))
        await settled()
        gate.log.append("the gate opens")
        gate.opened.set()
        await ending
        with pytest.raises(StateError):
            await poll
        assert ["on_assign begins", "the gate opens", "on_assign ends", "on_revoke"] == gate.log

    run(test)


def test_no_subscription_while_unsubscribe_runs(run: Callable[[Test], None]) -> None:
    """subscribe() and assign() raise StateError while another task unsubscribes, because it would drop the change."""

    async def test(consumer: AsyncConsumer) -> None:
        gate = Gate()
        consumer.subscribe([TOPIC], on_assign=gate.on_assign)
        poll = asyncio.create_task(polling(consumer))
        await gate.entered.wait()
        ending = asyncio.create_task(consumer.unsubscribe())
        await settled()
        with pytest.raises(StateError, match="await it first"):
            consumer.subscribe(["other"])
        with pytest.raises(StateError, match="await it first"):
            consumer.assign([(TOPIC, 0)])
        gate.opened.set()
        await ending
        with pytest.raises(StateError):
            await poll
        consumer.subscribe([TOPIC])
        assert await consumer.poll(10.0)

    run(test)


def test_a_callback_may_unsubscribe_and_close(run: Callable[[Test], None]) -> None:
    """A callback that awaits unsubscribe() or close() does not wait for itself."""

    async def unsubscribe(consumer: AsyncConsumer, _: Partitions) -> None:
        await consumer.unsubscribe()

    async def close(consumer: AsyncConsumer, _: Partitions) -> None:
        await consumer.close()

    async def test(consumer: AsyncConsumer) -> None:
        consumer.subscribe([TOPIC], on_assign=unsubscribe)
        while consumer.subscription():
            await consumer.poll(0.1)
        consumer.subscribe([TOPIC], on_assign=close)
        with pytest.raises(StateError, match="closed"):
            await polling(consumer)

    run(test)


def test_poll_is_refused_in_a_callback(run: Callable[[Test], None]) -> None:
    """poll() in a callback, or in a task that it has created, raises StateError, which ends the outer poll."""

    async def poll(consumer: AsyncConsumer, _: Partitions) -> None:
        await asyncio.create_task(consumer.poll(0.1))

    async def test(consumer: AsyncConsumer) -> None:
        consumer.subscribe([TOPIC], on_assign=poll)
        with pytest.raises(StateError, match="none inside a callback"):
            await polling(consumer)

    run(test)


def test_two_unsubscribes_run_on_revoke_once(run: Callable[[Test], None]) -> None:
    """Two tasks that unsubscribe at the same time, and a close behind them, run on_revoke once and end."""

    async def test(consumer: AsyncConsumer) -> None:
        gate = Gate()
        gate.opened.set()
        consumer.subscribe([TOPIC], on_assign=gate.on_assign, on_revoke=gate.on_revoke)
        assert await consumer.poll(10.0)
        await asyncio.gather(consumer.unsubscribe(), consumer.unsubscribe(), consumer.close())
        assert ["on_assign begins", "on_assign ends", "on_revoke"] == gate.log

    run(test)
