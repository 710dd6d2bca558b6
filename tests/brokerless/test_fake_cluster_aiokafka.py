"""aiokafka against FakeCluster: it produces, also in transactions, and two consumers read as a group and commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kconsumer.groups import offsets
from kconsumer.testing import FakeCluster

PLAIN = [b"plain %d" % i for i in range(50)]
COMMITTED = [b"committed %d" % i for i in range(5)]
DEADLINE_S = 30


async def produce(servers: str) -> None:
    """Write records, a transaction that is committed, and one that is aborted."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for value in PLAIN:
            await producer.send_and_wait("t", value)
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="tx") as producer:
        async with producer.transaction():
            for value in COMMITTED:
                await producer.send_and_wait("t", value)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted")
        await producer.abort_transaction()


async def read_as_group(servers: str) -> tuple[list[bytes], set[int]]:
    """Read all records with two members. Returns the values, and how many partitions each member had."""
    options: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "heartbeat_interval_ms": 200,
    }
    values: list[bytes] = []
    async with AIOKafkaConsumer("t", **options) as one, AIOKafkaConsumer("t", **options) as other:
        async with asyncio.timeout(DEADLINE_S):
            while len(values) < len(PLAIN + COMMITTED) or not (one.assignment() and other.assignment()):
                for consumer in (one, other):
                    batches = await consumer.getmany(timeout_ms=100)
                    values += [record.value for batch in batches.values() for record in batch]
        for consumer in (one, other):
            await consumer.commit()
        return values, {len(one.assignment()), len(other.assignment())}


@pytest.mark.timeout(120)
def test_aiokafka() -> None:
    """Two members share the partitions, read each record of committed transactions, and commit."""
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=4, replication_factor=3)
        asyncio.run(produce(cluster.bootstrap_servers))
        values, counts = asyncio.run(read_as_group(cluster.bootstrap_servers))
        assert set(PLAIN + COMMITTED) == set(values)
        assert {2} == counts
        positions = offsets("g", cluster.bootstrap_servers)
        assert 4 == len([position for position in positions.values() if position.lag == 0])
