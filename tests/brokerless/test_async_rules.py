"""Which tasks, threads, event loops and processes may use an AsyncConsumer, and what keeps an event loop running."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.errors import StateError, TimeoutError
from kconsumer.testing import FakeCluster
from support.harnesses.inside import engine_of

pytestmark = pytest.mark.network_thread

TP = TopicPartition("t", 0)
COUNT = 100


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition."""
    with FakeCluster(group_min_session_timeout_ms=100) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"x"] * COUNT)
        yield cluster


def make(cluster: FakeCluster, **options: Any) -> AsyncConsumer:
    """Returns a consumer that is a member of a group."""
    given = {"group_id": "g", "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20, **options}
    return AsyncConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **given)


async def read_all(consumer: AsyncConsumer) -> None:
    """Poll until the end of the log."""
    count = 0
    while count < COUNT:
        count += len(await consumer.poll(10))


@pytest.mark.parametrize("first_waits", [True, False])
def test_two_polls(cluster: FakeCluster, first_waits: bool) -> None:
    """A second poll is an error that says so. The first one continues."""

    async def main() -> None:
        async with make(cluster) as consumer:
            if first_waits:
                await read_all(consumer)
            poll = asyncio.create_task(consumer.poll(10))
            await asyncio.sleep(0.02 if first_waits else 0)
            with pytest.raises(StateError, match="only one task may poll"):
                await consumer.poll(0)
            cluster.produce("t", b"y")
            assert await poll

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(8))
def test_close_at_the_begin_of_a_poll(cluster: FakeCluster, steps: int) -> None:
    """A poll raises StateError if another task closes the consumer, however far the poll has come."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await read_all(consumer)
            poll = asyncio.create_task(consumer.poll(10))
            for _ in range(steps):
                await asyncio.sleep(0)
            await consumer.close()
            with pytest.raises(StateError, match="closed"):
                await poll

    asyncio.run(main())


@pytest.mark.parametrize("closed_first", [True, False])
def test_no_empty_result_after_close(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, closed_first: bool) -> None:
    """A poll that ends without records while another task closes the consumer, or after that, raises StateError."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await read_all(consumer)
            released = asyncio.Event()

            async def nothing(*_: object) -> ConsumerRecords:
                await released.wait()
                return ConsumerRecords.EMPTY

            monkeypatch.setattr(engine_of(consumer), "poll_async", nothing)
            poll = asyncio.create_task(consumer.poll(10))
            await asyncio.sleep(0)
            closing = asyncio.create_task(consumer.close())
            if closed_first:
                await closing
            else:
                await asyncio.sleep(0)
            released.set()
            with pytest.raises(StateError, match="closed"):
                await poll
            await closing

    asyncio.run(main())


def test_close_during_a_poll(cluster: FakeCluster) -> None:
    """A poll that waits for records raises StateError as soon as another task closes the consumer."""

    async def main() -> None:
        consumer = make(cluster)
        await read_all(consumer)
        poll = asyncio.create_task(consumer.poll(60))
        await asyncio.sleep(0.05)
        await consumer.close()
        with pytest.raises(StateError, match="closed"):
            await poll
        for call in (consumer.poll, consumer.commit, consumer.unsubscribe):
            with pytest.raises(StateError, match="closed"):
                await call()
        await consumer.close()

    asyncio.run(main())
    assert {TP: COUNT} == {tp: at.offset for tp, at in cluster.committed("g").items()}


@pytest.mark.parametrize("method", ["close", "unsubscribe"])
def test_wakeup_before_the_end(cluster: FakeCluster, method: str) -> None:
    """A wakeup that no call has seen does not keep the loop from running the callbacks of close() and unsubscribe()."""
    ended = []

    async def revoked(_consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.sleep(0.01)
        ended.append(partitions)

    async def main() -> None:
        async with make(cluster) as consumer:
            consumer.subscribe(["t"], on_revoke=revoked)
            await read_all(consumer)
            consumer.wakeup()
            await getattr(consumer, method)()

    asyncio.run(main())
    assert [(TP,)] == ended


def test_a_wait_lets_other_tasks_run(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that has to wait does not block the loop, although a rebalance callback is due, which needs a poll."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def main() -> None:
        async with make(cluster, enable_auto_commit=False) as consumer:
            await read_all(consumer)
            cluster.kill(1)
            ticking = asyncio.create_task(tick())
            with monkeypatch.context() as patched:
                patched.setattr(AsyncCallbacks, "due", True)
                with pytest.raises(TimeoutError):
                    await consumer.commit(timeout=0.5)
            ticking.cancel()
            cluster.start(1)

    asyncio.run(main())
    assert ticks > 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_unsubscribe_during_a_poll(cluster: FakeCluster, protocol: str) -> None:
    """A poll that waits does not let the member join again while another task unsubscribes."""

    async def main() -> None:
        async with make(cluster, group_protocol=protocol, enable_auto_commit=False) as consumer:
            for _ in range(10):
                consumer.subscribe(["t"])
                await read_all(consumer)
                poll = asyncio.create_task(consumer.poll(60))
                await asyncio.sleep(0.01)
                await consumer.unsubscribe()
                assert not await poll
                await asyncio.sleep(0.02)
                assert not cluster.group("g").members

    asyncio.run(main())
