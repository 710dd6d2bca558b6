"""The records of a random model run: their producers, and which of them consumers may see."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterable, Sequence
from functools import partial

from confluent_kafka import Message, Producer

from kconsumer import TopicPartition
from support.brokers.kafka_admin import Kafka
from support.model.group_model_events import Partition

PAUSE_S = 0.1
POISON, POISONED = b"poison", 0.005  # a value that no member can deserialize, and how many records have it
TRANSACTION_TIMEOUT_S = 30


class Load:
    """Writes to all partitions; to those of one topic in transactions, some of which are aborted.

    `aborted_too`: aborted records count as written, as consumers see them that read uncommitted.
    """

    def __init__(
        self,
        kafka: Kafka,
        partitions: Iterable[TopicPartition],
        transactional: str,
        drawn: random.Random,
        *,
        aborted_too: bool,
    ) -> None:
        self._written: dict[TopicPartition, list[int]] = {tp: [] for tp in partitions}
        self._plain = [tp for tp in self._written if tp.topic != transactional]
        self._transactional = [tp for tp in self._written if tp.topic == transactional]
        self._grown: list[TopicPartition] = []
        self._kafka, self._random, self._aborted_too = kafka, drawn, aborted_too

    def grow(self, partitions: Iterable[TopicPartition]) -> None:
        """Write to these existing partitions, too."""
        self._grown += partitions

    def written(self) -> dict[Partition, list[int]]:
        """Returns the offsets of the records that consumers may see, of each partition that has any."""
        return {tp: sorted(offsets) for tp, offsets in self._written.items() if offsets}

    def write(self, ended: threading.Event) -> None:
        """Write until the end."""
        idempotent = self._kafka.producer({"enable.idempotence": True})
        transactional = self._kafka.producer({"transactional.id": uuid.uuid4().hex})
        transactional.init_transactions(TRANSACTION_TIMEOUT_S)
        while not ended.wait(self._random.uniform(0.5, 1.5) * PAUSE_S):
            if self._grown:
                self._written |= {tp: [] for tp in self._grown}
                self._plain += self._grown
                self._grown = []
                idempotent = self._kafka.producer({"enable.idempotence": True})  # it knows the new partitions
            self._send(idempotent, self._plain, self._written)
            if self._random.random() < 0.5:
                self._transaction(transactional)

    def _send(
        self, producer: Producer, partitions: Sequence[TopicPartition], written: dict[TopicPartition, list[int]]
    ) -> None:
        for tp in partitions:
            for _ in range(self._random.choice([0, 1, 1, 2, 3, 10])):
                value = POISON if self._random.random() < POISONED else b"x" * 20
                producer.produce(tp.topic, value, partition=tp.partition, on_delivery=partial(_delivered, tp, written))
        producer.flush(TRANSACTION_TIMEOUT_S)

    def _transaction(self, producer: Producer) -> None:
        written: dict[TopicPartition, list[int]] = {tp: [] for tp in self._transactional}
        producer.begin_transaction()
        self._send(producer, self._transactional, written)
        commits = self._random.random() < 0.7
        if commits:
            producer.commit_transaction(TRANSACTION_TIMEOUT_S)
        else:
            producer.abort_transaction(TRANSACTION_TIMEOUT_S)
        if commits or self._aborted_too:
            for tp, offsets in written.items():
                self._written[tp] += offsets


def _delivered(tp: TopicPartition, written: dict[TopicPartition, list[int]], error: object, message: Message) -> None:
    offset = message.offset()
    assert error is None, f"{tp}: {error}"
    assert offset is not None
    written[tp].append(offset)
