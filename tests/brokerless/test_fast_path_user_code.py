"""Deserializers and interceptors have the same results with and without the fast path of fetching."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.harnesses.fast_path import fast_path_use

from kconsumer import Consumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import RecordDeserializationError, StateError
from kconsumer.testing import FakeCluster

TOPIC = "t"
ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}
LIMIT = 200
ATTEMPTS = (
    5  # if a manager is due between the poll that arms the fast path and the response, the general path handles it
)


class Recorder:
    """A value deserializer, and an interceptor. `act` is called for each value, and its results are in `log`."""

    def __init__(self) -> None:
        self.act: Callable[[bytes], object] = lambda value: value
        self.consumer: Any = None
        self.log: list[Any] = []

    def __call__(self, value: bytes) -> object:
        return self.act(value)

    def on_consume(self, records: Any) -> Any:
        self.log.append([record.value for record in records])
        return records


class Reader:
    """A consumer that has read all records, and whose next poll uses the fast path."""

    def __init__(self, cluster: FakeCluster, consumer: Consumer, user: Recorder, *, on: bool) -> None:
        self.cluster, self.consumer, self.user, self.on = cluster, consumer, user, on
        user.consumer = consumer

    def settle(self) -> None:
        """Poll until the fast path is armed, unless it is off."""
        control = self.consumer._engine._fast_path
        assert control is not None
        for _ in range(LIMIT):
            assert not self.consumer.poll(0.02)
            if control.path.armed or not self.on:
                return
        raise AssertionError(control.state)

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Write records in one batch."""
        self.cluster.produce(TOPIC, list(values), partition=partition)

    def read(self) -> list[tuple[int, int, object]]:
        """Returns partition, offset and value of the records of the next poll that is not empty."""
        for _ in range(LIMIT):
            records = self.consumer.poll(0.05)
            if records:
                return [(record.partition, record.offset, record.value) for record in records]
        raise AssertionError("no records")

    def read_all(self, count: int) -> list[tuple[int, int, object]]:
        """Returns the records of the next polls, ordered by partition and offset."""
        found: list[tuple[int, int, object]] = []
        while len(found) < count:
            found += self.read()
        return sorted(found, key=lambda record: record[:2])

    def error(self) -> tuple[TopicPartition, int, str]:
        """Returns what the next poll raises that returns no empty batch."""
        with pytest.raises(RecordDeserializationError) as caught:
            self.read()
        return caught.value.topic_partition, caught.value.offset, repr(caught.value.__cause__)

    def offsets(self) -> list[Any]:
        """Returns the positions, and the offsets that a commit commits."""
        self.consumer.commit()
        committed = self.consumer.committed([ZERO, ONE])
        return [self.consumer.position(ZERO), self.consumer.position(ONE), committed]


def fail(value: bytes) -> bytes:
    """Raises ValueError for the value b"bad"."""
    if value == b"bad":
        raise ValueError("bad")
    return value


def skip_a_record(reader: Reader) -> Any:
    """A poll raises the error of its first record, and the position stays there until the user moves it."""
    reader.user.act = fail
    reader.write(b"bad", b"b")
    seen: list[Any] = [reader.error(), reader.error(), reader.offsets()]
    reader.consumer.seek(ZERO, 3)
    return [*seen, reader.read(), reader.offsets()]


def fail_later(reader: Reader) -> Any:
    """The records before the one that fails are returned."""
    reader.user.act = fail
    reader.write(b"a", b"b", b"bad", b"c")
    seen: list[Any] = [reader.read(), reader.offsets(), reader.error()]
    reader.consumer.seek(ZERO, 5)
    return [*seen, reader.read(), reader.offsets()]


def fail_in_one_partition(reader: Reader) -> Any:
    """The records of the other partition are neither lost nor returned twice."""
    reader.user.act = fail
    reader.write(b"bad")
    reader.write(b"a", partition=1)
    seen: list[Any] = []
    for _ in range(2):
        try:
            seen += reader.read()
        except RecordDeserializationError as error:
            seen.append((error.topic_partition.partition, error.offset, error.offset))
            reader.consumer.seek(ZERO, 3)
    return [sorted(seen), reader.offsets()]


def use_the_consumer(reader: Reader) -> Any:
    """A deserializer may call the consumer, whose commits do not count the records of this poll."""
    user = reader.user

    def act(value: bytes) -> bytes:
        user.consumer.commit()
        user.log.append(user.consumer.committed([ZERO, ONE]))
        return value

    user.act = act
    reader.write(b"a", b"b")
    return [reader.read_all(2), reader.offsets()]


def poll_inside(reader: Reader) -> Any:
    """A poll inside a deserializer raises StateError."""
    user = reader.user

    def act(value: bytes) -> object:
        try:
            return user.consumer.poll(0.01)
        except StateError as error:
            return str(error)

    user.act = act
    reader.write(b"a")
    seen: list[Any] = [reader.read()]
    user.act = fail
    reader.settle()
    reader.write(b"b")
    return [*seen, reader.read(), reader.offsets()]


def poll_inside_after_a_commit(reader: Reader) -> Any:
    """It raises StateError also if a commit has disarmed the fast path."""
    user = reader.user

    def act(value: bytes) -> object:
        user.consumer.commit()
        try:
            return user.consumer.poll(0.01)
        except StateError as error:
            return str(error)

    user.act = act
    reader.write(b"a")
    seen: list[Any] = [reader.read(), reader.offsets()]
    user.act = fail
    reader.settle()
    reader.write(b"b")
    return [*seen, reader.read(), reader.offsets()]


def seek_inside(reader: Reader) -> Any:
    """Records of a partition that a deserializer seeks are not returned; those of the new position are."""
    user, calls = reader.user, itertools.count()

    def act(value: bytes) -> bytes:
        if next(calls) == 0:
            user.consumer.seek(ZERO, 1)
        return value

    user.act = act
    reader.write(b"a", b"b")
    return [reader.read_all(3), reader.offsets()]


def pause_inside(reader: Reader) -> Any:
    """Records of a partition that a deserializer pauses are returned after `resume`."""
    user = reader.user

    def act(value: bytes) -> bytes:
        user.consumer.pause(ZERO)
        return value

    user.act = act
    reader.write(b"a")
    seen: list[Any] = [len(reader.consumer.poll(0.1)), reader.offsets()]
    user.act = fail
    reader.consumer.resume(ZERO)
    return [*seen, reader.read(), reader.offsets()]


def unsubscribe_inside(reader: Reader) -> Any:
    """Records of partitions that are no longer assigned are not returned."""
    user = reader.user

    def act(value: bytes) -> bytes:
        user.consumer.unsubscribe()
        return value

    user.act = act
    reader.write(b"a")
    for _ in range(LIMIT):
        assert not reader.consumer.poll(0.05)
        if not reader.consumer.subscription():
            break
    return [reader.consumer.subscription(), reader.consumer.assignment(), reader.consumer.committed([ZERO, ONE])]


def interrupt(reader: Reader) -> Any:
    """Records whose poll was interrupted are returned by the next one."""

    def act(value: bytes) -> bytes:
        raise KeyboardInterrupt

    reader.user.act = act
    reader.write(b"a", b"b")
    with pytest.raises(KeyboardInterrupt):
        reader.read()
    seen: list[Any] = [reader.offsets()]
    reader.user.act = fail
    return [*seen, reader.read_all(2), reader.offsets()]


def read_columns(reader: Reader) -> Any:
    """Deserializers do not run for `poll_arrow`."""
    reader.user.act = fail
    reader.write(b"bad")
    for _ in range(LIMIT):
        batch = reader.consumer.poll_arrow(0.05)
        if len(batch):
            return [batch.next_offsets(), reader.offsets()]
    raise AssertionError("no rows")


SCENARIOS = [
    skip_a_record,
    fail_later,
    fail_in_one_partition,
    use_the_consumer,
    poll_inside,
    poll_inside_after_a_commit,
    seek_inside,
    pause_inside,
    unsubscribe_inside,
    interrupt,
    read_columns,
]


def run(scenario: Callable[[Reader], Any], engine: str, *, on: bool) -> tuple[Any, list[Any], int]:
    """Run a scenario. Returns its result, what user code has logged, and the number of responses on the fast path."""
    user = Recorder()
    with FakeCluster() as cluster, fast_path_use(on=on) as use:
        cluster.create_topic(TOPIC, partitions=2)
        for partition in range(2):
            cluster.produce(TOPIC, [b"0", b"1"], partition=partition)
        with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            value_deserializer=user,
            interceptors=[user],
            **ENGINES[engine],
        ) as consumer:
            reader = Reader(cluster, consumer, user, on=on)
            reader.read_all(4)
            user.log.clear()
            reader.settle()
            before = use.responses
            result = scenario(reader)
            consumer.metrics()  # counts the responses so far
            return result, user.log, use.responses - before


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("engine", ENGINES)
def test_user_code_has_the_same_results(engine: str, scenario: Callable[[Reader], Any]) -> None:
    """Each scenario, on the fast path and on the general path."""
    for _ in range(ATTEMPTS):
        result, log, responses = run(scenario, engine, on=True)
        if responses:
            break
    assert responses > 0
    assert run(scenario, engine, on=False) == (result, log, 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic."""
    with FakeCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        cluster.produce(TOPIC, b"0", partition=0)
        yield cluster


async def armed(consumer: AsyncConsumer) -> int:
    """Poll until the fast path is armed. Returns the number of responses so far."""
    control = consumer._engine._async_path
    for _ in range(LIMIT):
        assert not await consumer.poll(0.02)
        if control.path.armed:
            return control.path.responses
    raise AssertionError(control.state)


async def values(consumer: AsyncConsumer) -> list[object]:
    """Returns the values of the next poll that is not empty."""
    for _ in range(LIMIT):
        records = await consumer.poll(0.05)
        if records:
            return [record.value for record in records]
    raise AssertionError("no records")


def async_consumer(cluster: FakeCluster, user: Callable[[bytes], object]) -> AsyncConsumer:
    """Returns a consumer that uses this value deserializer."""
    return AsyncConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=user,
    )


def test_an_async_consumer_deserializes_on_the_fast_path(cluster: FakeCluster) -> None:
    """Records are returned deserialized, and an error leaves the position."""

    async def main() -> None:
        async with async_consumer(cluster, lambda value: fail(value).decode()) as consumer:
            assert await values(consumer) == ["0"]
            before = await armed(consumer)
            cluster.produce(TOPIC, [b"a", b"b"], partition=0)
            assert await values(consumer) == ["a", "b"]
            assert consumer._engine._async_path.path.responses > before
            before = await armed(consumer)
            cluster.produce(TOPIC, [b"bad", b"c"], partition=0)
            with pytest.raises(RecordDeserializationError) as caught:
                await values(consumer)
            assert consumer._engine._async_path.path.responses > before
            assert (caught.value.offset, await consumer.position(ZERO)) == (3, 3)
            consumer.seek(ZERO, 4)
            assert await values(consumer) == ["c"]

    asyncio.run(main())


def test_a_deserializer_that_returns_an_awaitable_on_the_fast_path(cluster: FakeCluster) -> None:
    """Its results are awaited, and no record is lost."""

    async def later(value: bytes) -> str:
        await asyncio.sleep(0)
        return value.decode()

    def deserialize(value: bytes) -> object:
        return later(value) if value == b"later" else value.decode()

    async def main() -> None:
        async with async_consumer(cluster, deserialize) as consumer:
            assert await values(consumer) == ["0"]
            before = await armed(consumer)
            cluster.produce(TOPIC, [b"later", b"a"], partition=0)
            assert await values(consumer) == ["later", "a"]
            assert consumer._engine._async_path.path.responses > before

    asyncio.run(main())
