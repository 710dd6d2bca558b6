"""Deserializers of an AsyncConsumer that are coroutine functions, or return awaitables, on FakeCluster."""

from __future__ import annotations

import asyncio
import functools
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.deserializers import SerializationContext
from kconsumer.errors import ConfigError, RecordDeserializationError, StateError
from kconsumer.testing import FakeCluster
from support.harnesses.cancellation import Journal, Moment, cancelled_at

pytestmark = pytest.mark.network_thread

TPS = [TopicPartition("t", index) for index in range(3)]
ZERO = TPS[0]
COUNT = 20  # records of each partition


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster


def produce(cluster: FakeCluster) -> None:
    """Append COUNT records to each partition, whose keys and values are their offsets."""
    for tp in TPS:
        rows = [(b"%d" % offset, b"%d" % offset) for offset in range(COUNT)]
        cluster.produce("t", rows, partition=tp.partition, headers=[("h", b"1")])


@asynccontextmanager
async def reader(cluster: FakeCluster, *partitions: TopicPartition, **options: Any) -> AsyncIterator[AsyncConsumer]:
    """A consumer with these partitions."""
    consumer = AsyncConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
        **{"group_id": "g", "enable_auto_commit": False, **options},
    )
    async with consumer:
        consumer.assign(partitions or TPS)
        yield consumer


async def number(data: bytes) -> int:
    """Returns the number in the data, after two suspensions."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return int(data)


def three(number: int) -> tuple[str, Any, int]:
    """Returns the result of a CallableForm without headers."""
    return "t", (), number


class Form:
    """An object whose method is a coroutine function."""

    async def deserialize(self, topic: str, headers: Any, data: bytes) -> tuple[str, Any, int]:
        return topic, headers, await number(data)


class CallableForm:
    """An object that is called."""

    async def __call__(self, data: bytes, ctx: Any) -> tuple[str, Any, int]:
        return ctx.topic, tuple(ctx.headers), await number(data)


async def with_context(data: bytes, context: Any) -> tuple[str, Any, int]:
    return context.topic, tuple(context.headers), await number(data)


async def added(data: bytes, *, plus: int) -> int:
    return plus + await number(data)


FORMS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "function": (number, lambda n: n),
    "object": (Form(), lambda n: ("t", (("h", b"1"),), n)),
    "callable object": (CallableForm(), lambda n: ("t", (("h", b"1"),), n)),
    "context": (with_context, lambda n: ("t", (("h", b"1"),), n)),
    "partial": (functools.partial(added, plus=7), lambda n: n + 7),
    "partial of a callable object": (functools.partial(CallableForm(), ctx=SerializationContext("t", "", [])), three),
}


class Awaitable:
    """An awaitable that is neither a coroutine nor a future."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __await__(self) -> Generator[Any, Any, int]:
        return number(self._data).__await__()


class PlainForm:
    """An object whose method returns a coroutine."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> Coroutine[Any, Any, int]:
        return number(data)


#: Plain functions that return awaitables.
PLAIN_FORMS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "lambda": (lambda data: number(data), lambda n: n),
    "future": (lambda data: asyncio.ensure_future(number(data)), lambda n: n),
    "awaitable": (Awaitable, lambda n: n),
    "method": (PlainForm(), lambda n: n),
    "sometimes": (lambda data: number(data) if data in (b"5", b"8") else int(data), lambda n: n),
}


@pytest.mark.parametrize("form", [*FORMS, *PLAIN_FORMS])
def test_forms(cluster: FakeCluster, form: str) -> None:
    """Every form of a deserializer may be a coroutine function, or return an awaitable. The deserializer of keys may be
    another form.
    """
    deserializer, expected = (FORMS | PLAIN_FORMS)[form]

    async def read(consumer: AsyncConsumer) -> tuple[list[ConsumerRecord], int]:
        """Returns the records of all polls, and how many polls there were."""
        batches = []
        while sum(map(len, batches)) < COUNT:
            batches.append(await consumer.poll(5))
            assert {ZERO: sum(map(len, batches))} == {tp: at.offset for tp, at in batches[-1].next_offsets().items()}
        return [record for batch in batches for record in batch], len(batches)

    async def main() -> None:
        async with reader(cluster, ZERO, key_deserializer=bytes.decode, value_deserializer=deserializer) as consumer:
            records, count = await read(consumer)
            assert [(str(n), expected(n)) for n in range(COUNT)] == [(r.key, r.value) for r in records]
            assert 1 == count
            assert "deserializer" not in consumer.partition_states()[ZERO].reason
        async with reader(cluster, ZERO, key_deserializer=deserializer, group_id="h") as consumer:
            records, count = await read(consumer)
            assert [(expected(n), b"%d" % n) for n in range(COUNT)] == [(r.key, r.value) for r in records]
            assert 1 == count

    produce(cluster)
    asyncio.run(main())


def test_errors_of_awaitables(cluster: FakeCluster) -> None:
    """The error of an awaited result is raised as that of a coroutine function, and no result remains unawaited."""

    async def main() -> None:
        async with reader(cluster, ZERO, value_deserializer=lambda data: refuse_five(data)) as consumer:
            assert 5 == len(await consumer.poll(5))
            with pytest.raises(RecordDeserializationError, match="ValueError: five") as raised:
                await consumer.poll(5)
            assert 5 == raised.value.offset
            consumer.seek(ZERO, 6)
            assert COUNT - 6 == len(await consumer.poll(5))

    produce(cluster)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


def test_a_consumer_does_not_await(cluster: FakeCluster) -> None:
    """A Consumer raises an error for a result that is a coroutine, which names AsyncConsumer. It does not await other
    objects either, but may return them.
    """
    produce(cluster)
    options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    with Consumer(**options, value_deserializer=lambda data: number(data)) as consumer:
        consumer.assign([ZERO])
        with pytest.raises(RecordDeserializationError, match=r"returned a coroutine, .*AsyncConsumer awaits"):
            consumer.poll(5)
        assert 0 == consumer.position(ZERO)
    with Consumer(**options, value_deserializer=Awaitable) as consumer:
        consumer.assign([ZERO])
        assert all(isinstance(record.value, Awaitable) for record in consumer.poll(5))


@pytest.mark.parametrize("moment", Moment)
def test_cancelled(cluster: FakeCluster, moment: Moment) -> None:
    """A poll is cancelled at each suspension in a deserializer: the next poll returns the same records."""

    async def main() -> None:
        journal = Journal()
        hits = 0
        async with reader(cluster, value_deserializer=number) as consumer:
            for point in range(1, 15):
                hit, records = await cancelled_at(consumer.poll(5, max_records=2), point, moment)
                journal.take(records or ())
                hits += hit
                await journal.check_positions(consumer)
                await consumer.commit()
                assert journal.following == {tp: at.offset for tp, at in cluster.committed("g").items() if at.offset}
                assert journal.take(await consumer.poll(5, max_records=1))
        assert hits > 3

    produce(cluster)
    asyncio.run(main())


def attributes(error: RecordDeserializationError) -> dict[str, Any]:
    """Returns what an error says of its record."""
    names = ("topic_partition", "offset", "key", "value", "headers", "timestamp", "origin")
    return {"text": str(error), "cause": repr(error.__cause__), **{name: getattr(error, name) for name in names}}


async def refuse_five(data: bytes) -> int:
    await asyncio.sleep(0)
    return refuse_five_at_once(data)


def refuse_five_at_once(data: bytes) -> int:
    if data == b"5":
        raise ValueError("five")
    return int(data)


@pytest.mark.parametrize("origin", ["key", "value"])
def test_a_record_that_fails(cluster: FakeCluster, origin: str) -> None:
    """The records before the failing one are returned. The next poll raises the same error as that of a Consumer, and
    so do later ones until the record is skipped.
    """

    async def main() -> list[dict[str, Any]]:
        async with reader(cluster, ZERO, **{f"{origin}_deserializer": refuse_five}) as consumer:
            records = await consumer.poll(5)
            assert list(range(5)) == [record.offset for record in records]
            assert {ZERO: 5} == {tp: at.offset for tp, at in records.next_offsets().items()}
            assert 5 == await consumer.position(ZERO)
            errors = []
            for _ in range(2):
                with pytest.raises(RecordDeserializationError) as raised:
                    await consumer.poll(5)
                errors.append(attributes(raised.value))
            consumer.seek(ZERO, 6)
            assert list(range(6, COUNT)) == [record.offset for record in await consumer.poll(5)]
            return errors

    produce(cluster)
    errors = asyncio.run(main())
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **{f"{origin}_deserializer": refuse_five_at_once},
    ) as consumer:
        consumer.assign([ZERO])
        assert 5 == len(consumer.poll(5))
        with pytest.raises(RecordDeserializationError) as expected:
            consumer.poll(5)
    assert [attributes(expected.value)] * 2 == errors


@pytest.mark.parametrize("max_records", [1, 3, 7, 100])
def test_a_record_that_fails_in_each_partition(cluster: FakeCluster, max_records: int) -> None:
    """All other records of all partitions are returned once and in order."""

    async def main() -> None:
        journal, failed = Journal(), []
        async with reader(cluster, value_deserializer=refuse_five) as consumer:
            while sum(journal.following.values()) < COUNT * len(TPS):
                try:
                    records = await consumer.poll(5, max_records)
                except RecordDeserializationError as error:
                    failed.append((error.topic_partition, error.offset))
                else:
                    assert all(record.value == record.offset for record in records)
                    journal.take(records)
                    assert records.next_offsets().items() <= (await positions(consumer)).items()
                    continue
                tp, offset = failed[-1]
                assert journal.following.get(tp, 0) == offset == await consumer.position(tp)
                journal.following[tp] = offset + 1
                consumer.seek(tp, offset + 1)
        assert sorted(failed) == [(tp, 5) for tp in TPS]

    async def positions(consumer: AsyncConsumer) -> dict[TopicPartition, Any]:
        await consumer.commit()
        return {tp: at for tp, at in (await consumer.committed(TPS)).items() if at is not None}

    produce(cluster)
    asyncio.run(main())


class Gate:
    """A deserializer that waits at the record 3."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def deserialize(self, topic: str, headers: Any, data: bytes) -> int:
        if int(data) == 3:
            self.reached.set()
            await self.opened.wait()
        return int(data)


Meanwhile = Callable[[AsyncConsumer], Coroutine[Any, Any, None]]


async def during_a_poll(cluster: FakeCluster, meanwhile: Meanwhile) -> tuple[ConsumerRecords, Journal]:
    """Returns the result of a poll, during whose deserializer something else happens, and what was read next."""
    gate, journal = Gate(), Journal()
    async with reader(cluster, ZERO, value_deserializer=gate) as consumer:
        assert 1 == len(await consumer.poll(5, max_records=1))
        poll = asyncio.create_task(consumer.poll(5))
        await gate.reached.wait()
        await meanwhile(consumer)
        gate.opened.set()
        records = await poll
        journal.following = {ZERO: await consumer.position(ZERO)}
        consumer.resume(ZERO)
        if journal.following[ZERO] < COUNT:
            await journal.read(consumer, COUNT - journal.following[ZERO])
        return records, journal


def test_positions_during_a_poll(cluster: FakeCluster) -> None:
    """While a deserializer runs, the records count as not read: for commits, auto-commits and position()."""

    async def meanwhile(consumer: AsyncConsumer) -> None:
        assert 1 == await consumer.position(ZERO)
        await consumer.commit()
        assert {ZERO: 1} == {tp: at.offset for tp, at in cluster.committed("g").items()}

    produce(cluster)
    records, _ = asyncio.run(during_a_poll(cluster, meanwhile))
    assert list(range(1, COUNT)) == [record.offset for record in records]


async def seek(consumer: AsyncConsumer) -> None:
    consumer.seek(ZERO, 7)
    assert 7 == await consumer.position(ZERO)
    await consumer.commit()
    assert {ZERO: 7} == {tp: at.offset for tp, at in (await consumer.committed([ZERO])).items() if at}


async def pause(consumer: AsyncConsumer) -> None:
    consumer.pause(ZERO)


async def assign_again(consumer: AsyncConsumer) -> None:
    await consumer.unsubscribe()
    consumer.assign([ZERO])


@pytest.mark.parametrize("meanwhile", [seek, pause, assign_again])
def test_changes_during_a_poll(cluster: FakeCluster, meanwhile: Meanwhile) -> None:
    """The records of a partition that was sought, paused or assigned again are dropped, and read once afterwards."""
    produce(cluster)
    records, journal = asyncio.run(during_a_poll(cluster, meanwhile))
    assert not records
    assert {ZERO: COUNT} == journal.following


def test_close_during_a_poll(cluster: FakeCluster) -> None:
    """A poll raises StateError if the consumer is closed, which does not commit the records of the poll."""

    async def main() -> None:
        gate = Gate()
        async with reader(cluster, ZERO, value_deserializer=gate, enable_auto_commit=True) as consumer:
            assert 2 == len(await consumer.poll(5, max_records=2))
            poll = asyncio.create_task(consumer.poll(5))
            await gate.reached.wait()
            await consumer.close()
            gate.opened.set()
            with pytest.raises(StateError, match="closed"):
                await poll

    produce(cluster)
    asyncio.run(main())
    assert {ZERO: 2} == {tp: at.offset for tp, at in cluster.committed("g").items()}


class Interceptor:
    """Stores what it gets."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        self.values += [record.value for record in records]
        return records


def test_loops_and_interceptors(cluster: FakeCluster) -> None:
    """Interceptors and loops get objects. A loop that ends early has read only what it has reached."""
    interceptor = Interceptor()

    async def main() -> None:
        options = {"value_deserializer": number, "interceptors": [interceptor]}
        async with reader(cluster, ZERO, **options) as consumer:
            async for record in consumer:
                if record.value == 4:
                    break
            assert 5 == await consumer.position(ZERO)
            await consumer.commit()
            assert {ZERO: 5} == {tp: at.offset for tp, at in cluster.committed("g").items()}
            assert list(range(5, COUNT)) == [record.value for record in await consumer.poll(5)]

    produce(cluster)
    asyncio.run(main())
    assert [*range(COUNT), *range(5, COUNT)] == interceptor.values


@pytest.mark.parametrize("form", FORMS)
def test_synchronous_consumers(form: str) -> None:
    """A Consumer refuses a deserializer that is a coroutine function, and names AsyncConsumer."""
    with pytest.raises(ConfigError, match=r"value_deserializer is a coroutine function.*AsyncConsumer"):
        Consumer(bootstrap_servers="broker:9092", value_deserializer=FORMS[form][0])
