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
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import KafkaError, StateError
from kconsumer.net.connection import Connection
from kconsumer.state.assignment import Assignment
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
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
def test_other_thread_at_each_response(engine: str, exchanges: Exchanges) -> None:
    """Another thread may commit, pause and read metrics while responses are handled."""
    ended = threading.Event()
    with FakeCluster() as cluster:
        records = Records(cluster)
        with reader(records, engine) as consumer:
            actions = Actions(consumer, records, 2, seeks=False)

            def run() -> None:
                while not ended.is_set():
                    actions.act()
                    time.sleep(0.001)

            thread = threading.Thread(target=run)
            thread.start()
            try:
                records.read(consumer, 60)
            finally:
                ended.set()
                thread.join()
        assert (True, True) == (actions.done > 5, exchanges.responses > 20)


@pytest.mark.parametrize("engine", ENGINES)
def test_rebalances(engine: str, exchanges: Exchanges) -> None:
    """A second member comes and goes while responses are handled. All records are returned."""
    found: set[tuple[int, int]] = set()

    def take(*members: Consumer) -> None:
        for member in members:
            found.update((record.partition, record.offset) for record in member.poll(0.05))

    with FakeCluster() as cluster:
        records = Records(cluster)
        with Consumer("t", **options(cluster, **ENGINES[engine], enable_auto_commit=True)) as consumer:
            for _ in range(2):
                with Consumer("t", **options(cluster, **ENGINES[engine], enable_auto_commit=True)) as other:
                    for number in range(20):
                        records.write(number)
                        take(consumer, other)
            deadline = time.monotonic() + LIMIT_S
            while len(found) < sum(records.written.values()):
                assert time.monotonic() < deadline
                take(consumer)
        assert exchanges.responses > 10


@pytest.mark.parametrize("engine", ENGINES)
def test_reauthentication(engine: str, exchanges: Exchanges) -> None:
    """Sessions are prolonged in time, although the cycle sends all fetches (KIP-368)."""
    sasl = {"mechanism": "PLAIN", "users": {"alice": "secret"}, "session_lifetime_ms": 1500}
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    with FakeCluster(sasl=sasl) as cluster:
        records = Records(cluster)
        with reader(records, engine, **login) as consumer:
            until = time.monotonic() + 4.0
            number = 0
            while time.monotonic() < until:
                records.write(number)
                records.take(consumer.poll(0.5))
                number += 1
                time.sleep(0.002)
            metrics = {name.name: value for name, value in consumer.metrics().items() if len(name.tags) == 1}
        assert 0 == metrics["failed-reauthentication-total"]
        assert metrics["successful-reauthentication-total"] >= 2
        assert (True, True) == (exchanges.responses > 100, metrics["connection-close-total"] <= 1)


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


@pytest.mark.parametrize("engine", ENGINES)
def test_tls(engine: str, exchanges: Exchanges, tmp_path: Path) -> None:
    """The cycle works over TLS."""
    authority = Authority()
    certificate, trusted = authority.issue().write(tmp_path / "broker.pem"), authority.write(tmp_path / "ca.pem")
    with FakeCluster(tls=certificate) as cluster:
        records = Records(cluster)
        more = {"security_protocol": "SSL", "ssl_cafile": trusted}
        with reader(records, engine, **more) as consumer:
            records.read(consumer)
        assert exchanges.requests >= 30


@pytest.mark.parametrize("engine", ENGINES)
def test_connection_ends_at_each_response(engine: str, exchanges: Exchanges) -> None:
    """Connections that end while a response is handled lose nothing."""
    with FakeCluster(brokers=2) as cluster:
        records = Records(cluster, replicas=2)
        with reader(records, engine) as consumer:
            rng = random.Random(3)
            for number in range(40):
                records.write(number)
                if rng.random() < 0.3:
                    cluster.disconnect(rng.randint(1, 2))
                if rng.random() < 0.2:
                    cluster.fail_next("Fetch", rng.choice(["FETCH_SESSION_ID_NOT_FOUND", "NOT_LEADER_OR_FOLLOWER"]))
                if rng.random() < 0.2:
                    cluster.move_leader("t", number % 3, rng.randint(1, 2))
                records.take(consumer.poll(0.5))
            records.read(consumer, 10)


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, KafkaError])
@pytest.mark.parametrize(("owner", "name"), [(Assignment, "move_to_end"), (Connection, "encode")])
@pytest.mark.parametrize("engine", ENGINES)
def test_exception_while_a_response_is_handled(
    engine: str, owner: Any, name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an exception in the middle, the consumer loses and repeats nothing, or each further call is refused."""
    with FakeCluster() as cluster:
        records = Records(cluster)
        with reader(records, engine) as consumer:
            called, failed = getattr(owner, name), []

            def fail(*args: Any) -> Any:
                if len(failed) < 3:
                    failed.append(name)
                    raise error("once")
                return called(*args)

            monkeypatch.setattr(owner, name, fail)
            deadline = time.monotonic() + LIMIT_S
            for round_ in range(40):
                if round_ > 4 and failed:
                    break
                if round_ % 5 == 0:
                    cluster.fail_next("Fetch", "FETCH_SESSION_ID_NOT_FOUND")  # then requests are encoded again
                records.write(round_, 1 + round_ % 3)
                while not records.complete:
                    assert time.monotonic() < deadline, consumer.partition_states()
                    try:
                        records.take(consumer.poll(0.1))
                    except StateError:
                        return
                    except (error, KafkaError):
                        continue
        assert failed
