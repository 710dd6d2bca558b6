"""Consumers that are used at random return every record once and in order, and commit what was returned.

A seed decides what is written, called and changed, which signals arrive, and which tasks are cancelled. A second thread
uses the consumer meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import CommitFailedError, RebalanceInProgressError, StateError, WakeupError
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.harnesses.cancellation import cancel_at
from support.harnesses.engines import ENGINES, Stop
from support.harnesses.interruptions import arrival, at_point, handler

pytestmark = pytest.mark.network_thread

BROKERS, PARTITIONS = 2, 3
ALL = [TopicPartition("t", number) for number in range(PARTITIONS)]
STEPS = 120
LIMIT_S = 30
Offsets = dict[TopicPartition, int]


def committed(cluster: FakeCluster) -> Offsets:
    """Returns the committed offsets of the group."""
    return {tp: known.offset for tp, known in cluster.committed("g").items()}


class World:
    """A cluster, what was written to it, and which records must be returned next."""

    def __init__(self, cluster: FakeCluster, seed: int) -> None:
        self.cluster, self.rng = cluster, random.Random(seed)
        self.written: Offsets = dict.fromkeys(ALL, 0)
        self.following: Offsets = dict.fromkeys(ALL, 0)
        self.highest: Offsets = dict.fromkeys(ALL, 0)  # the offsets after all records that were ever returned
        self.paused: set[TopicPartition] = set()
        self.trace: list[Any] = []  # what was done, to be shown by an assertion

    def options(self) -> dict[str, Any]:
        """Returns the options of the consumer."""
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "max_poll_records": self.rng.choice([1, 2, 500]),
            "fetch_max_wait_ms": self.rng.choice([20, 100]),
            "metadata_max_age_ms": self.rng.choice([50, 300_000]),
            "value_deserializer": self.rng.choice([None, bytes]),
            "retry_backoff_ms": 10,
            "reconnect_backoff_ms": 10,
        }

    def write(self) -> None:
        """Write a few records to one partition."""
        tp, count = self.rng.choice(ALL), self.rng.choice([1] * 8 + [2, 30])
        self.cluster.produce("t", [b"x" * self.rng.randrange(100)] * count, partition=tp.partition)
        self.written[tp] += count
        self.trace.append(("write", tp.partition, count))

    def take(self, records: Any) -> None:
        """Check that these records are the next ones of their partitions, in which none is paused."""
        for record in records:
            tp = record.topic_partition
            assert (self.following[tp], False) == (record.offset, tp in self.paused), self.trace[-20:]
            self.following[tp] += 1
            self.highest[tp] = max(self.highest[tp], self.following[tp])
        self.trace.append(("read", [(record.partition, record.offset) for record in records]))

    def check_commits(self) -> None:
        """Check that no record is committed that was not returned."""
        offsets = committed(self.cluster)
        assert all(offset <= self.highest[tp] for tp, offset in offsets.items()), (offsets, self.highest)

    def change(self, consumer: Any) -> None:
        """Change something in the cluster or the consumer, without waiting."""
        tp, name = self.rng.choice(ALL), self.rng.choice(["move", "disconnect", "fail", "pause", "resume", "seek"])
        self.trace.append((name, tp.partition))
        if name == "move":
            self.cluster.move_leader("t", tp.partition, self.rng.randint(1, BROKERS))
        elif name == "disconnect":
            self.cluster.disconnect(self.rng.randint(1, BROKERS))
        elif name == "fail":
            self.cluster.fail_next("Fetch", self.rng.choice(["NOT_LEADER_OR_FOLLOWER", "FETCH_SESSION_ID_NOT_FOUND"]))
        elif name == "pause":
            consumer.pause(tp)
            self.paused.add(tp)
        elif name == "resume":
            self.resume(consumer)
        elif name == "seek" and tp in consumer.assignment():
            target = self.rng.randint(0, self.following[tp])
            consumer.seek(tp, target)
            self.following[tp] = target

    def resume(self, consumer: Any) -> None:
        """Resume all partitions."""
        consumer.resume(*ALL)
        self.paused.clear()

    @property
    def unread(self) -> bool:
        """True if some records were not returned yet."""
        return self.following != self.written


@contextmanager
def new_cluster(**options: Any) -> Iterator[FakeCluster]:
    """A cluster of two brokers, with these further options."""
    with FakeCluster(brokers=BROKERS, group_consumer_heartbeat_interval_ms=100, **options) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=BROKERS)
        yield cluster


@contextmanager
def another_thread(consumer: Consumer) -> Iterator[None]:
    """Use a consumer in another thread while the block runs, with methods that any thread may call."""
    ended = threading.Event()

    def use() -> None:
        rng = random.Random(0)
        while not ended.wait(rng.choice([0.001, 0.01])):
            with suppress(StateError):
                rng.choice([consumer.metrics, consumer.commit_async, consumer.partition_states, consumer.paused])()

    thread = threading.Thread(target=use)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def act_in_handler(world: World, consumer: Consumer) -> None:
    """Use the consumer in a signal handler."""
    name = world.rng.choice(["stop", "stop", "commit", "wakeup", "pause"])
    world.trace.append(("handler", name))
    if name == "commit":
        with suppress(StateError, CommitFailedError, RebalanceInProgressError):
            consumer.commit()
        world.check_commits()
    elif name == "wakeup":
        consumer.wakeup()
    elif name == "pause":
        consumer.pause(*ALL)
        consumer.resume(*(tp for tp in ALL if tp not in world.paused))
    else:
        raise Stop


def read(world: World, consumer: Consumer) -> None:
    """Poll once, in which a signal may arrive at any point."""
    point = world.rng.randrange(1, 300) if world.rng.random() < 0.5 else 0
    timeout = world.rng.choice([0, 0.01, 0.05])
    with suppress(Stop, WakeupError):
        world.take(at_point(lambda: consumer.poll(timeout), point, arrival(signal.SIGUSR1))[1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("engine", ENGINES)
def test_random_use(engine: str, seed: int) -> None:
    """All records are returned in order, and what is committed was returned, whatever happens meanwhile."""
    with new_cluster() as cluster:
        use(World(cluster, seed), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_random_use_over_tls(tmp_path: Path, engine: str) -> None:
    """The same with encrypted connections."""
    authority = Authority()
    trusted = authority.write(tmp_path / "ca.pem")
    with new_cluster(tls=authority.issue().write(tmp_path / "broker.pem")) as cluster:
        use(World(cluster, 0), engine, security_protocol="SSL", ssl_cafile=trusted)


def use(world: World, engine: str, **options: Any) -> None:
    """Use a consumer with these further options at random. Then read all records, and commit."""
    cluster = world.cluster
    with (
        Consumer("t", **world.options(), **ENGINES[engine], **options) as consumer,
        another_thread(consumer),
        handler(signal.SIGUSR1, lambda *_: act_in_handler(world, consumer)),
    ):
        while len(consumer.assignment()) < PARTITIONS:
            consumer.poll(0.1)
        steps: list[Callable[[], None]] = [
            *[world.write] * 6,
            *[lambda: read(world, consumer)] * 12,
            lambda: world.change(consumer),
            lambda: repeat(consumer.commit),
            world.check_commits,
        ]
        for _ in range(STEPS):
            world.rng.choice(steps)()
        world.resume(consumer)
        end = time.monotonic() + LIMIT_S
        while world.unread:
            assert time.monotonic() < end, (world.following, world.written, consumer.partition_states())
            with suppress(WakeupError):
                world.take(consumer.poll(0.2))
        assert world.written == {tp: repeat(lambda tp=tp: consumer.position(tp)) for tp in ALL}
        while world.written != committed(cluster):  # positions that are being validated are left out
            assert time.monotonic() < end, (world.written, committed(cluster))
            repeat(consumer.commit)


def repeat(call: Callable[[], Any]) -> Any:
    """Returns the result of a call, which is repeated if a wakeup was pending."""
    try:
        return call()
    except WakeupError:
        return call()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_random_use_of_an_async_consumer(protocol: str, seed: int) -> None:
    """The same for an AsyncConsumer whose polls are cancelled at random, while another task commits."""
    with new_cluster() as cluster:
        asyncio.run(use_async(World(cluster, seed), protocol))


async def use_async(world: World, protocol: str) -> None:
    """Use an AsyncConsumer at random. Then read all records, and commit."""
    cluster = world.cluster

    async def commit_often(consumer: AsyncConsumer) -> None:
        while True:
            await asyncio.sleep(world.rng.choice([0.001, 0.02]))
            with suppress(CommitFailedError, RebalanceInProgressError):
                await consumer.commit()
            world.check_commits()

    async def poll(consumer: AsyncConsumer, timeout: float) -> None:
        world.take(await consumer.poll(timeout))  # at once: the other task commits these records

    async def step(consumer: AsyncConsumer) -> None:
        kind = world.rng.random()
        if kind < 0.3:
            world.write()
        elif kind < 0.95:
            point = world.rng.choice([1, 2, 3, 9, 99])
            await cancel_at(point, poll(consumer, world.rng.choice([0, 0.01, 0.05])))
        else:
            world.change(consumer)

    async with AsyncConsumer("t", **world.options(), group_protocol=protocol) as consumer:
        while len(consumer.assignment()) < PARTITIONS:
            await consumer.poll(0.1)
        committing = asyncio.create_task(commit_often(consumer))
        for _ in range(STEPS):
            await step(consumer)
        committing.cancel()
        await asyncio.wait([committing])
        assert committing.cancelled(), committing.exception()
        world.resume(consumer)
        end = time.monotonic() + LIMIT_S
        while world.unread:
            assert time.monotonic() < end, (world.following, world.written, consumer.partition_states())
            world.take(await consumer.poll(0.2))
        assert world.written == {tp: await consumer.position(tp) for tp in ALL}
        while world.written != committed(cluster):
            assert time.monotonic() < end, (world.written, committed(cluster))
            await consumer.commit()
