"""The clients for asyncio with a common interface, and kconsumer's synchronous one beside them.

`batches` yields lists of records as the client returns them, and `records` single records. Each client is assigned
partitions, or subscribes as a member of a group. The code that runs for each record is the client's own.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol


class AsyncPeer(Protocol):
    """The methods that measurements need."""

    version: str

    async def assign(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        """Read these partitions from the beginning."""

    async def subscribe(self, bootstrap: str, topic: str, group: str) -> None:
        """Read a topic from its end as a member of a group."""

    def batches(self) -> AsyncIterator[Iterable[Any]]:
        """Yield what the client returns at once."""

    def records(self) -> AsyncIterator[Any]:
        """Yield single records, in the way that the client recommends."""

    def soonest(self) -> AsyncIterator[Iterable[Any]]:
        """Yield records as soon as there is one."""

    async def close(self) -> None:
        """Close the client."""


def value_of(record: Any) -> bytes:
    """Return the value of a record, which is an attribute or, with confluent-kafka, a method."""
    value = record.value
    return bytes(value() if callable(value) else value)


class Kconsumer:
    """kconsumer's AsyncConsumer with default options."""

    options: dict[str, Any] = {}

    def __init__(self) -> None:
        from kconsumer._version import VERSION

        self.version = VERSION

    async def assign(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        from kconsumer import TopicPartition
        from kconsumer.aio import AsyncConsumer

        self._consumer = AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **self.options)
        self._consumer.assign([TopicPartition(topic, partition) for partition in partitions])

    async def subscribe(self, bootstrap: str, topic: str, group: str) -> None:
        from kconsumer.aio import AsyncConsumer

        self._consumer = AsyncConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **self.options)

    async def batches(self) -> AsyncIterator[Iterable[Any]]:
        while True:
            yield await self._consumer.poll(1.0)

    def records(self) -> AsyncIterator[Any]:
        return aiter(self._consumer)

    def soonest(self) -> AsyncIterator[Iterable[Any]]:
        return self.batches()

    async def close(self) -> None:
        await self._consumer.close()


class KconsumerBlocking(Kconsumer):
    """kconsumer's synchronous Consumer with the threaded engine. It blocks the event loop, in which it is alone."""

    async def assign(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        from kconsumer import Consumer, TopicPartition

        options: dict[str, Any] = {"bootstrap_servers": bootstrap, "engine": "threaded"}
        self._blocking = Consumer(auto_offset_reset="earliest", **options)
        self._blocking.assign([TopicPartition(topic, partition) for partition in partitions])

    async def subscribe(self, bootstrap: str, topic: str, group: str) -> None:
        from kconsumer import Consumer

        self._blocking = Consumer(topic, bootstrap_servers=bootstrap, group_id=group, engine="threaded")

    async def batches(self) -> AsyncIterator[Iterable[Any]]:
        while True:
            yield self._blocking.poll(1.0)

    async def records(self) -> AsyncIterator[Any]:
        for record in self._blocking:
            yield record

    async def close(self) -> None:
        self._blocking.close()


class Aiokafka:
    """aiokafka with default options: getmany(), or iteration."""

    def __init__(self) -> None:
        import aiokafka

        self._library = aiokafka
        self.version = aiokafka.__version__

    async def assign(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self._consumer = self._library.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await self._consumer.start()
        self._consumer.assign([self._library.TopicPartition(topic, partition) for partition in partitions])

    async def subscribe(self, bootstrap: str, topic: str, group: str) -> None:
        self._consumer = self._library.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group)
        await self._consumer.start()

    async def batches(self) -> AsyncIterator[Iterable[Any]]:
        while True:
            found = await self._consumer.getmany(timeout_ms=1000)
            yield [record for run in found.values() for record in run]

    def records(self) -> AsyncIterator[Any]:
        return aiter(self._consumer)

    def soonest(self) -> AsyncIterator[Iterable[Any]]:
        return self.batches()

    async def close(self) -> None:
        await self._consumer.stop()


class Confluent:
    """confluent-kafka's AIOConsumer with default options: consume(1000), or poll()."""

    def __init__(self) -> None:
        import confluent_kafka

        self._library = confluent_kafka
        self.version = confluent_kafka.libversion()[0]

    def _make(self, bootstrap: str, group: str, reset: str) -> None:
        from confluent_kafka.aio import AIOConsumer

        self._consumer = AIOConsumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": reset})

    async def assign(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self._make(bootstrap, f"compare-{uuid.uuid4().hex[:8]}", "earliest")
        at = self._library.OFFSET_BEGINNING
        await self._consumer.assign([self._library.TopicPartition(topic, partition, at) for partition in partitions])

    async def subscribe(self, bootstrap: str, topic: str, group: str) -> None:
        self._make(bootstrap, group, "latest")
        await self._consumer.subscribe([topic])

    async def batches(self) -> AsyncIterator[Iterable[Any]]:
        while True:
            found = await self._consumer.consume(1000, 1.0)
            yield [message for message in found if message.error() is None]

    async def records(self) -> AsyncIterator[Any]:
        while True:
            message = await self._consumer.poll(1.0)
            if message is not None and message.error() is None:
                yield message

    async def soonest(self) -> AsyncIterator[Iterable[Any]]:
        async for message in self.records():  # consume() waits for the number of messages or the timeout
            yield [message]

    async def close(self) -> None:
        await self._consumer.close()


PEERS: dict[str, type[AsyncPeer]] = {
    "kconsumer": Kconsumer,
    "kconsumer-blocking": KconsumerBlocking,
    "aiokafka": Aiokafka,
    "confluent": Confluent,
}
