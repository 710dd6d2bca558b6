"""AsyncConsumer in the event loops of asyncio, uvloop and anyio, with their timeouts, task groups and cancel scopes."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, NoReturn

import anyio
import pytest

from kconsumer import TopicPartition, errors
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster
from support.harnesses.event_loops import EVENT_LOOPS, Run

RECORDS = 300
TP = TopicPartition("orders", 0)


@pytest.fixture(params=EVENT_LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Returns a function that runs a coroutine in an event loop."""
    return EVENT_LOOPS[request.param]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition. The values of its records are their offsets."""
    with FakeCluster(group_min_session_timeout_ms=100) as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [str(offset) for offset in range(RECORDS)])
        yield cluster


def consumer_of(cluster: FakeCluster, **options: object) -> AsyncConsumer:
    """Returns a consumer in the group `g` that reads the topic from its beginning."""
    given = {"group_id": "g", "auto_offset_reset": "earliest", **options}
    return AsyncConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, **given)


def members(cluster: FakeCluster) -> int:
    """Returns the number of members of the group."""
    return len(cluster.group("g").members)


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """An event loop that cannot watch file descriptors, like the proactor loop of Windows."""

    def add_reader(self, *arguments: object) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def add_writer(self, *arguments: object) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError


def run_without_readers(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a loop that cannot watch file descriptors. Returns its result."""
    with asyncio.Runner(loop_factory=LoopWithoutReaders) as runner:
        return runner.run(main)


def test_a_loop_without_readers(cluster: FakeCluster) -> None:
    """The event loop need not watch sockets."""
    test_a_program(run_without_readers, cluster)


def test_a_program(run: Run, cluster: FakeCluster) -> None:
    """Records are read in order, with each method that waits. The consumer commits and leaves at the end."""

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 100:
                    break
            assert 100 == await consumer.position(TP)
            await consumer.commit()
            assert 100 == (await consumer.committed([TP]))[TP].offset
            assert {TP: 0} == await consumer.beginning_offsets([TP])
            assert {TP: RECORDS} == await consumer.end_offsets([TP])
            assert 0 == (await consumer.offsets_for_times({TP: 0}))[TP].offset
            assert [TP] == [(info.topic, info.partition) for info in await consumer.partitions_for("orders")]
            assert "orders" in await consumer.list_topics()
            batch = await consumer.poll_arrow(timeout=5, max_rows=100)
            assert {TP: 200} == {tp: after.offset for tp, after in batch.next_offsets().items()}
            async for records in consumer.batches():
                offsets.extend(record.offset for record in records)
                break
            consumer.seek(TP, 299)
            offsets.extend(record.offset for record in await consumer.poll(timeout=5))

    offsets: list[int] = []
    run(main())
    assert list(range(100)) == offsets[:100]
    assert 299 == offsets[-1]
    assert RECORDS == cluster.committed("g")[TP].offset
    assert 0 == members(cluster)


@asynccontextmanager
async def timeout_of_asyncio(seconds: float) -> AsyncIterator[None]:
    """A timeout that raises nothing, by `asyncio.timeout`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield


@asynccontextmanager
async def scope_of_anyio(seconds: float) -> AsyncIterator[None]:
    """A timeout that raises nothing, by a cancel scope of anyio."""
    with anyio.move_on_after(seconds):
        yield


@pytest.mark.parametrize("timeout", [timeout_of_asyncio, scope_of_anyio])
def test_timeouts_lose_no_record(
    run: Run, cluster: FakeCluster, timeout: Callable[[float], AbstractAsyncContextManager[None]]
) -> None:
    """Reads that are cancelled again and again return each record once, in order."""

    async def main() -> None:
        async with consumer_of(cluster, max_poll_records=20, fetch_max_wait_ms=20) as consumer:
            attempt = 0
            while len(offsets) < RECORDS:
                attempt += 1
                async with timeout(0.001 * (attempt % 50)):
                    records = await consumer.poll(timeout=5)
                    offsets.extend(record.offset for record in records)

    offsets: list[int] = []
    run(main())
    assert list(range(RECORDS)) == offsets


def test_other_tasks_change_what_a_poll_returns(run: Run, cluster: FakeCluster) -> None:
    """While a poll waits at the end of the log, another task commits, pauses and seeks. The poll follows."""

    async def main() -> None:
        async with consumer_of(cluster, max_poll_records=RECORDS) as consumer:
            assert RECORDS == len(await consumer.poll(timeout=10))
            poll = asyncio.create_task(consumer.poll(timeout=20, max_records=10))
            await asyncio.sleep(0.05)
            await consumer.commit()
            assert RECORDS == cluster.committed("g")[TP].offset
            consumer.pause(TP)
            consumer.seek(TP, 7)
            await asyncio.sleep(0.1)
            assert not poll.done()
            consumer.resume(TP)
            assert list(range(7, 17)) == [record.offset for record in await poll]

    run(main())


@pytest.mark.parametrize("kind", ["on_assign", "on_revoke", "commit"])
def test_a_callback_that_awaits_a_cancelled_task(run: Run, cluster: FakeCluster, kind: str) -> None:
    """It runs once. The poll raises StateError, whose cause is the CancelledError, and later polls continue."""

    async def callback(*_arguments: object) -> None:
        calls.append(kind)
        if len(calls) == 1:
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task

    async def read(consumer: AsyncConsumer) -> None:
        async with asyncio.timeout(20):
            while not calls:
                records.extend(await consumer.poll(timeout=0.1))
                if records and kind == "on_revoke":
                    consumer.enforce_rebalance()
                elif records and kind == "commit":
                    consumer.commit_async(callback=callback)
            await consumer.poll(timeout=1)

    async def main() -> None:
        async with consumer_of(cluster, enable_auto_commit=False) as consumer:
            given = {} if kind == "commit" else {kind: callback}
            consumer.subscribe(["orders"], **given)
            with pytest.raises(errors.StateError, match="a callback raised CancelledError") as caught:
                await read(consumer)
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
            assert 1 == len(calls)
            consumer.seek_to_beginning()
            assert RECORDS == len(await consumer.poll(timeout=10, max_records=RECORDS))

    calls: list[str] = []
    records: list[object] = []
    run(main())


def test_a_loop_over_buffered_records_lets_other_tasks_run(run: Run, cluster: FakeCluster) -> None:
    """Polls that find their records in the buffer do not keep other tasks from running."""

    async def main() -> None:
        async with consumer_of(cluster, max_poll_records=1) as consumer:
            counting = asyncio.create_task(count())
            try:
                async for _record in consumer:
                    time.sleep(0.001)
                    turns.append(turn)
                    if len(turns) == RECORDS:
                        break
            finally:
                counting.cancel()

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    turn = 0
    turns: list[int] = []
    run(main())
    assert len(set(turns[100:])) > 10


@pytest.mark.parametrize("library", ["asyncio", "anyio"])
def test_a_task_that_fails_ends_its_group(run: Run, cluster: FakeCluster, library: str) -> None:
    """An error cancels the poll of another task. The consumer leaves its group, and commits nothing."""

    async def main() -> None:
        group = asyncio.TaskGroup() if library == "asyncio" else anyio.create_task_group()
        async with consumer_of(cluster) as consumer, group as tasks:
            start = tasks.create_task if library == "asyncio" else lambda started: tasks.start_soon(lambda: started)
            start(read(consumer))
            start(fail())

    async def read(consumer: AsyncConsumer) -> None:
        async for record in consumer:
            offsets.append(record.offset)

    async def fail() -> None:
        async with asyncio.timeout(20):
            while len(offsets) < RECORDS:
                await asyncio.sleep(0.01)
        raise ValueError("failed")

    offsets: list[int] = []
    with pytest.raises(ExceptionGroup) as caught:
        run(main())
    assert ["failed"] == [str(error) for error in caught.value.exceptions]
    assert list(range(RECORDS)) == offsets
    assert {} == cluster.committed("g")
    assert 0 == members(cluster)


def test_a_close_in_a_cancelled_scope_continues(run: Run, cluster: FakeCluster) -> None:
    """A cancelled scope of anyio cancels the close inside it, too. A further close waits for the end of the first."""

    async def main() -> None:
        with anyio.move_on_after(20) as scope:
            async with consumer_of(cluster) as consumer:
                await consumer.poll(timeout=10)
                scope.cancel()
                await consumer.poll(timeout=10)
        assert scope.cancelled_caught
        assert 1 == members(cluster)
        with anyio.CancelScope(shield=True):
            await consumer.close()
        assert 0 == members(cluster)
        with pytest.raises(errors.StateError):
            await consumer.poll()

    run(main())


def test_another_loop_or_thread_is_refused(run: Run, cluster: FakeCluster) -> None:
    """A consumer belongs to the loop that has used it. Calls from another loop or thread say so."""

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            await consumer.poll(timeout=10)
            thread = threading.Thread(target=refused, args=(consumer,))
            thread.start()
            await asyncio.to_thread(thread.join)

    def refused(consumer: AsyncConsumer) -> None:
        for call in (lambda: asyncio.run(consumer.poll()), consumer.assignment):
            with suppress(errors.ConcurrentAccessError):
                call()
                return
        refusals.append(True)

    refusals: list[bool] = []
    run(main())
    assert [True] == refusals


def test_ctrl_c_closes(run: Run, cluster: FakeCluster) -> None:
    """Ctrl-C cancels the main task while it polls. The consumer leaves its group, and KeyboardInterrupt is raised."""

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            await consumer.poll(timeout=10)
            asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
            await consumer.poll(timeout=30)
            await consumer.poll(timeout=30)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert time.monotonic() - began < 20
    assert 0 == members(cluster)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_in_one_loop(run: Run, protocol: str) -> None:
    """Members join and leave while their polls are cancelled again and again. Each record is read once."""
    intervals = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}
    options = {"group_id": "g", "group_protocol": protocol, "auto_offset_reset": "earliest", **intervals}
    read: list[tuple[int, int]] = []
    produced = 0

    async def on_revoke(_consumer: AsyncConsumer, _partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.sleep(0.02)

    async def member(cluster: FakeCluster, ended: asyncio.Event) -> None:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            consumer.subscribe(["orders"], on_revoke=on_revoke)
            while not ended.is_set():
                async with timeout_of_asyncio(0.03):
                    records = await consumer.poll(timeout=10)
                    read.extend((record.partition, record.offset) for record in records)

    async def main(cluster: FakeCluster) -> None:
        nonlocal produced
        ends = [asyncio.Event() for _ in range(3)]
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for step in range(90):
                if step % 20 == 0 and step < 60:
                    tasks.create_task(member(cluster, ends[step // 20]))
                if step == 70:
                    ends[0].set()
                produced += len(cluster.produce("orders", ["value"] * 10))
                await asyncio.sleep(0.01)
            while len(read) < produced:
                await asyncio.sleep(0.01)
            for end in ends:
                end.set()

    with FakeCluster(group_consumer_heartbeat_interval_ms=50) as cluster:
        cluster.create_topic("orders", partitions=6)
        run(main(cluster))
        assert 0 == members(cluster)
    assert produced == len(read) == len(set(read))
