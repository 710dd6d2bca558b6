"""While deserializers or interceptors run, the leaders of partitions move, or partitions are paused: every record is
returned, and none is returned twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import RecordDeserializationError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES, Stop
from support.harnesses.interruptions import one_of

pytestmark = pytest.mark.network_thread

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
LIMIT_S = 20
MAX_NOTICE_S = 0.5
"""How long user code waits until the consumer has noticed the change. With the classic engine it may not do so."""


class UserCode:
    """A value deserializer or an interceptor. When it first sees the value b"slow", something changes.

    `raises`: it raises an exception afterwards.
    """

    def __init__(self, cluster: FakeCluster, place: str, change: str, *, raises: bool = False) -> None:
        self._cluster, self._place, self._change, self._raises = cluster, place, change, raises
        self.consumer: Any = None
        self.acted = False

    def options(self) -> dict[str, Any]:
        """Returns the options of a consumer that uses this."""
        if self._place == "deserializer":
            return {"value_deserializer": self._deserialize}
        if self._place == "coroutine":
            return {"value_deserializer": self._await}
        return {"interceptors": [self]}

    def _deserialize(self, data: bytes) -> bytes:
        for _ in self._act(data):
            time.sleep(0.005)
        return data

    async def _await(self, data: bytes) -> bytes:
        for _ in self._act(data):
            await asyncio.sleep(0.005)
        return data

    def on_consume(self, records: Any) -> Any:
        for record in records:
            self._deserialize(record.value)
        return records

    def on_commit(self, offsets: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def _act(self, data: bytes) -> Iterator[None]:
        """Change something, and yield until the consumer has noticed it."""
        if data != b"slow" or self.acted:
            return
        self.acted = True
        if self._change == "pause":
            self.consumer.pause(*PARTITIONS)
        else:
            self._cluster.delay("OffsetForLeaderEpoch", 60)
            for tp in PARTITIONS:
                self._cluster.move_leader("t", tp.partition, 2)
            end = time.monotonic() + MAX_NOTICE_S
            while time.monotonic() < end and any(self._reads(tp) for tp in PARTITIONS):
                yield
        if self._raises:
            raise Stop

    def _reads(self, tp: TopicPartition) -> bool:
        return "validat" not in self.consumer.partition_states()[tp].state.value

    def undo(self) -> None:
        """Undo the change."""
        self._cluster.delay("OffsetForLeaderEpoch", 0)
        self._cluster.disconnect(1)  # drops the responses that are delayed
        self._cluster.disconnect(2)
        self.consumer.resume(*PARTITIONS)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster of two brokers. The first one is the leader of both partitions."""
    with FakeCluster(brokers=2, group_consumer_heartbeat_interval_ms=200) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=2)
        for tp in PARTITIONS:
            cluster.move_leader("t", tp.partition, 1)
        yield cluster


def options_of(cluster: FakeCluster) -> dict[str, Any]:
    """Returns the options of every consumer of this module."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "metadata_max_age_ms": 50,
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 10,
        "reconnect_backoff_ms": 10,
    }


Place = tuple[int, int, bytes]
"""The partition, the offset and the value of a record."""


class Reader:
    """Reads records of an AsyncConsumer. Those of a Consumer are read by the same steps, see `Blocking`."""

    def __init__(self, cluster: FakeCluster, consumer: Any, user: UserCode) -> None:
        self._cluster, self._consumer, self._user = cluster, consumer, user
        user.consumer = consumer
        self._ends = [0, 0]
        self.expected: list[Place] = []
        self.seen: list[Place] = []

    def write(self, partition: int, value: bytes) -> None:
        """Write a record."""
        self._cluster.produce("t", [value], partition=partition)
        self.expected.append((partition, self._ends[partition], value))
        self._ends[partition] += 1

    async def poll(self, timeout: float) -> None:
        """Poll once."""
        with suppress(Stop, RecordDeserializationError):
            self.seen += [(r.partition, r.offset, r.value) for r in await self._consumer.poll(timeout)]

    async def until(self, condition: Callable[[], object]) -> None:
        """Poll until a condition is true, or for a limited time."""
        end = time.monotonic() + LIMIT_S
        while not condition() and time.monotonic() < end:
            await self.poll(0.2)

    async def until_read(self) -> None:
        """Poll until all records were returned."""
        await self.until(lambda: len(self.seen) >= len(self.expected))

    async def run(self, *, both: bool) -> None:
        """Read records one by one, then those for which something changes, then one more."""
        for number in range(5):
            self.write(number % 2, b"ready")
            await self.until_read()
            await self.poll(0.05)
        if both:  # one response contains the records of both partitions
            self._consumer.pause(*PARTITIONS)
            await self.poll(0.1)
            self.write(0, b"first")
            self.write(1, b"slow")
            self._consumer.resume(*PARTITIONS)
        else:
            self.write(0, b"slow")
        await self.until(lambda: self._user.acted)
        self._user.undo()
        self.write(0, b"last")
        await self.until_read()


class Blocking:
    """A Consumer with the method `poll` of an AsyncConsumer."""

    def __init__(self, consumer: Consumer) -> None:
        self.pause, self.resume, self.partition_states = consumer.pause, consumer.resume, consumer.partition_states
        self._consumer = consumer

    async def poll(self, timeout: float) -> ConsumerRecords:
        """Poll without suspending the task."""
        return self._consumer.poll(timeout)


KINDS = list(product(("deserializer", "interceptor"), ("leader", "pause"), (False, True), (False, True)))
CASES = [(engine, *case) for number, case in enumerate(KINDS) for engine in one_of(list(ENGINES), number)]


@pytest.mark.parametrize(("engine", "place", "change", "raises", "both"), CASES)
def test_change_while_user_code_runs(
    cluster: FakeCluster, engine: str, place: str, change: str, raises: bool, both: bool
) -> None:
    """The records of a poll, of one partition or of two, are returned once, whatever happens inside user code."""
    user = UserCode(cluster, place, change, raises=raises)
    with Consumer("t", **options_of(cluster), **user.options(), **ENGINES[engine]) as consumer:
        reader = Reader(cluster, Blocking(consumer), user)
        with suppress(StopIteration):
            reader.run(both=both).send(None)  # it never suspends
    assert sorted(reader.expected) == sorted(reader.seen)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("place", ["deserializer", "coroutine", "interceptor"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_change_while_user_code_of_an_async_consumer_runs(
    cluster: FakeCluster, protocol: str, place: str, both: bool
) -> None:
    """The same with AsyncConsumer, whose deserializer may be a coroutine function."""
    user = UserCode(cluster, place, "leader")

    async def main() -> Reader:
        async with AsyncConsumer("t", **options_of(cluster), **user.options(), group_protocol=protocol) as consumer:
            reader = Reader(cluster, consumer, user)
            await reader.run(both=both)
            return reader

    reader = asyncio.run(main())
    assert sorted(reader.expected) == sorted(reader.seen)
