"""Tests of a coroutine that reads a topic, on a FakeCluster: pytest examples/asyncio/test_totals.py.

They need pytest-asyncio. The fixture `kafka_cluster` belongs to kconsumer. For all tests of a project, set in
pyproject.toml, [tool.pytest.ini_options]: asyncio_default_fixture_loop_scope = "function".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster

GROUP = "totals"


async def add_up(consumer: AsyncConsumer, totals: Counter[str]) -> None:
    """The coroutine to test: adds the amounts of orders by customer, and commits each batch, until it is cancelled."""
    async for records in consumer.batches(timeout=1.0):
        for record in records:
            totals[record.key] += record.value["amount"]
        await consumer.commit(records)


@pytest_asyncio.fixture
async def consumer(kafka_cluster: FakeCluster) -> AsyncIterator[AsyncConsumer]:
    """A consumer of the topic `orders`, which has three orders."""
    kafka_cluster.create_topic("orders", partitions=1)
    kafka_cluster.produce("orders", [("ann", '{"amount": 5}'), ("bob", '{"amount": 7}'), ("ann", '{"amount": 1}')])
    async with AsyncConsumer(
        "orders",
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        key_deserializer="str",
        value_deserializer="json",
    ) as consumer:
        yield consumer


async def committed(cluster: FakeCluster, offset: int) -> None:
    """Wait until the group has committed this offset."""
    async with asyncio.timeout(10):
        while (position := cluster.committed(GROUP).get(("orders", 0))) is None or position.offset < offset:
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_orders_are_added_up(kafka_cluster: FakeCluster, consumer: AsyncConsumer) -> None:
    """Orders are counted, those that arrive later, too."""
    totals: Counter[str] = Counter()
    task = asyncio.create_task(add_up(consumer, totals))
    await committed(kafka_cluster, 3)
    kafka_cluster.produce("orders", [("bob", '{"amount": 3}')])
    await committed(kafka_cluster, 4)
    task.cancel()
    await asyncio.wait([task])
    assert totals == {"ann": 6, "bob": 10}


@pytest.mark.asyncio
async def test_a_commit_is_retried(kafka_cluster: FakeCluster, consumer: AsyncConsumer) -> None:
    """An error of the coordinator delays the commit, and no order is counted twice."""
    totals: Counter[str] = Counter()
    kafka_cluster.fail_next("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    task = asyncio.create_task(add_up(consumer, totals))
    await committed(kafka_cluster, 3)
    task.cancel()
    await asyncio.wait([task])
    assert totals == {"ann": 6, "bob": 7}
