"""The load of a chaos run: records of all codecs, some of them in transactions, and what the brokers have stored."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException, Producer

from kconsumer import TopicPartition
from support.brokers.kafka import KafkaCluster
from support.chaos.judge import Commit
from support.oracles.confluent_reader import read_to_end

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# A record waits for its acknowledgement however long a broker is away.
DURABLE = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 0}
FLUSH_S = 120.0
TICK_S = 0.1
KEYS = 40
OFFSETS_TOPIC = "__consumer_offsets"


class Load:
    """Writes to all partitions until it is stopped. `ends`: the offset after the last one that was acknowledged."""

    def __init__(
        self,
        cluster: KafkaCluster,
        plain: str,
        transactional: str,
        partitions: dict[str, int],
        seed: int,
        burst: int = 20,
    ):
        self.ends: dict[TopicPartition, int] = {}
        self.wrong: list[str] = []
        self._plain, self._transactional, self._partitions = plain, transactional, partitions
        self._burst = burst  # the most records of one tick, and of one transaction
        self._random = random.Random(seed)
        self._producers = [cluster.producer({**DURABLE, "compression.type": codec}) for codec in CODECS]
        self._transactions: Producer = cluster.producer({"transactional.id": transactional, "linger.ms": 5})

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write while the block runs, then wait until everything is acknowledged."""
        done = threading.Event()
        threads = [threading.Thread(target=run, args=(done,)) for run in (self._write, self._write_transactions)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert [] == self.wrong[:10], "the load itself went wrong"

    def _produce(self, producer: Producer, topic: str, delivered: Callable[..., None]) -> None:
        value = self._random.randbytes(50) * self._random.choice([1, 2, 4, 4, 400])
        key = b"key-%d" % self._random.randrange(KEYS) if self._random.random() < 0.8 else None
        partition = self._random.randrange(self._partitions[topic])
        producer.produce(topic, value, key, partition, on_delivery=delivered)

    def _acknowledged(self, error: object, message: Any) -> None:
        if error is not None:
            self.wrong.append(str(error))
        elif message.offset() is not None:  # else acknowledged on a second try: the broker did not know it any more
            tp = TopicPartition(message.topic(), message.partition())
            self.ends[tp] = max(self.ends.get(tp, 0), message.offset() + 1)

    def _write(self, done: threading.Event) -> None:
        while not done.wait(TICK_S):
            for _ in range(self._random.randint(1, self._burst)):
                try:
                    self._produce(self._random.choice(self._producers), self._plain, self._acknowledged)
                except BufferError:
                    break
            for producer in self._producers:
                producer.poll(0)
        self.wrong += [f"{left} records without acknowledgement" for p in self._producers if (left := p.flush(FLUSH_S))]

    def _write_transactions(self, done: threading.Event) -> None:
        """Write one transaction after the other. Some are aborted, and some stay open for a while."""
        try:
            until_done(lambda: self._transactions.init_transactions(FLUSH_S))
            while not done.wait(TICK_S):
                self._transaction(done)
        except (KafkaException, TimeoutError) as error:
            self.wrong.append(f"transactions: {error}")

    def _transaction(self, done: threading.Event) -> None:
        self._transactions.begin_transaction()
        for _ in range(self._random.randint(1, self._burst)):
            self._produce(self._transactions, self._transactional, lambda *_: None)
        if self._random.random() < 0.05:
            done.wait(self._random.uniform(0.2, 2))
        try:
            if self._random.random() < 0.7:
                until_done(lambda: self._transactions.commit_transaction(FLUSH_S))
                return
            self._transactions.flush(FLUSH_S)  # aborted records must have reached the log
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        until_done(lambda: self._transactions.abort_transaction(FLUSH_S))


def until_done(call: Callable[[], object]) -> None:
    """Call again while the error says that a retry may help."""
    deadline = time.monotonic() + FLUSH_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def stored_records(
    cluster: KafkaCluster, partitions: dict[str, int], begin_ms: float
) -> dict[TopicPartition, list[tuple[float, int]]]:
    """Returns the time and the offset of each record that members must read. `begin_ms`: the wall-clock begin."""
    return {
        TopicPartition(topic, partition): [(row[2] - begin_ms, row[0]) for row in rows]
        for topic, count in partitions.items()
        for partition, rows in read_to_end(cluster, topic, count).items()
    }


def stored_commits(cluster: KafkaCluster, group: str, begin_ms: float) -> list[Commit]:
    """Returns all commits of a group, from the log of the coordinator."""
    found: list[Commit] = []
    partitions = len(cluster.metadata(OFFSETS_TOPIC).topics[OFFSETS_TOPIC].partitions)
    for rows in read_to_end(cluster, OFFSETS_TOPIC, partitions, isolation_level="read_uncommitted").values():
        for _, _, time_ms, key, value, _ in rows:
            at = time_ms - begin_ms
            if key is None or value is None or struct.unpack_from(">h", key)[0] > 1:
                continue  # the metadata of a group, or an offset that was deleted
            name, topic_at = plain_string(key, 2)
            topic, partition_at = plain_string(key, topic_at)
            if name != group:
                continue
            version, offset = struct.unpack_from(">hq", value)
            metadata = compact_string(value, 14) if version >= 4 else plain_string(value, 14 if version >= 3 else 10)[0]
            tp = TopicPartition(topic, struct.unpack_from(">i", key, partition_at)[0])
            found.append((at, tp, offset, metadata))
    return found


def compact_string(data: bytes, at: int) -> str:
    """Returns a string whose length is a varint that counts one more."""
    size = shift = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return data[at : at + size - 1].decode()


def plain_string(data: bytes, at: int) -> tuple[str, int]:
    """Returns a string of the protocol, and where it ends."""
    size = struct.unpack_from(">h", data, at)[0]
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size
