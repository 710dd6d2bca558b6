"""The fetch cycle in each engine: what may happen at the moment at which it handles a response.

Each test checks that the cycle was used, and that records are returned once and in order.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.net.connection import Connection
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.interruptions import handler

pytestmark = pytest.mark.network_thread

ALL = [TopicPartition("t", number) for number in range(3)]
LIMIT_S = 30


class Exchanges:
    """Counts the responses that the cycle has handled, and the requests that it has sent. Calls hooks meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.responses = self.requests = 0
        self.before: Callable[[], object] = bool
        self.after: Callable[[], object] = bool
        original = Connection._exchanged

        def exchanged(connection: Connection, entry: Any, following: bytes, now: float) -> None:
            self.responses += 1
            self.requests += bool(following)
            self.before()
            original(connection, entry, following, now)
            self.after()

        monkeypatch.setattr(Connection, "_exchanged", exchanged)


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Exchanges:
    """The exchanges of all consumers of the test."""
    return Exchanges(monkeypatch)


class Records:
    """Produces records, and checks those that are returned."""

    def __init__(self, cluster: FakeCluster, *, replicas: int = 1, value: bytes = b"v") -> None:
        self.cluster, self.value = cluster, value
        cluster.create_topic("t", partitions=len(ALL), replication_factor=replicas)
        self.written = dict.fromkeys(ALL, 0)
        self.following = {tp: {0} for tp in ALL}  # the offsets that may come next; after a seek there are two

    def write(self, number: int, count: int = 1) -> None:
        """Append a batch to one partition."""
        self.cluster.produce("t", [self.value] * count, partition=number % len(ALL))
        self.written[ALL[number % len(ALL)]] += count

    def take(self, records: Any) -> int:
        """Check that these records are the next ones. Returns their number."""
        for record in records:
            tp = record.topic_partition
            assert record.offset in self.following[tp]
            self.following[tp] = {record.offset + 1}
        return len(records)

    @property
    def complete(self) -> bool:
        """Returns whether all records were returned."""
        return all({end} == self.following[tp] for tp, end in self.written.items())

    def read(self, consumer: Any, rounds: int = 40, count: int = 3) -> None:
        """Write and read, record by record and in batches, until everything was read."""
        deadline = time.monotonic() + LIMIT_S
        for number in range(rounds):
            self.write(number, 1 + number % count)
            self.take(consumer.poll(0.5))
        while not self.complete:
            assert time.monotonic() < deadline, (self.following, self.written, consumer.partition_states())
            self.take(consumer.poll(0.1))

    async def read_async(self, consumer: AsyncConsumer, rounds: int = 40) -> None:
        """Do the same with an AsyncConsumer."""
        deadline = time.monotonic() + LIMIT_S
        for number in range(rounds):
            self.write(number, 1 + number % 3)
            self.take(await consumer.poll(0.5))
        while not self.complete:
            assert time.monotonic() < deadline, (self.following, self.written, consumer.partition_states())
            self.take(await consumer.poll(0.1))


def options(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    """Returns the options of a consumer."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "retry_backoff_ms": 10,
        "reconnect_backoff_ms": 10,
        **more,
    }


@contextmanager
def reader(records: Records, engine: str, **more: Any) -> Iterator[Consumer]:
    """Yields a consumer that has its assignment."""
    with Consumer("t", **options(records.cluster, **ENGINES[engine], **more)) as consumer:
        records.write(0)
        deadline = time.monotonic() + LIMIT_S
        while not records.complete:
            assert time.monotonic() < deadline
            records.take(consumer.poll(0.1))
        yield consumer


@pytest.mark.parametrize("engine", ENGINES)
def test_cycle_is_used(engine: str, exchanges: Exchanges) -> None:
    """Each engine lets the cycle handle nearly all responses, and send nearly all requests."""
    with FakeCluster() as cluster:
        records = Records(cluster)
        with reader(records, engine) as consumer:
            exchanges.responses = exchanges.requests = 0
            records.read(consumer)
        assert exchanges.responses >= 30
        assert exchanges.requests >= 30


def test_cycle_is_used_by_async_consumers(exchanges: Exchanges) -> None:
    """An AsyncConsumer lets the cycle handle nearly all responses, and send nearly all requests."""

    async def main(records: Records) -> None:
        async with AsyncConsumer("t", **options(records.cluster)) as consumer:
            await records.read_async(consumer)

    with FakeCluster() as cluster:
        asyncio.run(main(Records(cluster)))
    assert exchanges.responses >= 25
    assert exchanges.requests >= 25


class Actions:
    """What a handler or another thread does with a consumer, at random."""

    def __init__(self, consumer: Any, records: Records, seed: int, *, seeks: bool) -> None:
        self.consumer, self.records, self.rng = consumer, records, random.Random(seed)
        self.names = ["commit", "pause", "look", *(["seek"] if seeks else [])]
        self.done = 0

    def act(self, *_: object) -> None:
        """Do something."""
        consumer, tp, name = self.consumer, self.rng.choice(ALL), self.rng.choice(self.names)
        if name == "commit":
            consumer.commit_async()
        elif name == "pause":
            consumer.pause(tp)
            consumer.resume(tp)
        elif name == "look":
            consumer.metrics()
            consumer.partition_states()
        elif tp in consumer.assignment():
            following = self.records.following[tp]
            target = self.rng.randint(max(0, min(following) - 2), max(following))
            consumer.seek(tp, target)
            following.add(target)
        self.done += 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("engine", ENGINES)
def test_signal_at_each_response(engine: str, when: str, exchanges: Exchanges) -> None:
    """Handlers of signals that arrive while a response is handled may commit, pause and seek."""
    with FakeCluster() as cluster:
        records = Records(cluster)
        with reader(records, engine, max_poll_records=2) as consumer:
            actions = Actions(consumer, records, 1, seeks=True)
            main = threading.main_thread().ident or 0
            with handler(signal.SIGUSR1, actions.act):
                setattr(exchanges, when, lambda: signal.pthread_kill(main, signal.SIGUSR1))
                for number in range(40):
                    records.write(number)
                    records.take(consumer.poll(0.5))
                setattr(exchanges, when, bool)
            records.read(consumer, 10)
        assert actions.done >= 10


@pytest.mark.parametrize("engine", ENGINES)
def test_throttling(engine: str, exchanges: Exchanges) -> None:
    """While a broker throttles the consumer, the cycle sends nothing, and nothing is lost (KIP-219)."""
    with FakeCluster() as cluster:
        cluster.set_quota("slow", consumer_byte_rate=14_000)
        records = Records(cluster, value=bytes(500))
        with reader(records, engine, client_id="slow") as consumer:
            records.read(consumer, 60, 9)
            metrics = {name.name: value for name, value in consumer.metrics().items()}
        assert (True, True) == (metrics["fetch-throttle-time-max"] > 0, exchanges.responses > 3)
