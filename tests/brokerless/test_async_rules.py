"""Which tasks, threads, event loops and processes may use an AsyncConsumer, and what keeps an event loop running."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.errors import ConcurrentAccessError, ForkedConsumerError, StateError, TimeoutError, WakeupError
from kconsumer.testing import FakeCluster
from support.harnesses.inside import engine_of
from support.harnesses.interruptions import no_thread_left

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


def drop(consumers: list[AsyncConsumer]) -> None:
    """Drop consumers that were not closed."""
    consumers.clear()
    gc.collect()


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


def test_wakeup(cluster: FakeCluster) -> None:
    """A thread wakes a poll. The next poll waits again."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await read_all(consumer)
            timer = threading.Timer(0.05, consumer.wakeup)
            timer.start()
            with pytest.raises(WakeupError):
                await consumer.poll(60)
            timer.join()
            assert not await consumer.poll(0.05)

    asyncio.run(main())


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


def test_two_runs(cluster: FakeCluster) -> None:
    """A consumer belongs to one event loop. A dropped one warns, and its network thread ends."""

    async def read(consumer: AsyncConsumer) -> None:
        await consumer.poll(10)

    consumer = make(cluster)
    asyncio.run(read(consumer))
    for call in (consumer.poll, consumer.commit, consumer.unsubscribe, consumer.close):
        with pytest.raises(ConcurrentAccessError, match="one consumer for each event loop"):
            asyncio.run(call())
    assert {TP} == consumer.assignment()
    consumers = [consumer]
    del call, consumer
    with pytest.warns(ResourceWarning, match="await close"):
        drop(consumers)
    assert no_thread_left("kconsumer-network")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_forks(cluster: FakeCluster) -> None:
    """A forked child must not use the consumer of its parent, in whatever loop."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await consumer.poll(10)
            child = os.fork()
            if child == 0:
                try:
                    asyncio.run(consumer.poll())
                except ForkedConsumerError:
                    os._exit(7)
                finally:
                    os._exit(1)
            assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert COUNT == await consumer.position(TP)

    asyncio.run(main())


def test_many_consumers(cluster: FakeCluster) -> None:
    """Many consumers in one event loop read everything."""

    async def read() -> None:
        servers = cluster.bootstrap_servers
        async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            await read_all(consumer)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(read())

    asyncio.run(main())
    assert no_thread_left("kconsumer-network")


def test_a_loop_that_is_blocked_during_a_poll(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """A task blocks the event loop while another one waits in poll(). The member leaves after max_poll_interval_ms."""

    async def main() -> None:
        timeouts = {"session_timeout_ms": 600, "heartbeat_interval_ms": 50, "max_poll_interval_ms": 600}
        async with make(cluster, **timeouts) as consumer:
            await read_all(consumer)
            poll = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0.1)
            deadline = time.monotonic() + 20
            while cluster.group("g").members:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            cluster.produce("t", b"y")
            assert await poll
            assert cluster.group("g").members

    asyncio.run(main())
    assert 1 == sum("max_poll_interval_ms" in record.getMessage() for record in caplog.records)


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
