"""The Python clients with a common interface, for scenarios in which their loops do not matter.

Each class takes the address of the broker and options of its own client. It is then either assigned partitions or
subscribed to a topic with a group. `poll(seconds)` returns the number of records, `read(seconds)` the records.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

Record = tuple[int, int, bytes]
"""Partition, offset, value."""


class Peer(Protocol):
    """The methods that scenarios need."""

    version: str

    def __init__(self, bootstrap: str, **options: Any) -> None:
        """Import the client without connecting."""

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        """Read these partitions from the beginning, or from the end."""

    def subscribe(self, topic: str, group: str, *, at_end: bool = False) -> None:
        """Read a topic as a member of a group."""

    def poll(self, seconds: float) -> int:
        """Return the number of records of one poll."""

    def read(self, seconds: float) -> list[Record]:
        """Return the records of one poll, as soon as there is one."""

    def close(self) -> None:
        """Close the client."""


def reset(at_end: bool) -> str:
    """Return auto.offset.reset."""
    return "latest" if at_end else "earliest"


class Kconsumer:
    """kconsumer with default options."""

    options: dict[str, Any] = {}

    def __init__(self, bootstrap: str, **options: Any) -> None:
        import kconsumer
        from kconsumer._version import VERSION

        self._library = kconsumer
        self._options = {"bootstrap_servers": bootstrap, **self.options, **options}
        self.version = VERSION

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        self._consumer = self._library.Consumer(**self._options, auto_offset_reset=reset(at_end))
        self._consumer.assign([self._library.TopicPartition(topic, p) for p in partitions])

    def subscribe(self, topic: str, group: str, *, at_end: bool = False) -> None:
        self._consumer = self._library.Consumer(topic, group_id=group, auto_offset_reset=reset(at_end), **self._options)

    def poll(self, seconds: float) -> int:
        count = 0
        for record in self._consumer.poll(seconds):
            count += len(record.value) > 0
        return count

    def read(self, seconds: float) -> list[Record]:
        return [(record.partition, record.offset, record.value) for record in self._consumer.poll(seconds)]

    def close(self) -> None:
        self._consumer.close()


class KconsumerThreaded(Kconsumer):
    """kconsumer with the threaded engine."""

    options = {"engine": "threaded"}


class KconsumerConsumerProtocol(Kconsumer):
    """kconsumer with the consumer protocol (KIP-848)."""

    options = {"group_protocol": "consumer"}


class Confluent:
    """confluent-kafka with default options, `consume(1000)`. `read` takes one record, without waiting for more."""

    options: dict[str, Any] = {}

    def __init__(self, bootstrap: str, **options: Any) -> None:
        import confluent_kafka

        self._library = confluent_kafka
        self._options = {"bootstrap.servers": bootstrap, **self.options, **options}
        self.version = confluent_kafka.libversion()[0]

    def _make(self, group: str, at_end: bool) -> None:
        options = {"group.id": group, "auto.offset.reset": reset(at_end), **self._options}
        self._consumer = self._library.Consumer(options)

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        self._make("compare", at_end)
        at = self._library.OFFSET_END if at_end else self._library.OFFSET_BEGINNING
        self._consumer.assign([self._library.TopicPartition(topic, p, at) for p in partitions])

    def subscribe(self, topic: str, group: str, *, at_end: bool = False) -> None:
        self._make(group, at_end)
        self._consumer.subscribe([topic])

    def poll(self, seconds: float) -> int:
        count = 0
        for message in self._consumer.consume(1000, seconds):
            if message.error() is None:
                count += len(message.value()) > 0
        return count

    def read(self, seconds: float) -> list[Record]:
        message = self._consumer.poll(seconds)
        if message is None or message.error() is not None:
            return []
        return [(message.partition(), message.offset(), message.value())]

    def close(self) -> None:
        self._consumer.close()


class ConfluentTuned(Confluent):
    """confluent-kafka with more read-ahead and without pauses between fetches."""

    options = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


class ConfluentSingle(Confluent):
    """confluent-kafka with default options, `poll()`: one record at a time, without waiting for more."""

    def poll(self, seconds: float) -> int:
        message = self._consumer.poll(seconds)
        return int(message is not None and message.error() is None and len(message.value()) > 0)


class ConfluentConsumerProtocol(Confluent):
    """confluent-kafka with default options and the consumer protocol."""

    options = {"group.protocol": "consumer"}


class KafkaPython:
    """kafka-python with default options."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        import kafka

        self._library = kafka
        self._options = {"bootstrap_servers": bootstrap, **options}
        self.version = kafka.__version__

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        self._consumer = self._library.KafkaConsumer(**self._options, auto_offset_reset=reset(at_end))
        self._consumer.assign([self._library.TopicPartition(topic, p) for p in partitions])

    def subscribe(self, topic: str, group: str, *, at_end: bool = False) -> None:
        self._consumer = self._library.KafkaConsumer(
            topic, group_id=group, auto_offset_reset=reset(at_end), **self._options
        )

    def poll(self, seconds: float) -> int:
        count = 0
        for run in self._consumer.poll(timeout_ms=int(seconds * 1000)).values():
            for record in run:
                count += len(record.value) > 0
        return count

    def read(self, seconds: float) -> list[Record]:
        found = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [(record.partition, record.offset, record.value) for run in found.values() for record in run]

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    """aiokafka with default options, in its own event loop."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        import aiokafka

        self._library = aiokafka
        self._options = {"bootstrap_servers": bootstrap, **options}
        self.version = aiokafka.__version__
        self._loop = asyncio.new_event_loop()

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        async def start() -> None:
            self._consumer = self._library.AIOKafkaConsumer(**self._options, auto_offset_reset=reset(at_end))
            await self._consumer.start()
            self._consumer.assign([self._library.TopicPartition(topic, p) for p in partitions])

        self._loop.run_until_complete(start())

    def subscribe(self, topic: str, group: str, *, at_end: bool = False) -> None:
        async def start() -> None:
            self._consumer = self._library.AIOKafkaConsumer(
                topic, group_id=group, auto_offset_reset=reset(at_end), **self._options
            )
            await self._consumer.start()

        self._loop.run_until_complete(start())

    def _getmany(self, seconds: float) -> dict[Any, list[Any]]:
        got: dict[Any, list[Any]]
        got = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
        return got

    def poll(self, seconds: float) -> int:
        count = 0
        for run in self._getmany(seconds).values():
            for record in run:
                count += len(record.value) > 0
        return count

    def read(self, seconds: float) -> list[Record]:
        runs = self._getmany(seconds).values()
        return [(record.partition, record.offset, record.value) for run in runs for record in run]

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


PEERS: dict[str, type[Peer]] = {
    "kconsumer": Kconsumer,
    "kconsumer-threaded": KconsumerThreaded,
    "kconsumer-consumer-protocol": KconsumerConsumerProtocol,
    "confluent": Confluent,
    "confluent-single": ConfluentSingle,
    "confluent-tuned": ConfluentTuned,
    "confluent-consumer-protocol": ConfluentConsumerProtocol,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
