"""Deserializers of an AsyncShareConsumer that are coroutine functions, or return awaitables, on FakeCluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow
import pytest

from kconsumer import AcknowledgeType, ConsumerRecord, ShareConsumer, groups
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import ConfigError, RecordDeserializationError, StateError
from kconsumer.parallel import process
from kconsumer.testing import FakeCluster
from support.harnesses.cancellation import Moment, cancelled_at
from support.members.share_groups import share_records

pytestmark = pytest.mark.network_thread

RECORDS = 12
MODES = ("implicit", "explicit")


async def number(data: bytes) -> int:
    """Returns a number."""
    await asyncio.sleep(0)
    return int(data)


async def refuse_five(data: bytes) -> int:
    """Returns a number, except 5."""
    if await number(data) == 5:
        raise ValueError("five")
    return int(data)


class Gate:
    """A deserializer that waits at its first record until it may continue."""

    def __init__(self) -> None:
        self.reached, self.may_continue = asyncio.Event(), asyncio.Event()

    async def deserialize(self, topic: str, headers: Any, data: bytes) -> int:
        """Returns a number."""
        self.reached.set()
        await self.may_continue.wait()
        return int(data)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of records whose keys and values are their offsets."""
    with FakeCluster(group_share_heartbeat_interval_ms=50) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [(b"%d" % n, b"%d" % n) for n in range(RECORDS)])
        cluster.configure_group("g", share_auto_offset_reset="earliest")
        yield cluster


def make(cluster: FakeCluster, **options: Any) -> AsyncShareConsumer:
    """Returns a member of the group g."""
    return AsyncShareConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", fetch_max_wait_ms=20, **options
    )


async def read(consumer: AsyncShareConsumer) -> list[Any]:
    """Returns the records of the first poll that has some."""
    async with asyncio.timeout(20):
        while not (records := share_records(await consumer.poll(1.0))):
            pass
    return records


def lag(cluster: FakeCluster) -> int:
    """Returns the number of records that were not acknowledged."""
    found = groups.offsets("g", bootstrap_servers=cluster.bootstrap_servers).values()
    return sum(offset.lag or 0 for offset in found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", [number, lambda data: number(data), int])
def test_forms(cluster: FakeCluster, form: Any, mode: str) -> None:
    """Keys and values are the results, in both modes. Columns have the bytes."""

    async def main() -> None:
        options = {"key_deserializer": form, "value_deserializer": form}
        async with make(cluster, share_acknowledgement_mode=mode, **options) as consumer:
            records = await read(consumer)
            assert [(n, n) for n in range(RECORDS)] == [(record.key, record.value) for record in records]
            for record in records if mode == "explicit" else ():
                record.ack()
            await consumer.commit()
            cluster.produce("t", [(b"k", b"not a number")])
            if mode == "implicit":
                columns = pyarrow.record_batch(await consumer.poll_arrow(5.0))
                assert [b"not a number"] == columns.column("value").to_pylist()
                await consumer.commit()

    asyncio.run(main())
    assert (mode == "explicit") == lag(cluster)


def test_a_blocking_consumer_says_what_can_await(cluster: FakeCluster) -> None:
    """A ShareConsumer refuses a coroutine function."""
    with pytest.raises(ConfigError, match=r"only AsyncConsumer and AsyncShareConsumer of kconsumer\.aio can call"):
        ShareConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", value_deserializer=number)


@pytest.mark.parametrize("origin", ["key", "value"])
def test_a_record_that_is_refused(cluster: FakeCluster, origin: str) -> None:
    """The records before it are returned, then the error is raised. Rejected, it is not delivered again."""

    async def main() -> None:
        options: dict[str, Any] = {f"{origin}_deserializer": refuse_five, "share_acknowledgement_mode": "explicit"}
        async with make(cluster, **options) as consumer:
            found = []
            for expected in (range(5), range(6, RECORDS)):
                records = await read(consumer)
                assert [*expected] == [record.offset for record in records]
                found += records
                for record in records:
                    record.ack()
                if expected.start == 0:
                    with pytest.raises(RecordDeserializationError, match="ValueError: five") as raised:
                        await consumer.poll(1.0)
                    assert (5, b"5", origin) == (raised.value.offset, raised.value.value, raised.value.origin)
                    consumer.acknowledge("t", 0, 5, AcknowledgeType.REJECT)
            await consumer.commit()

    asyncio.run(main())
    assert 0 == lag(cluster)


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("mode", MODES)
def test_cancelled(cluster: FakeCluster, mode: str, moment: Moment) -> None:
    """A poll is cancelled at each suspension in a deserializer: each record is delivered again, until it arrives."""

    async def main() -> None:
        hits, seen = 0, Counter[int]()
        async with make(cluster, share_acknowledgement_mode=mode, value_deserializer=number) as consumer:
            for point in range(1, 15):
                hit, records = await cancelled_at(consumer.poll(1.0), point, moment)
                hits += hit
                for record in share_records(records) if records else ():
                    seen[record.offset] += 1
                    record.ack() if mode == "explicit" else None
                await consumer.commit()
                cluster.produce("t", [b"%d" % n for n in range(5)])
            async with asyncio.timeout(20):
                while len(seen) < RECORDS + 14 * 5:
                    for record in await read(consumer):
                        seen[record.offset] += 1
                        record.ack() if mode == "explicit" else None
            await consumer.commit()
        assert hits > 3
        assert {1} == set(seen.values())

    cluster.configure_group("g", share_delivery_count_limit="10")
    asyncio.run(main())
    assert 0 == lag(cluster)


def waiting(cluster: FakeCluster, meanwhile: Callable[[AsyncShareConsumer], Awaitable[object]]) -> Any:
    """Returns the records of a poll, or its error, during whose deserializer something else happens."""

    async def main() -> Any:
        gate = Gate()
        async with make(cluster, value_deserializer=gate) as consumer:
            poll = asyncio.create_task(read(consumer))
            await gate.reached.wait()
            await meanwhile(consumer)
            gate.may_continue.set()
            [result] = await asyncio.gather(poll, return_exceptions=True)
            return result

    return asyncio.run(main())


def assert_delivered_again(cluster: FakeCluster) -> None:
    """Check that another member receives all records, whose first delivery has ended without an acceptance."""

    async def main() -> None:
        async with make(cluster) as other:
            assert [2] * RECORDS == [record.delivery_count for record in await read(other)]

    asyncio.run(main())


def test_a_commit_meanwhile(cluster: FakeCluster) -> None:
    """Another task commits, which does not accept the records of the poll, and the poll returns them."""

    async def commit(consumer: AsyncShareConsumer) -> None:
        assert {} == await consumer.commit()
        consumer.commit_async()

    assert [*range(RECORDS)] == [record.value for record in waiting(cluster, commit)]
    assert_delivered_again(cluster)


def test_a_close_meanwhile(cluster: FakeCluster) -> None:
    """The poll says so, and the group delivers the records to another member."""
    assert isinstance(waiting(cluster, lambda consumer: consumer.close()), StateError)
    assert_delivered_again(cluster)


def test_another_subscription_meanwhile(cluster: FakeCluster) -> None:
    """The poll returns none of the records of the old one, and later polls return all of the new one."""

    async def subscribe(consumer: AsyncShareConsumer) -> None:
        await consumer.unsubscribe()
        consumer.subscribe(["t"])

    assert [(n, 2) for n in range(RECORDS)] == [
        (record.offset, record.delivery_count) for record in waiting(cluster, subscribe)
    ]


def test_a_parallel_run(cluster: FakeCluster) -> None:
    """Handlers get the results, and `on_failure` the record that is refused."""
    values: list[object] = []

    async def handler(record: ConsumerRecord) -> None:
        values.append(record.value)

    async def main() -> None:
        options: dict[str, Any] = {"value_deserializer": refuse_five, "share_acknowledgement_mode": "explicit"}
        async with make(cluster, consumer_timeout_ms=500, **options) as consumer:
            await process(
                consumer,
                handler,
                executor="asyncio",
                order="none",
                on_failure=lambda record, error: values.append((record.value, type(error))),
            )

    asyncio.run(main())
    assert {*range(RECORDS), (b"5", RecordDeserializationError)} - {5} == set(values)
    assert 0 == lag(cluster)
