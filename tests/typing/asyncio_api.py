"""Code for asyncio as users write it; it must type-check under `mypy --strict`, and is never run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, assert_type

from kconsumer import (
    AcknowledgeType,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    RebalanceListener,
    ShareRecord,
    TopicPartition,
)
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer, AsyncTopicTable
from kconsumer.arrow import RecordBatch
from kconsumer.errors import KafkaError, StateError

TP = TopicPartition("orders", 0)


async def handle(text: str) -> None:
    """Some work."""


async def decode(data: bytes) -> str:
    """A deserializer that is a coroutine function."""
    return data.decode()


class Registry:
    """A deserializer with a coroutine function as its method."""

    async def deserialize(self, topic: str, headers: tuple[tuple[str, bytes | None], ...], data: bytes) -> object:
        """Returns the object."""
        return data


async def tables(servers: str) -> None:
    """Deserializers, also coroutine functions, decide the types of keys and values."""
    async with AsyncTopicTable("t", bootstrap_servers=servers, value_deserializer=decode) as table:
        await table.wait_ready(60)
        assert_type(table, AsyncTopicTable[bytes, str])
        assert_type(table.snapshot(), dict[bytes, str])
    assert_type(AsyncTopicTable("t", bootstrap_servers=servers), AsyncTopicTable[bytes, bytes])


async def read_in_a_group() -> None:
    """Subscribe, poll, commit."""
    async with AsyncConsumer(
        "orders",
        "refunds",
        bootstrap_servers=["a:9092", "b:9092"],
        group_id="billing",
        auto_offset_reset="earliest",
        key_deserializer=Registry(),
        value_deserializer=decode,
    ) as consumer:
        assert_type(consumer, AsyncConsumer[object, str])
        async with asyncio.timeout(5):
            records = await consumer.poll(timeout=timedelta(seconds=1), max_records=100)
        assert_type(records, ConsumerRecords[object, str])
        async for record in consumer:
            assert_type(record, ConsumerRecord[object, str])
            await handle(f"{record.key!r} {record.value!r}")
            break
        async for batch in consumer.batches(0.5):
            assert_type(batch, ConsumerRecords[object, str])
            await consumer.commit(batch, timeout=5.0)
        assert_type(await consumer.poll_arrow(columns=["value"]), RecordBatch)


async def acknowledged(offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
    """A callback of a share consumer."""
    await handle(f"{offsets} {error}")


async def work_on_shares() -> None:
    """Receive records of a share group, and acknowledge them."""
    async with AsyncShareConsumer(
        "jobs",
        bootstrap_servers="a:9092",
        group_id="g",
        share_acknowledgement_mode="explicit",
        on_acknowledge=acknowledged,
    ) as queue:
        assert_type(queue, AsyncShareConsumer[bytes | None, bytes | None])
        for record in await queue.poll(timedelta(seconds=1)):
            assert_type(record, ShareRecord[bytes | None, bytes | None])
            queue.acknowledge(record, AcknowledgeType.REJECT)
        assert_type(await queue.commit(timeout=5.0), dict[TopicPartition, KafkaError | None])
        queue.commit_async()
        assert_type(queue.acquisition_lock_timeout_ms(), int | None)
        async for received in queue:
            assert_type(received, ShareRecord[bytes | None, bytes | None])
            received.release()
        await queue.unsubscribe()
        assert_type(await queue.poll_arrow(columns=["value"]), RecordBatch)
    other = AsyncShareConsumer.from_config({"bootstrap.servers": "a:9092", "group.id": "g"}, "jobs")
    await other.close(timeout=1.0)


async def use_all_methods(consumer: AsyncConsumer) -> None:
    """The methods that wait, and some that do not."""
    assert_type(await consumer.position(TP), int)
    assert_type(await consumer.committed([TP]), dict[TopicPartition, OffsetAndMetadata | None])
    assert_type(await consumer.beginning_offsets([("orders", 0)]), dict[TopicPartition, int])
    assert_type(await consumer.end_offsets([TP], timeout=1), dict[TopicPartition, int])
    await consumer.seek_to_time(0, TP)
    assert_type(await consumer.offsets_for_times({TP: 0}), dict[TopicPartition, OffsetAndTimestamp | None])
    assert_type(await consumer.partitions_for("orders"), tuple[PartitionInfo, ...])
    assert_type(await consumer.client_instance_id(timeout=1.0), str)
    assert_type(await consumer.list_topics(), dict[str, tuple[PartitionInfo, ...]])
    assert_type(consumer.assignment(), frozenset[TopicPartition])
    await consumer.commit({TP: 5})
    await consumer.commit({("orders", 0): OffsetAndMetadata(5, "note")})
    consumer.seek(TP, 5)
    consumer.pause(TP)
    try:
        await consumer.unsubscribe()
        await consumer.close(timeout=5, leave_group=False)
    except StateError as error:
        await handle(str(error))


async def assigned(consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
    """A rebalance callback that is a coroutine function."""
    for tp in partitions:
        consumer.seek(tp, await consumer.position(tp))


def revoked(consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
    """A rebalance callback that is a plain function."""


async def committed(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
    """A commit callback that is a coroutine function."""


class Listener(RebalanceListener):
    """A listener whose methods are coroutine functions, or plain functions."""

    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Look a position up."""
        await consumer.position(partitions[0])

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Commit."""
        await consumer.commit()

    def on_partitions_lost(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Do nothing."""


async def listen(options: Mapping[str, Any]) -> None:
    """Callbacks in all forms."""
    consumer = AsyncConsumer.from_config(options)
    assert_type(consumer, AsyncConsumer)
    consumer.subscribe(["orders"], on_assign=assigned, on_revoke=revoked, on_lost=assigned)
    consumer.subscribe(["orders"], listener=Listener())
    consumer.commit_async(callback=committed)
    consumer.commit_async({TP: 7}, lambda offsets, error: None)
    async with asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(consumer.poll(10))
        tasks.create_task(consumer.commit())
    assert_type(polling.result(), ConsumerRecords)
