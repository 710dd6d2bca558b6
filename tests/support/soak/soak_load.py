"""The load of a soak, and the records that brokers acknowledged, with which the readers' records are compared.

There are two topics. In the plain one the numbers of a partition's records are their offsets, because one idempotent
producer at a time writes a partition, and no record fails. In the transactional one each number is committed once;
numbers of aborted records are written again.
"""

from __future__ import annotations

import random
import struct
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from support.brokers.kafka import KafkaCluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# A record waits for its acknowledgement however long a broker is away.
DURABLE = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 0}
FLUSH_S = 120
TICK_S = 0.02
KEY = struct.Struct(">qB")  # number, and whether its transaction will be aborted
FILLER = bytes(range(256)) * 512


def key_of(number: int, *, aborted: bool = False) -> bytes:
    """Returns the key of a record."""
    return KEY.pack(number, aborted)


def value_of(partition: int, number: int) -> bytes:
    """Returns the value of a number: mostly about 100 bytes, sometimes up to 100 kB."""
    draw = zlib.crc32(b"%d-%d" % (partition, number))
    size = 20 + draw % 200 if draw % 500 else draw % 100_000
    return FILLER[draw % 256 :][:size]


class PlainLoad:
    """Records of a topic whose offsets are their numbers, from one producer per codec."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, partitions: int, per_second: int, seed: int, tick_s: float = TICK_S
    ) -> None:
        """Make a load of at least one record per partition and tick."""
        self.topic = topic
        self.acknowledged = [0] * partitions  # per partition: how many, which is the offset after the last
        self.wrong: list[str] = []
        self._sent = [0] * partitions
        self._tick_s = tick_s
        self._per_tick = max(1, round(per_second * tick_s))
        self._random = random.Random(seed)
        self._producers = [cluster.producer({**DURABLE, "compression.type": codec}) for codec in CODECS]
        self._chosen = [self._producers[p % len(CODECS)] for p in range(partitions)]

    def _delivered(self, error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        expected = self.acknowledged[partition]
        # No offset: acknowledged on a second try, when the broker no longer knew the offset of the first.
        if error is not None or offset not in (expected, None):
            self.wrong.append(f"{self.topic}-{partition}: record {expected} came to offset {offset} ({error})")
        self.acknowledged[partition] += 1

    def run(self, done: threading.Event) -> None:
        """Write until it is stopped, then wait for every acknowledgement."""
        try:
            self._run(done)
        except (KafkaException, AssertionError) as error:
            self.wrong.append(f"{self.topic}: {error!r}")

    def _run(self, done: threading.Event) -> None:
        while not done.wait(self._tick_s):
            burst = 500 if self._random.random() < 0.001 else 1
            for partition in range(len(self._sent)):
                self._maybe_change_codec(partition)
                for _ in range(burst * self._per_tick // len(self._sent) or 1):
                    self._write(partition)
            self._serve(0)
        deadline = time.monotonic() + FLUSH_S
        while self.acknowledged != self._sent:
            self._serve(0.1)
            if time.monotonic() > deadline:
                self.wrong.append(f"acknowledged {self.acknowledged} of {self._sent} records after {FLUSH_S} s")
                return

    def _write(self, partition: int) -> None:
        number = self._sent[partition]
        while True:
            try:
                self._chosen[partition].produce(
                    self.topic,
                    value_of(partition, number),
                    key_of(number),
                    partition,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                self._serve(0.1)
        self._sent[partition] += 1

    def _serve(self, timeout_s: float) -> None:
        for producer in self._producers:
            producer.poll(timeout_s / len(self._producers))

    def _maybe_change_codec(self, partition: int) -> None:
        """Let another producer continue, when nothing of this one is in flight that it could overtake."""
        if self.acknowledged[partition] == self._sent[partition] and self._random.random() < 0.01:
            self._chosen[partition] = self._random.choice(self._producers)


class TransactionalLoad:
    """Transactions, some aborted; `committed[p][n]` is the offset of number n of partition p."""

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int, seed: int) -> None:
        self.topic = topic
        self.committed = [array("q") for _ in range(partitions)]
        self.transactions = 0
        self.aborted = 0
        self.wrong: list[str] = []
        self._random = random.Random(seed)
        config = {"transactional.id": topic, "compression.type": "lz4", "linger.ms": 5}
        self._producer: Producer = cluster.producer(config)

    def run(self, done: threading.Event) -> None:
        """Write one transaction after another until it is stopped."""
        try:
            self._until_done(lambda: self._producer.init_transactions(FLUSH_S))
            while not done.wait(TICK_S):
                self._transaction(done, abort=self._random.random() < 0.3)
        except (KafkaException, TimeoutError) as error:
            self.wrong.append(f"transaction {self.transactions}: {error}")

    def _transaction(self, done: threading.Event, *, abort: bool) -> None:
        written: list[tuple[int, int]] = []

        def delivered(error: object, message: Any) -> None:
            if error is None:
                offset = message.offset()
                written.append((message.partition(), -1 if offset is None else offset))

        self.transactions += 1
        self._producer.begin_transaction()
        numbers = list(map(len, self.committed))
        for _ in range(self._random.randint(1, 80)):
            partition = self._random.randrange(len(numbers))
            number = numbers[partition]
            numbers[partition] += 1
            self._producer.produce(
                self.topic,
                value_of(partition, number),
                key_of(number, aborted=abort),
                partition,
                on_delivery=delivered,
            )
        if self._random.random() < 0.05:
            done.wait(self._random.uniform(0.2, 2))  # an open transaction, which read_committed has to wait for
        try:
            if not abort:
                self._until_done(lambda: self._producer.commit_transaction(FLUSH_S))
                for partition, offset in written:
                    self.committed[partition].append(offset)
                return
            self._producer.flush(FLUSH_S)  # aborted records must have reached the log to be worth it
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self.aborted += 1
        self._until_done(lambda: self._producer.abort_transaction(FLUSH_S))

    @staticmethod
    def _until_done(call: Callable[[], object]) -> None:
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


@contextmanager
def running(*loads: PlainLoad | TransactionalLoad) -> Iterator[None]:
    """Write while the block runs, then wait until everything is acknowledged."""
    done = threading.Event()
    threads = [threading.Thread(target=load.run, args=(done,), name=load.topic) for load in loads]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    wrong = [line for load in loads for line in load.wrong]
    assert [] == wrong[:10], f"the load itself went wrong: {wrong[:10]}"
