"""A call of an AsyncShareConsumer is cancelled at each of its suspensions: each record is delivered once and accepted,
the next call is right, and no callback is cancelled or runs twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kconsumer import ConsumerRecord, ShareRecord, TopicPartition
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import KafkaError
from kconsumer.testing import FakeCluster
from support.harnesses.cancellation import DEADLINE_S, Cancellations, Moment
from support.harnesses.interruptions import no_thread_left
from support.members.share_groups import configure_group

pytestmark = pytest.mark.network_thread

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with an empty topic, from whose beginning the group g reads."""
    with FakeCluster(group_share_heartbeat_interval_ms=50) as cluster:
        cluster.create_topic("t")
        configure_group(cluster.bootstrap_servers, "g", {"share.auto.offset.reset": "earliest"})
        yield cluster


@pytest.fixture(params=Moment)
def cancellations(request: pytest.FixtureRequest) -> Cancellations:
    """Cancels calls at each of their suspensions, before or after what they wait for."""
    return Cancellations(request.param)


def make(cluster: FakeCluster, **options: Any) -> AsyncShareConsumer:
    """Returns a member of the group g."""
    return AsyncShareConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        retry_backoff_ms=10,
        fetch_max_wait_ms=20,
        **options,
    )


class Source:
    """Produces records, and checks that each of them is delivered once, in order."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.produced = 0
        self.received = 0

    def produce(self, count: int = 1) -> None:
        """Append this many records."""
        self._cluster.produce("t", [b"x"] * count)
        self.produced += count

    def produce_soon(self) -> None:
        """Append two records while a call waits for them."""
        asyncio.get_running_loop().call_later(0.003, self.produce, 2)

    def take(self, records: Iterable[ConsumerRecord]) -> None:
        """Check these records, which are the next ones."""
        for record in records:
            assert isinstance(record, ShareRecord)
            assert (self.received, 1) == (record.offset, record.delivery_count)
            self.received += 1

    async def read(self, consumer: AsyncShareConsumer, count: int | None = None) -> None:
        """Poll until this many records, or all, were received."""
        deadline = time.monotonic() + DEADLINE_S
        wanted = self.produced if count is None else self.received + count
        while self.received < wanted:
            assert time.monotonic() < deadline, consumer
            self.take(await consumer.poll(0.2))


async def check_all_accepted(cluster: FakeCluster) -> None:
    """Check that the group delivers nothing any more."""
    async with make(cluster) as other:
        assert not await other.poll(0.3)


def test_polls_that_wait_for_records(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A poll is cancelled while it waits for records, and while they arrive: the next one returns them."""

    async def main() -> None:
        source = Source(cluster)
        source.produce()
        async with make(cluster) as consumer:
            await source.read(consumer)
            for _ in cancellations:
                wanted = source.produced + 2
                source.produce_soon()
                source.take(await cancellations.run(consumer.poll(5)) or ())
                await source.read(consumer, wanted - source.received)
            await consumer.commit()
        await check_all_accepted(cluster)

    asyncio.run(main())


def test_polls_that_join(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A poll is cancelled while it finds the coordinator, joins, and opens a share session."""

    async def main() -> None:
        source = Source(cluster)
        for _ in cancellations:
            source.produce(2)
            async with make(cluster) as consumer:
                source.take(await cancellations.run(consumer.poll(10)) or ())
                await source.read(consumer)
                assert {TP: None} == await consumer.commit()
        await check_all_accepted(cluster)

    asyncio.run(main())
    assert no_thread_left("kconsumer-network")


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_commits(cluster: FakeCluster, mode: str, cancellations: Cancellations) -> None:
    """Acknowledgements of a cancelled commit are sent. The callback receives the results of all."""
    accepted: list[int] = []

    def acknowledged(offsets: dict[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        assert error is None
        accepted.extend(sorted(offsets[TP]))

    async def main() -> None:
        source = Source(cluster)
        async with make(cluster, share_acknowledgement_mode=mode, on_acknowledge=acknowledged) as consumer:
            for _ in cancellations:
                source.produce()
                while not (records := await consumer.poll(5)):
                    pass
                source.take(records)
                for record in records if mode == "explicit" else ():
                    consumer.acknowledge(record)
                await cancellations.run(consumer.commit())
                assert (await consumer.commit()).get(TP) is None
        assert list(range(source.produced)) == sorted(accepted)
        await check_all_accepted(cluster)

    asyncio.run(main())


def test_callbacks(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A poll is cancelled while it awaits on_acknowledge: the callback runs once for each record, to its end."""
    began: list[int] = []
    ended: list[int] = []

    async def acknowledged(offsets: dict[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        assert error is None
        began.extend(offsets[TP])
        await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        ended.extend(offsets[TP])

    async def main() -> None:
        source = Source(cluster)
        async with make(cluster, on_acknowledge=acknowledged) as consumer:
            for _ in cancellations:
                source.produce()
                await source.read(consumer)
                consumer.commit_async()
                await cancellations.run(consumer.poll(0.1))
                while len(ended) < source.produced:
                    assert not await consumer.poll(0.01)
        assert list(range(source.produced)) == began == ended

    asyncio.run(main())


def test_unsubscribe(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A cancelled unsubscribe() continues. It can be called again, and then the consumer can join again."""

    async def main() -> None:
        source = Source(cluster)
        async with make(cluster) as consumer:
            for _ in cancellations:
                source.produce()
                await source.read(consumer)
                await consumer.commit()
                await cancellations.run(consumer.unsubscribe())
                await consumer.unsubscribe()
                assert not consumer.subscription()
                assert not cluster.group("g").members
                consumer.subscribe(["t"])
        await check_all_accepted(cluster)

    asyncio.run(main())


def test_close(cluster: FakeCluster, cancellations: Cancellations) -> None:
    """A cancelled close() continues. Another call waits for its end: records are acknowledged, the member has left."""

    async def main() -> None:
        source = Source(cluster)
        for _ in cancellations:
            source.produce()
            consumer = make(cluster)
            await source.read(consumer)
            consumer.commit_async()
            await cancellations.run(consumer.close())
            await consumer.close()
            assert "closed" in repr(consumer)
            assert not cluster.group("g").members
        await check_all_accepted(cluster)

    asyncio.run(main())
    assert no_thread_left("kconsumer-network")


async def iterate(consumer: AsyncShareConsumer, source: Source) -> None:
    async for record in consumer:
        source.take([record])
        if source.received == source.produced:
            break


async def read_arrow(consumer: AsyncShareConsumer, source: Source) -> None:
    batch = await consumer.poll_arrow(5.0)
    source.received += batch.num_rows


@pytest.mark.parametrize("loop", [iterate, read_arrow])
def test_loops(
    cluster: FakeCluster, loop: Callable[[AsyncShareConsumer, Source], Any], cancellations: Cancellations
) -> None:
    """A loop over the consumer is cancelled: the next one continues with the record after the last one."""

    async def main() -> None:
        source = Source(cluster)
        source.produce()
        async with make(cluster) as consumer:
            await source.read(consumer)
            for _ in cancellations:
                wanted = source.produced + 2
                source.produce_soon()
                await cancellations.run(loop(consumer, source))
                await source.read(consumer, wanted - source.received)
            await consumer.commit()
        await check_all_accepted(cluster)

    asyncio.run(main())
