"""kconsumer.aio.ranges returns the records and gaps of the blocking readers, also after cancelled steps."""

from __future__ import annotations

import asyncio
import builtins
import gc
import random
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from kconsumer import aio
from kconsumer.aio.ranges import RangeReader, TopicReader
from kconsumer.arrow import RecordBatch, Table
from kconsumer.errors import (
    ConcurrentAccessError,
    ConfigError,
    OffsetOutOfRangeError,
    StateError,
    TimeoutError,
    WakeupError,
)
from kconsumer.ranges.client_base import abandon
from support.brokers.kafka_admin import wait_until
from support.fakes.log_broker import BATCHES, GAPS, OFFSETS, SPAN, LogBroker, compacted
from support.harnesses.cancellation import cancel_at

END = SPAN * BATCHES
ROWS = 4
SMALL_FETCHES: dict[str, Any] = {"max_partition_fetch_bytes": 50}  # one batch in each response

pytestmark = pytest.mark.network_thread


@pytest.fixture(scope="module")
def broker() -> Iterator[LogBroker]:
    """A broker with two partitions that have the same records."""
    with compacted() as broker:
        yield broker


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """After each test, no network thread runs."""
    yield
    gc.collect()
    wait_until(lambda: not network_threads(), 10, "the end of the network threads")


def network_threads() -> list[str]:
    """Returns the names of the network threads that run now."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kconsumer-network")]


def offsets(batches: Sequence[RecordBatch]) -> list[int]:
    """Returns the offsets of the rows of batches."""
    return Table(batches[0].columns, batches).to_pyarrow().column("offset").to_pylist() if batches else []


def open_range(broker: LogBroker) -> RangeReader:
    """Returns a reader of partition 0 up to END."""
    return aio.read_range(("t", 0), 0, END, bootstrap_servers=broker.address, max_rows=ROWS, **SMALL_FETCHES)


async def collect(reader: RangeReader | TopicReader) -> list[RecordBatch]:
    """Read to the end."""
    return [batch async for batch in reader]


def test_three_ways_to_open(broker: LogBroker) -> None:
    """`async with`, `await` and `async for` open the range. Without a `with` block, reading to the end closes it."""

    async def read() -> None:
        awaited = await open_range(broker)
        assert (0, END) == (awaited.start_offset, awaited.end_offset)
        assert OFFSETS == offsets(await collect(awaited))
        unopened = open_range(broker)
        assert "not open yet" in repr(unopened)
        assert OFFSETS == offsets(await collect(unopened))
        assert "at 52 of 52" in repr(unopened)
        assert [] == await collect(unopened)
        assert [] == network_threads()

    asyncio.run(read())


def test_errors(broker: LogBroker) -> None:
    """Invalid arguments raise at once; errors of the log and of connections raise when the range is opened."""
    servers = broker.address

    async def read() -> None:
        with pytest.raises(ValueError, match="not a range"):
            aio.read_range(("t", 0), 5, 4, bootstrap_servers=servers)
        with pytest.raises(ValueError, match="max_rows"):
            aio.read_range(("t", 0), 0, 4, bootstrap_servers=servers, max_rows=0)
        with pytest.raises(ValueError, match="not an offset"):
            aio.scan_topic("t", bootstrap_servers=servers, start=-1)
        with pytest.raises(ConfigError, match="group_id"):
            aio.read_range(("t", 0), 0, 4, bootstrap_servers=servers, group_id="g")
        with pytest.raises(OffsetOutOfRangeError, match="ends at offset 152"):
            await aio.read_range(("t", 0), 0, 9999, bootstrap_servers=servers)
        with pytest.raises(OffsetOutOfRangeError, match="ends at offset 152"):
            await anext(aio.read_range(("t", 0), 0, 9999, bootstrap_servers=servers))
        with pytest.raises(TimeoutError):
            await aio.read_topic("t", bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=200)
        closed = open_range(broker)
        await closed.close()
        with pytest.raises(StateError, match="was closed"):
            await anext(closed)

    asyncio.run(read())


def test_one_task_reads(broker: LogBroker) -> None:
    """A second task that reads at the same time gets an error, and the first one reads everything."""

    async def read() -> list[RecordBatch]:
        reader = open_range(broker)
        first = asyncio.ensure_future(anext(reader))  # opens the range, which takes requests
        await asyncio.sleep(0)
        with pytest.raises(StateError, match="another task is reading"):
            await anext(reader)
        return [await first, *await collect(reader)]

    assert OFFSETS == offsets(asyncio.run(read()))


def test_a_range_cancelled_at_any_suspension(broker: LogBroker) -> None:
    """After a step is cancelled at its n-th suspension, for each n, the reader returns every row and gap once."""

    async def read() -> int:
        for point in count(1):
            reader = open_range(broker)
            batches: list[RecordBatch] = []
            whole = await cancel_at(point, extend(batches, reader))
            if not whole:
                batches += await collect(reader)
            assert (OFFSETS, GAPS) == (offsets(batches), reader.gaps), f"cancelled at suspension {point}"
            assert [] == network_threads()
            if whole:
                return point
        raise AssertionError

    assert asyncio.run(read()) > 1  # at least one step was suspended; how many are depends on the network thread


async def extend(batches: list[RecordBatch], reader: RangeReader | TopicReader) -> bool:
    """Read to the end into a list. Returns True."""
    async for batch in reader:
        batches.append(batch)
    return True


def test_opening_and_closing_cancelled_at_any_suspension(broker: LogBroker) -> None:
    """If `async with` is cancelled at its n-th suspension, for each n, no thread is left; close() likewise."""

    async def enter(reader: RangeReader | TopicReader) -> bool:
        await reader
        return True

    async def close(reader: RangeReader | TopicReader) -> bool:
        await reader.close()
        return True

    async def run() -> int:
        for point in count(1):
            results = []
            for make in (open_range, open_topic):
                reader = make(broker)
                results.append(await cancel_at(point, enter(reader)))
                opened = make(broker)
                await anext(opened)
                results.append(await cancel_at(point, close(opened)))
                await opened.close()
                await reader.close()
                assert [] == network_threads()
            if all(results):
                return point
        raise AssertionError

    assert asyncio.run(run()) > 1  # at least one step was suspended; how many are depends on the network thread


def open_topic(broker: LogBroker) -> TopicReader:
    """Returns a reader of both partitions up to END."""
    return aio.scan_topic("t", bootstrap_servers=broker.address, end=END, max_rows=ROWS, **SMALL_FETCHES)


def test_a_topic_cancelled_at_any_suspension(broker: LogBroker) -> None:
    """After a step is cancelled at its n-th suspension, for each n, the reader returns every row of the topic once."""

    async def read() -> int:
        for point in count(1):
            reader = open_topic(broker)
            batches: list[RecordBatch] = []
            whole = await cancel_at(point, extend(batches, reader))
            if not whole:
                batches += await collect(reader)
            assert sorted(OFFSETS * 2) == sorted(offsets(batches)), f"cancelled at suspension {point}"
            assert (2 * END, 2 * END) == (reader.done, reader.total)
            assert [] == network_threads()
            if whole:
                return point
        raise AssertionError

    assert asyncio.run(read()) > 1  # at least one step was suspended; how many are depends on the network thread


@pytest.mark.parametrize("make", [open_range, open_topic])
def test_timeouts_shorter_than_a_fetch(broker: LogBroker, make: Any) -> None:
    """Loops whose steps are cancelled after random times, most of them shorter than a step, read every row once."""
    rng, partitions = random.Random(19), 1 if make is open_range else 2

    async def read() -> tuple[list[int], int]:
        batches: list[RecordBatch] = []
        cancelled = 0
        async with make(broker) as reader:
            while True:
                try:
                    async with asyncio.timeout(rng.uniform(0, 0.0005)):
                        batches.append(await anext(reader))
                except builtins.TimeoutError:
                    cancelled += 1
                except StopAsyncIteration:
                    return offsets(batches), cancelled

    total = 0
    while total < 20:
        found, cancelled = asyncio.run(read())
        assert sorted(OFFSETS * partitions) == sorted(found)
        total += cancelled


def test_a_client_whose_range_is_being_read(broker: LogBroker) -> None:
    """Another range cannot be opened while a task reads the open one."""

    async def read() -> None:
        async with aio.RangeClient(bootstrap_servers=broker.address) as client:
            first = client.read_range(("t", 0), 0, END)
            reading = asyncio.ensure_future(collect(first))
            await asyncio.sleep(0)
            with pytest.raises(StateError, match="one client for each task"):
                await client.read_range(("t", 1), 0, END)
            assert OFFSETS == offsets(await reading)

    asyncio.run(read())


def test_wakeup() -> None:
    """wakeup() ends a lookup that waits, with WakeupError."""

    async def run() -> None:
        async with aio.RangeClient(bootstrap_servers="127.0.0.1:1") as client:
            lookup = asyncio.ensure_future(client.end_offsets([("t", 0)]))
            await asyncio.sleep(0.01)
            client.wakeup()
            with pytest.raises(WakeupError):
                await lookup

    asyncio.run(run())


def test_another_event_loop(broker: LogBroker) -> None:
    """A client belongs to the loop that used it first."""
    client = aio.RangeClient(bootstrap_servers=broker.address)
    asyncio.run(client.beginning_offsets([("t", 0)]))
    with pytest.raises(ConcurrentAccessError, match="event loop"):
        asyncio.run(client.end_offsets([("t", 0)]))
    with pytest.raises(ConcurrentAccessError, match="event loop"):
        asyncio.run(client.close())
    abandon(client.consumer)


def test_a_client_that_was_not_closed(broker: LogBroker) -> None:
    """A client that is dropped without `close` warns, and its thread ends."""
    clients = [aio.RangeClient(bootstrap_servers=broker.address)]
    asyncio.run(clients[0].beginning_offsets([("t", 0)]))
    with pytest.warns(ResourceWarning, match="unclosed <RangeClient"):
        clients.clear()
