"""The Python clients behind one shape, for scenarios where their loops do not matter.

Each is a class made with the broker's address and then either assigned partitions or subscribed to a topic with a
group; `poll(seconds)` gives how many records came.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Peer(Protocol):
    """What scenarios do with a client."""

    version: str

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        """Read these from the beginning, or only what comes from now on."""

    def subscribe(self, topic: str, group: str) -> None:
        """Read all of a topic as the only member of a new group."""

    def poll(self, seconds: float) -> int:
        """How many records came."""

    def close(self) -> None:
        """Leave."""


class Kconsumer:
    """kconsumer with default options."""

    def __init__(self, bootstrap: str) -> None:
        import kconsumer
        from kconsumer._version import VERSION

        self._library, self._bootstrap = kconsumer, bootstrap
        self.version = VERSION

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        self._consumer = self._library.Consumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="latest" if at_end else "earliest"
        )
        self._consumer.assign([self._library.TopicPartition(topic, p) for p in partitions])

    def subscribe(self, topic: str, group: str) -> None:
        self._consumer = self._library.Consumer(
            topic, bootstrap_servers=self._bootstrap, group_id=group, auto_offset_reset="earliest"
        )

    def poll(self, seconds: float) -> int:
        count = 0
        for record in self._consumer.poll(seconds):
            count += len(record.value) > 0
        return count

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    """confluent-kafka with default options, `consume(1000)`."""

    options: dict[str, Any] = {}

    def __init__(self, bootstrap: str) -> None:
        import confluent_kafka

        self._library, self._bootstrap = confluent_kafka, bootstrap
        self.version = confluent_kafka.libversion()[0]

    def _make(self, group: str) -> None:
        self._consumer = self._library.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **self.options,
            }
        )

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        self._make("compare")
        at = self._library.OFFSET_END if at_end else self._library.OFFSET_BEGINNING
        self._consumer.assign([self._library.TopicPartition(topic, p, at) for p in partitions])

    def subscribe(self, topic: str, group: str) -> None:
        self._make(group)
        self._consumer.subscribe([topic])

    def poll(self, seconds: float) -> int:
        count = 0
        for message in self._consumer.consume(1000, seconds):
            if message.error() is None:
                count += len(message.value()) > 0
        return count

    def close(self) -> None:
        self._consumer.close()


class ConfluentTuned(Confluent):
    """The same, told to fetch ahead and not to pause."""

    options = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


class KafkaPython:
    """kafka-python with default options."""

    def __init__(self, bootstrap: str) -> None:
        import kafka

        self._library, self._bootstrap = kafka, bootstrap
        self.version = kafka.__version__

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        self._consumer = self._library.KafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="latest" if at_end else "earliest"
        )
        self._consumer.assign([self._library.TopicPartition(topic, p) for p in partitions])

    def subscribe(self, topic: str, group: str) -> None:
        self._consumer = self._library.KafkaConsumer(
            topic, bootstrap_servers=self._bootstrap, group_id=group, auto_offset_reset="earliest"
        )

    def poll(self, seconds: float) -> int:
        count = 0
        for run in self._consumer.poll(timeout_ms=int(seconds * 1000)).values():
            for record in run:
                count += len(record.value) > 0
        return count

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    """aiokafka with default options, on an event loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        import aiokafka

        self._library, self._bootstrap = aiokafka, bootstrap
        self.version = aiokafka.__version__
        self._loop = asyncio.new_event_loop()

    def assign(self, topic: str, partitions: list[int], *, at_end: bool = False) -> None:
        async def start() -> None:
            self._consumer = self._library.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap, auto_offset_reset="latest" if at_end else "earliest"
            )
            await self._consumer.start()
            self._consumer.assign([self._library.TopicPartition(topic, p) for p in partitions])

        self._loop.run_until_complete(start())

    def subscribe(self, topic: str, group: str) -> None:
        async def start() -> None:
            self._consumer = self._library.AIOKafkaConsumer(
                topic, bootstrap_servers=self._bootstrap, group_id=group, auto_offset_reset="earliest"
            )
            await self._consumer.start()

        self._loop.run_until_complete(start())

    def poll(self, seconds: float) -> int:
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
        count = 0
        for run in found.values():
            for record in run:
                count += len(record.value) > 0
        return count

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


PEERS: dict[str, type[Peer]] = {
    "kconsumer": Kconsumer,
    "confluent": Confluent,
    "confluent-tuned": ConfluentTuned,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
