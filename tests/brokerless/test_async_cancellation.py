"""A call of an AsyncConsumer is cancelled at each of its suspensions: no record is lost, skipped or repeated, the next
call is right, and no callback is cancelled or runs twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kconsumer import TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster
from support.harnesses.cancellation import MAX_POINTS, MAX_REPETITIONS, Cancellations, Journal, Moment
from support.harnesses.interruptions import no_thread_left

pytestmark = pytest.mark.network_thread

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
ZERO = PARTITIONS[0]
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(group_consumer_heartbeat_interval_ms=50) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


def produce(cluster: FakeCluster, count: int) -> None:
    """Append this many records to each partition."""
    for tp in PARTITIONS:
        cluster.produce("t", [b"x"] * count, partition=tp.partition)


def committed(cluster: FakeCluster) -> dict[TopicPartition, int]:
    """Returns the committed offsets of partitions from which the group has read."""
    return {tp: known.offset for tp, known in cluster.committed("g").items() if known.offset}


class Callbacks:
    """Callbacks that are coroutine functions. Counts the calls that began, those that ended, and cancelled ones."""

    def __init__(self, *, commits: bool = False) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self._commits = commits

    async def _run(self, name: str, consumer: AsyncConsumer) -> None:
        self.began.append(name)
        await asyncio.sleep(0.002)
        if self._commits and name == "revoked":
            await consumer.commit()
        await asyncio.sleep(0)
        self.ended.append(name)

    async def assigned(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        await self._run("assigned", consumer)

    async def revoked(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        await self._run("revoked", consumer)

    def check(self, expected: list[str]) -> None:
        """Check that these callbacks have run to their end, in this order."""
        assert expected == self.began == self.ended


def make(cluster: FakeCluster, protocol: str, callbacks: Callbacks | None = None, **options: Any) -> AsyncConsumer:
    """Returns a consumer that is subscribed."""
    if protocol == "classic":
        options.setdefault("heartbeat_interval_ms", 50)
    consumer = AsyncConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        retry_backoff_ms=10,
        fetch_max_wait_ms=20,
        **{"enable_auto_commit": False, **options},
    )
    if callbacks is None:
        consumer.subscribe(["t"])
    else:
        consumer.subscribe(["t"], on_assign=callbacks.assigned, on_revoke=callbacks.revoked)
    return consumer


@pytest.fixture(params=Moment)
def cancellations(request: pytest.FixtureRequest) -> Cancellations:
    """Cancels calls at each of their suspensions, before or after what they wait for."""
    return Cancellations(request.param)


Call = Callable[[AsyncConsumer], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "commit": lambda consumer: consumer.commit(),
    "committed": lambda consumer: consumer.committed(PARTITIONS),
    "end_offsets": lambda consumer: consumer.end_offsets(PARTITIONS),
    "list_topics": lambda consumer: consumer.list_topics(),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CALLS)
def test_requests(cluster: FakeCluster, name: str, protocol: str, cancellations: Cancellations) -> None:
    """After a cancelled request, the same call returns the same as before, and the consumer reads on."""
    call = CALLS[name]

    async def request(consumer: AsyncConsumer) -> Any:
        return await call(consumer)

    async def main() -> None:
        journal = Journal()
        async with make(cluster, protocol) as consumer:
            await journal.read(consumer, 2)
            for _ in cancellations:
                expected = await call(consumer)
                await cancellations.run(request(consumer))
                assert expected == await call(consumer)
                await journal.check_positions(consumer)
                await journal.read(consumer, 1)
            await consumer.commit()
            assert journal.following == committed(cluster)

    produce(cluster, MAX_REPETITIONS + MAX_POINTS)
    asyncio.run(main())
    assert no_thread_left("kconsumer-network")


def test_position_lookups(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A cancelled position() that looks an offset up changes nothing."""

    async def main() -> None:
        async with make(cluster, "classic") as consumer:
            await Journal().read(consumer, 1)
            for _ in cancellations:
                consumer.seek_to_end(ZERO)
                await cancellations.run(consumer.position(ZERO))
                assert 10 == await consumer.position(ZERO)

    produce(cluster, 10)
    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_polls_that_wait_for_records(cluster: FakeCluster, protocol: str, cancellations: Cancellations) -> None:
    """A poll is cancelled while it waits for records, and while they arrive."""

    async def main() -> None:
        journal = Journal()
        async with make(cluster, protocol) as consumer:
            await journal.read(consumer, 2)
            for _ in cancellations:
                loop = asyncio.get_running_loop()
                loop.call_later(0.004, produce, cluster, 1)
                records = await cancellations.run(consumer.poll(5))
                journal.take(records or ())
                await journal.check_positions(consumer)
                await journal.read(consumer, 2 - len(records or ()))

    produce(cluster, 1)
    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_polls_that_join(cluster: FakeCluster, protocol: str, cancellations: Cancellations) -> None:
    """A poll is cancelled while it finds the coordinator, joins, runs callbacks, and looks positions up."""

    async def main() -> None:
        for _ in cancellations:
            journal, callbacks = Journal(), Callbacks()
            async with make(cluster, protocol, callbacks) as consumer:
                records = await cancellations.run(consumer.poll(10))
                journal.take(records or ())
                await journal.read(consumer, 20 - len(records or ()))
                callbacks.check(["assigned"])
            callbacks.check(["assigned", "revoked"])

    produce(cluster, 10)
    asyncio.run(main())
    assert no_thread_left("kconsumer-network")


def test_polls_that_rejoin(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A poll is cancelled during a rebalance of the eager protocol, whose callbacks commit."""

    async def main() -> None:
        journal, callbacks = Journal(), Callbacks(commits=True)
        rounds = 1
        async with make(cluster, "classic", callbacks, assignors=["range"]) as consumer:
            await journal.read(consumer, 2)
            for _ in cancellations:
                consumer.enforce_rebalance()
                records = await cancellations.run(consumer.poll(10, max_records=1))
                journal.take(records or ())
                while len(callbacks.ended) < 2 * rounds + 1:
                    journal.take(await consumer.poll(0.1, max_records=1))
                rounds += 1
                await journal.read(consumer, 1)
                callbacks.check(["assigned", *["revoked", "assigned"] * (rounds - 1)])

    produce(cluster, 200)
    asyncio.run(main())


def test_commit_callbacks(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A poll is cancelled while it awaits commit callbacks: each of them runs once, to its end, in order."""
    began: list[int] = []
    ended: list[int] = []

    async def main() -> None:
        journal = Journal()
        async with make(cluster, "classic") as consumer:
            await journal.read(consumer, 1)
            for _ in cancellations:
                number = len(cancellations.cancelled)

                async def done(_offsets: Any, error: Exception | None, number: int = number) -> None:
                    assert error is None
                    began.append(number)
                    await asyncio.sleep(0.001)
                    await asyncio.sleep(0)
                    ended.append(number)

                consumer.commit_async(callback=done)
                consumer.commit_async(callback=done)
                consumer.pause(*PARTITIONS)
                await cancellations.run(consumer.poll(0.1))
                while len(ended) < 2 * len(cancellations.cancelled):
                    await consumer.poll(0.01)
                consumer.resume(*PARTITIONS)
                await journal.read(consumer, 1)
            assert [number for number in range(len(cancellations.cancelled)) for _ in range(2)] == began == ended

    produce(cluster, 200)
    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unsubscribe(cluster: FakeCluster, protocol: str, cancellations: Cancellations) -> None:
    """A cancelled unsubscribe() continues. It can be called again, and then the consumer can join again."""

    async def main() -> None:
        journal, callbacks = Journal(), Callbacks(commits=True)
        rounds = 0
        async with make(cluster, protocol, callbacks) as consumer:
            for _ in cancellations:
                await journal.read(consumer, 1)
                await cancellations.run(consumer.unsubscribe())
                await consumer.unsubscribe()
                rounds += 1
                callbacks.check(["assigned", "revoked"] * rounds)
                assert not consumer.subscription()
                assert not cluster.group("g").members
                consumer.subscribe(["t"], on_assign=callbacks.assigned, on_revoke=callbacks.revoked)
            await journal.read(consumer, 1)

    produce(cluster, 200)
    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close(cluster: FakeCluster, protocol: str, cancellations: Cancellations) -> None:
    """A cancelled close() continues. Another call waits for its end: positions are committed, the member has left."""

    async def main() -> None:
        journal = Journal()
        for _ in cancellations:
            callbacks = Callbacks()
            consumer = make(cluster, protocol, callbacks, enable_auto_commit=True)
            await journal.read(consumer, 1)
            await cancellations.run(consumer.close())
            await consumer.close()
            assert "closed" in repr(consumer)
            callbacks.check(["assigned", "revoked"])
            assert not cluster.group("g").members
            assert journal.following == committed(cluster)

    produce(cluster, 200)
    asyncio.run(main())
    assert no_thread_left("kconsumer-network")


async def iterate(consumer: AsyncConsumer, journal: Journal, count: int) -> None:
    async for record in consumer:
        count -= journal.take([record])
        if not count:
            break


async def read_batches(consumer: AsyncConsumer, journal: Journal, count: int) -> None:
    async for records in consumer.batches(0.01):
        count -= journal.take(records)
        if count <= 0:
            break


async def read_arrow(consumer: AsyncConsumer, journal: Journal, count: int) -> None:
    batch = await consumer.poll_arrow(5.0)
    for tp, following in batch.next_offsets().items():
        assert journal.following.get(tp, 0) <= following.offset
        journal.following[tp] = following.offset


@pytest.mark.parametrize("loop", [iterate, read_batches, read_arrow])
def test_loops(
    cluster: FakeCluster, loop: Callable[[AsyncConsumer, Journal, int], Any], cancellations: Cancellations
) -> None:
    """A loop over the consumer is cancelled: the next one continues with the record after the last one."""

    async def main() -> None:
        journal = Journal()
        async with make(cluster, "classic") as consumer:
            await journal.read(consumer, 2)
            produced = 1
            for _ in cancellations:
                asyncio.get_running_loop().call_later(0.003, produce, cluster, 2)
                produced += 2
                await cancellations.run(loop(consumer, journal, 3))
                await journal.check_positions(consumer)
                await consumer.commit()
                assert journal.following == committed(cluster)
                await journal.read(consumer, 2 * produced - sum(journal.following.values()))

    produce(cluster, 1)
    asyncio.run(main())
