"""Adapters: how records are written, and offsets committed, with the producers of other clients."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kconsumer._core.lock import Clock, Timer
from kconsumer.errors import ConfigError, TimeoutError
from kconsumer.types import GroupMetadata, OffsetAndMetadata, TopicPartition

POLL_S = 0.05  # how often a producer of confluent-kafka is polled until it has delivered a record
Header = tuple[str, bytes | None]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Message(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp: int | None  # ms; None: the time at which it is written


class Producer(Protocol):
    """Writes records. With `asynchronous`, the results of its methods must be awaited."""

    asynchronous: bool

    def write(self, message: Message) -> Awaitable[None] | None:
        """Write a record, and wait until the brokers have acknowledged it."""

    def is_transactional(self) -> bool:
        """Returns True if the producer has a transactional id. Raises ConfigError if it is not initialized."""

    def write_in_transaction(
        self, messages: Sequence[Message], offsets: Offsets, group: GroupMetadata
    ) -> Awaitable[None] | None:
        """Write records and commit offsets in one transaction."""

    def abort(self) -> Awaitable[None] | None:
        """Abort the transaction."""


def adapt(producer: Any, timeout_s: float, user: str) -> Producer:
    """Returns the adapter of a producer. Raises ConfigError, in which `user` is named, for other objects."""
    for method, adapter in (
        ("send_and_wait", AiokafkaProducer),
        ("produce", ConfluentProducer),
        ("send", KafkaPythonProducer),
    ):
        if hasattr(producer, method):
            return adapter(producer, timeout_s)
    raise ConfigError(f"{user} takes a producer of confluent-kafka, kafka-python or aiokafka: {producer!r}")


class ConfluentProducer:
    """A producer of confluent-kafka."""

    asynchronous = False

    def __init__(self, producer: Any, timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s

    def write(self, message: Message) -> None:
        """Write a record, and call the callbacks of the producer until this record is delivered."""
        results: list[Any] = []
        self._produce(message, on_delivery=lambda error, _: results.append(error))
        timer = Timer(Clock(), 1000 * self._timeout_s)
        while not results and not timer.expired:  # the polls of other threads end early, too, when these write
            self._producer.poll(POLL_S)
        if not results:
            raise TimeoutError(f"a dead letter was not delivered to {message.topic} within {self._timeout_s} s")
        if results[0] is not None:
            raise RuntimeError(f"a dead letter was not delivered to {message.topic}: {results[0]}")

    def _produce(self, message: Message, **options: Any) -> None:
        topic, key, value, headers, timestamp = message
        self._producer.produce(topic, value=value, key=key, headers=headers, timestamp=timestamp or 0, **options)

    def is_transactional(self) -> bool:
        """Begin a transaction and abort it, which needs no request while it is empty."""
        if not hasattr(self._producer, "begin_transaction"):
            return False
        try:
            self._producer.begin_transaction()
        except Exception as error:
            if error.args and getattr(error.args[0], "name", str)() == "_NOT_CONFIGURED":
                return False
            raise ConfigError(
                f"call init_transactions() of the producer first, and commit or abort: {error}"
            ) from error
        self._producer.abort_transaction()
        return True

    def write_in_transaction(self, messages: Sequence[Message], offsets: Offsets, group: GroupMetadata) -> None:
        """Write records and commit offsets in one transaction."""
        from confluent_kafka import TopicPartition  # imported when used

        self._producer.begin_transaction()
        for message in messages:
            self._produce(message)
        rows = [TopicPartition(*tp, at.offset, metadata=at.metadata) for tp, at in offsets.items()]
        self._producer.send_offsets_to_transaction(rows, group, self._timeout_s)
        self._producer.commit_transaction(self._timeout_s)

    def abort(self) -> None:
        """Abort the transaction."""
        self._producer.abort_transaction(self._timeout_s)


class KafkaPythonProducer:
    """A producer of kafka-python."""

    asynchronous = False

    def __init__(self, producer: Any, timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s

    def write(self, message: Message) -> None:
        """Write a record, and wait."""
        topic, key, value, headers, timestamp = message
        filled = [(name, data or b"") for name, data in headers]  # it writes no headers without values
        self._producer.send(topic, value, key, headers=filled, timestamp_ms=timestamp).get(self._timeout_s)

    def is_transactional(self) -> bool:
        """Returns False. Raises ConfigError for a transactional producer, whose calls wait without a limit."""
        if getattr(self._producer, "config", {}).get("transactional_id") is not None:
            raise ConfigError(
                "the transactional producer of kafka-python may wait for ever: use that of confluent-kafka or aiokafka"
            )
        return False

    def write_in_transaction(self, messages: Sequence[Message], offsets: Offsets, group: GroupMetadata) -> None:
        """Do nothing: `is_transactional` is False."""

    def abort(self) -> None:
        """Do nothing."""


class AiokafkaProducer:
    """A producer of aiokafka, which is used in the event loop in which it was started."""

    asynchronous = True

    def __init__(self, producer: Any, timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s

    async def write(self, message: Message) -> None:
        """Write a record, and wait."""
        import asyncio  # imported when used

        async with asyncio.timeout(self._timeout_s):
            await (await self._send(message))

    async def _send(self, message: Message) -> Any:
        topic, key, value, headers, timestamp = message
        return await self._producer.send(topic, value, key, timestamp_ms=timestamp, headers=headers)

    def is_transactional(self) -> bool:
        """Returns True if the producer has a transactional id, which none of its public attributes says."""
        return getattr(self._producer, "_txn_manager", None) is not None and bool(
            self._producer._txn_manager.transactional_id
        )

    async def write_in_transaction(self, messages: Sequence[Message], offsets: Offsets, group: GroupMetadata) -> None:
        """Write records and commit offsets in one transaction. This producer takes no more than the id of the group."""
        import asyncio  # imported when used

        from aiokafka.structs import OffsetAndMetadata, TopicPartition

        async with asyncio.timeout(self._timeout_s):
            await self._producer.begin_transaction()
            for sent in [await self._send(message) for message in messages]:
                await sent
            rows = {TopicPartition(*tp): OffsetAndMetadata(at.offset, at.metadata) for tp, at in offsets.items()}
            await self._producer.send_offsets_to_transaction(rows, group.group_id)
            await self._producer.commit_transaction()

    async def abort(self) -> None:
        """Abort the transaction."""
        import asyncio  # imported when used

        async with asyncio.timeout(self._timeout_s):
            await self._producer.abort_transaction()
