"""An AsyncShareConsumer on the model of a cluster: what its methods return, and which tasks may call them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kconsumer import ShareRecord, TopicPartition
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import ConcurrentAccessError, ConfigError, KafkaError, StateError, WakeupError
from kconsumer.testing import FakeCluster
from support.harnesses.inside import engine_of
from support.harnesses.interruptions import no_thread_left
from support.members.share_groups import configure_group, share_records

pytestmark = pytest.mark.network_thread

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of three records, and the configuration of the group g."""
    with FakeCluster(group_share_heartbeat_interval_ms=50) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"0", b"1", b"2"])
        configure_group(cluster.bootstrap_servers, "g", {"share.auto.offset.reset": "earliest"})
        yield cluster


def make(cluster: FakeCluster, **options: Any) -> AsyncShareConsumer:
    """Returns a member of the group g."""
    return AsyncShareConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", fetch_max_wait_ms=20, **options
    )


async def read(consumer: AsyncShareConsumer, count: int = 3) -> list[ShareRecord]:
    """Returns this many records."""
    found: list[ShareRecord] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += share_records(await consumer.poll(1.0))
    return found


def deliveries(records: list[ShareRecord]) -> list[tuple[int, int]]:
    """Returns offset and delivery count of these records."""
    return [(record.offset, record.delivery_count) for record in records]


def test_records_are_acknowledged_one_by_one(cluster: FakeCluster) -> None:
    """Methods of records say what happens to each; only the released record is delivered again."""

    async def main() -> None:
        async with make(cluster, share_acknowledgement_mode="explicit") as consumer:
            seen = []
            async for record in consumer:
                seen.append((record.offset, record.delivery_count))
                if record.delivery_count == 2 or record.offset == 0:
                    record.ack()
                elif record.offset == 1:
                    record.release()
                else:
                    record.reject()
                if len(seen) == 4:
                    break
        assert [(0, 1), (1, 1), (2, 1), (1, 2)] == seen
        async with make(cluster) as other:
            assert not await other.poll(0.3)

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_loop_that_stops_early(cluster: FakeCluster, mode: str) -> None:
    """The records that a loop has not reached are released; a commit inside the loop leaves them to the loop."""

    async def main() -> None:
        async with make(cluster, share_acknowledgement_mode=mode) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if mode == "explicit":
                    record.ack()
                assert {TP: None} == await consumer.commit()
                if record.offset == 1:
                    break
            assert [0, 1] == seen
            assert [(2, 2)] == deliveries(await read(consumer, 1))
            if mode == "explicit":
                with pytest.raises(StateError, match="not acknowledged"):
                    await consumer.poll(0)

    asyncio.run(main())


def test_a_cancelled_poll_after_a_loop_that_stops_early(cluster: FakeCluster) -> None:
    """If the poll after the loop is cancelled inside a callback, the records that the loop has not reached come again.

    They were neither accepted nor forgotten.
    """
    continues = asyncio.Event()

    async def acknowledged(offsets: object, error: KafkaError | None) -> None:
        await continues.wait()

    async def main() -> None:
        async with make(cluster, on_acknowledge=acknowledged) as consumer:
            async for _ in consumer:
                break
            consumer.commit_async()
            while not engine_of(consumer).callbacks.commits_pending:
                await asyncio.sleep(0.001)
            poll = asyncio.create_task(consumer.poll(5))
            await asyncio.sleep(0.01)
            assert poll.cancel()
            await asyncio.wait([poll])
            continues.set()
            assert [(1, 2), (2, 2)] == deliveries(await read(consumer, 2))

    asyncio.run(main())


Callback = Callable[[list[object]], Callable[[Any, KafkaError | None], Any]]


def plain(calls: list[object]) -> Callable[[Any, KafkaError | None], Any]:
    """Returns a plain callback."""
    return lambda offsets, error: calls.append((offsets, error))


def coroutine(calls: list[object]) -> Callable[[Any, KafkaError | None], Any]:
    """Returns a callback that is a coroutine function."""

    async def acknowledged(offsets: object, error: KafkaError | None) -> None:
        await asyncio.sleep(0.01)
        calls.append((offsets, error))

    return acknowledged


def returns_awaitable(calls: list[object]) -> Callable[[Any, KafkaError | None], Any]:
    """Returns a plain callback whose result must be awaited."""
    function = coroutine(calls)
    return lambda offsets, error: function(offsets, error)


@pytest.mark.parametrize("form", [plain, coroutine, returns_awaitable])
@pytest.mark.parametrize("ends", ["poll", "commit", "close"])
def test_callbacks(cluster: FakeCluster, form: Callback, ends: str) -> None:
    """Every form of on_acknowledge receives the results, inside the next call that waits."""
    calls: list[object] = []

    async def main() -> None:
        async with make(cluster, on_acknowledge=form(calls)) as consumer:
            await read(consumer)
            consumer.commit_async()
            assert [] == calls
            if ends == "poll":
                while not calls:
                    await consumer.poll(0.05)
            elif ends == "commit":
                while not calls:
                    await consumer.commit()

    asyncio.run(main())
    assert [({TP: frozenset({0, 1, 2})}, None)] == calls


def test_a_callback_that_raises(cluster: FakeCluster) -> None:
    """The error is raised by the call that runs the callback. The acknowledgement stands."""

    async def fail(offsets: object, error: KafkaError | None) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with make(cluster, on_acknowledge=fail) as consumer:
            await read(consumer)
            with pytest.raises(ZeroDivisionError):
                await consumer.commit()
            assert not await consumer.poll(0.3)

    asyncio.run(main())


def test_calls_inside_a_callback(cluster: FakeCluster) -> None:
    """A callback may commit and close the consumer, but not poll."""
    errors: list[object] = []

    async def acknowledged(offsets: object, error: KafkaError | None) -> None:
        with pytest.raises(StateError, match="none inside a callback"):
            await consumer.poll(0)
        errors.append(error)
        assert {} == await consumer.commit()
        await consumer.close()

    async def main() -> None:
        nonlocal consumer
        consumer = make(cluster, on_acknowledge=acknowledged)
        await read(consumer)
        await consumer.commit()
        with pytest.raises(StateError, match="closed"):
            await consumer.poll(0)

    consumer: AsyncShareConsumer
    asyncio.run(main())
    assert [None] == errors


def test_two_polls(cluster: FakeCluster) -> None:
    """A second poll is an error that says so. The first one continues."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await read(consumer)
            poll = asyncio.create_task(consumer.poll(10))
            await asyncio.sleep(0.02)
            with pytest.raises(StateError, match="only one task may poll"):
                await consumer.poll(0)
            cluster.produce("t", b"3")
            assert [(3, 1)] == deliveries(share_records(await poll))

    asyncio.run(main())


def test_a_commit_during_a_poll(cluster: FakeCluster) -> None:
    """While one task polls, another one acknowledges what it has finished."""

    async def main() -> None:
        async with make(cluster, share_acknowledgement_mode="explicit") as consumer:
            for record in await read(consumer):
                record.renew()
            records = await read(consumer)
            for record in records[:2]:
                record.ack()
            assert {TP: None} == await consumer.commit()
            records[2].ack()
            poll = asyncio.create_task(consumer.poll(10))
            await asyncio.sleep(0.02)
            assert {} == await consumer.commit()
            cluster.produce("t", b"3")
            assert [(3, 1)] == deliveries(share_records(await poll))

    asyncio.run(main())


def test_close_during_a_poll(cluster: FakeCluster) -> None:
    """A poll that waits raises StateError as soon as another task closes the consumer."""

    async def main() -> None:
        consumer = make(cluster)
        await read(consumer)
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
    assert not cluster.group("g").members
    assert no_thread_left("kconsumer-network")


def test_unsubscribe_during_a_poll(cluster: FakeCluster) -> None:
    """A poll that waits ends without records when another task unsubscribes. A new subscription waits for the end."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await read(consumer)
            poll = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0.05)
            with pytest.raises(ValueError, match=r"await consumer\.unsubscribe"):
                consumer.subscribe([])
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0)
            with pytest.raises(StateError, match="await it first"):
                consumer.subscribe(["t"])
            await leaving
            assert not await asyncio.wait_for(poll, 5)
            assert not cluster.group("g").members
            consumer.subscribe([])
            with pytest.raises(StateError, match="subscribe"):
                await consumer.poll(0)
            consumer.subscribe(["t"])
            cluster.produce("t", b"3")
            assert [(3, 1)] == deliveries((await read(consumer, 1))[-1:])

    asyncio.run(main())


def test_wakeup(cluster: FakeCluster) -> None:
    """A thread wakes a poll. The next poll waits again."""

    async def main() -> None:
        async with make(cluster) as consumer:
            await read(consumer)
            timer = threading.Timer(0.05, consumer.wakeup)
            timer.start()
            with pytest.raises(WakeupError):
                await consumer.poll(60)
            timer.join()
            assert not await consumer.poll(0.05)

    asyncio.run(main())


def test_other_loops_and_threads(cluster: FakeCluster) -> None:
    """A consumer belongs to one event loop. A dropped one warns, and its network thread ends."""
    consumer = make(cluster)
    calls: list[Callable[[], Awaitable[object]]] = [
        consumer.poll,
        consumer.poll_arrow,
        consumer.commit,
        consumer.unsubscribe,
        consumer.close,
    ]
    errors: list[str] = []

    async def main(consumer: AsyncShareConsumer) -> None:
        (record, *_) = await read(consumer)
        thread = threading.Thread(target=lambda: errors.append(message_of(record.ack)))
        thread.start()
        thread.join()

    async def await_it(call: Callable[[], Awaitable[object]]) -> object:
        return await call()

    asyncio.run(main(consumer))
    for call in calls:
        with pytest.raises(ConcurrentAccessError, match="one consumer for each event loop"):
            asyncio.run(await_it(call))
    assert frozenset({"t"}) == consumer.subscription()
    calls.clear()
    consumers = [consumer]
    del call, consumer
    with pytest.warns(ResourceWarning, match="AsyncShareConsumer.*await close"):
        drop(consumers)
    assert no_thread_left("kconsumer-network")
    assert 1 == len(errors)
    assert "belongs to the event loop" in errors[0]


def message_of(call: Callable[[], None]) -> str:
    """Returns the message of the ConcurrentAccessError that a call raises."""
    with pytest.raises(ConcurrentAccessError) as raised:
        call()
    return str(raised.value)


def drop(consumers: list[AsyncShareConsumer]) -> None:
    """Drop consumers that were not closed."""
    consumers.clear()
    gc.collect()


def test_wrong_use() -> None:
    """A blocking ShareConsumer cannot call coroutine functions, and a mapping of options needs from_config()."""
    from kconsumer import ShareConsumer

    async def acknowledged(offsets: object, error: KafkaError | None) -> None: ...

    with pytest.raises(ConfigError, match=r"on_acknowledge .* kconsumer\.aio\.AsyncShareConsumer"):
        ShareConsumer("t", bootstrap_servers="127.0.0.1:1", group_id="g", on_acknowledge=acknowledged)
    with pytest.raises(TypeError, match=r"AsyncShareConsumer\.from_config"):
        AsyncShareConsumer({"bootstrap.servers": "127.0.0.1:1"})  # type: ignore[call-arg, arg-type]


def test_from_config() -> None:
    """A consumer is made of a mapping with Java's names."""

    async def main() -> None:
        mapping = {"bootstrap.servers": "127.0.0.1:1", "group.id": "jobs"}
        async with AsyncShareConsumer.from_config(mapping, "t") as consumer:
            assert "group='jobs' unsubscribed" in repr(consumer).lower()
            assert frozenset({"t"}) == consumer.subscription()
            assert consumer.acquisition_lock_timeout_ms() is None

    asyncio.run(main())
