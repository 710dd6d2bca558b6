"""Consumer and AsyncConsumer commit what is stored, on FakeCluster: in the background, before a rebalance, on close."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_offset_store": False}
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def made(cluster: FakeCluster, **options: Any) -> Consumer:
    """Returns a member of the group."""
    return Consumer("t", bootstrap_servers=cluster.bootstrap_servers, **{**OPTIONS, **options})


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are `count` records. Returns them."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += consumer.poll(1.0)
    return records


def offset(cluster: FakeCluster) -> int | None:
    """Returns the committed offset of the partition."""
    at = cluster.committed("g").get(TP)
    return None if at is None else at.offset


@PROTOCOLS
def test_close_commits_up_to_the_first_record_that_is_not_stored(protocol: str) -> None:
    """Without a stored record nothing is committed; the member that continues gets exactly what was not stored."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"0", b"1", b"2", b"3", b"4"])
        with made(cluster, group_protocol=protocol) as consumer:
            read(consumer, 5)
        assert offset(cluster) is None
        with made(cluster, group_protocol=protocol) as consumer:
            records = read(consumer, 5)
            for index in (3, 0, 1):
                consumer.store_offsets(records[index])
        assert 2 == offset(cluster)
        with made(cluster, group_protocol=protocol) as consumer:
            assert [2, 3, 4] == [record.offset for record in read(consumer, 3)]


def test_markers_and_aborted_records_count_as_stored() -> None:
    """With read_committed, commits pass over the offsets of an aborted transaction and of markers."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        with cluster.transaction() as transaction:
            transaction.produce("t", [b"0", b"1"])
        with cluster.transaction() as transaction:
            transaction.produce("t", [b"aborted"])
            transaction.abort()
        cluster.produce("t", [b"5"])
        with made(cluster, isolation_level="read_committed", value_deserializer="str") as consumer:
            first, second, third = read(consumer, 3)
            for record, expected in ((second, 0), (first, third.offset), (third, third.offset + 1)):
                consumer.store_offsets(record)
                consumer.commit()
                assert expected == offset(cluster)


@PROTOCOLS
def test_the_commit_before_a_rebalance_contains_what_is_stored(protocol: str) -> None:
    """A second member takes a partition over, and gets the records that the first one has not stored."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        for partition in range(2):
            cluster.produce("t", [b"0", b"1", b"2"], partition=partition)
        options: dict[str, Any] = {"group_protocol": protocol, "auto_commit_interval_ms": 600_000}
        if protocol == "classic":
            options["heartbeat_interval_ms"] = 100
        with made(cluster, **options) as first, made(cluster, **options) as second:
            for record in read(first, 6):
                if record.offset < 2:
                    first.store_offsets(record)
            taken: list[ConsumerRecord] = []
            while not taken:
                first.poll(0.05)
                taken += second.poll(0.05)
            assert {2} == {record.offset for record in taken}


def test_an_async_consumer_commits_what_is_stored_in_the_background() -> None:
    """Another thread stores a record, and an auto-commit contains it; positions of the batch are not committed."""

    async def run() -> None:
        with FakeCluster() as cluster:
            cluster.create_topic("t")
            cluster.produce("t", [b"0", b"1", b"2"])
            options = {**OPTIONS, "auto_commit_interval_ms": 10}
            async with AsyncConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
                records: list[ConsumerRecord] = []
                while len(records) < 3:
                    records += await consumer.poll(1.0)
                await asyncio.to_thread(consumer.store_offsets, records[0])
                while offset(cluster) is None:
                    await consumer.poll(0.01)
                assert 1 == offset(cluster)
                await consumer.commit(records[1])
                assert 2 == offset(cluster)

    asyncio.run(run())
