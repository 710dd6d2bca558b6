"""Deserializers and interceptors of a Consumer: what they raise, and what they do with the consumer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import RecordDeserializationError, StateError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES

TOPIC = "t"
ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
LIMIT = 200
REFUSED = "poll() cannot be called inside a deserializer, nor by a signal handler that runs in one"
Offsets = tuple[int, int, int | None, int | None]


class Recorder:
    """A value deserializer, and an interceptor. `act` is called for each value. `log` has the values of each batch."""

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
    """A consumer that has read the records 0 and 1 of both partitions."""

    def __init__(self, cluster: FakeCluster, consumer: Consumer, user: Recorder) -> None:
        self.cluster, self.consumer, self.user = cluster, consumer, user
        user.consumer = consumer

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

    def offsets(self) -> Offsets:
        """Commit. Returns the positions of both partitions, and their committed offsets."""
        self.consumer.commit()
        return (self.consumer.position(ZERO), self.consumer.position(ONE), *self.committed())

    def committed(self) -> tuple[int | None, int | None]:
        """Returns the committed offsets of both partitions."""
        found = self.consumer.committed([ZERO, ONE])
        first, second = found.get(ZERO), found.get(ONE)
        return first and first.offset, second and second.offset


@pytest.fixture(params=ENGINES)
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    """A consumer of a topic with two partitions."""
    user = Recorder()
    with FakeCluster() as cluster:
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
            **ENGINES[request.param],
        ) as consumer:
            made = Reader(cluster, consumer, user)
            made.read_all(4)
            user.log.clear()
            yield made


def fail(value: bytes) -> bytes:
    """Raises ValueError for the value b"bad"."""
    if value == b"bad":
        raise ValueError("bad")
    return value


def test_a_first_record_that_fails(reader: Reader) -> None:
    """A poll raises the error of its first record, and the position stays there until the user moves it."""
    reader.user.act = fail
    reader.write(b"bad", b"b")
    assert [(ZERO, 2, "ValueError('bad')")] * 2 == [reader.error(), reader.error()]
    assert (2, 2, 2, 2) == reader.offsets()
    reader.consumer.seek(ZERO, 3)
    assert [(0, 3, b"b")] == reader.read()
    assert (4, 2, 4, 2) == reader.offsets()
    assert [[b"b"]] == reader.user.log


def test_a_later_record_that_fails(reader: Reader) -> None:
    """The records before the one that fails are returned."""
    reader.user.act = fail
    reader.write(b"a", b"b", b"bad", b"c")
    assert [(0, 2, b"a"), (0, 3, b"b")] == reader.read()
    assert (4, 2, 4, 2) == reader.offsets()
    assert (ZERO, 4, "ValueError('bad')") == reader.error()
    reader.consumer.seek(ZERO, 5)
    assert [(0, 5, b"c")] == reader.read()
    assert (6, 2, 6, 2) == reader.offsets()
    assert [[b"a", b"b"], [b"c"]] == reader.user.log


def test_a_record_that_fails_in_one_partition(reader: Reader) -> None:
    """The records of the other partition are neither lost nor returned twice."""
    reader.user.act = fail
    reader.write(b"bad")
    reader.write(b"a", partition=1)
    found: list[Any] = []
    for _ in range(2):
        try:
            found += reader.read()
        except RecordDeserializationError as error:
            found.append((error.topic_partition, error.offset))
            reader.consumer.seek(ZERO, 3)
    assert len(found) == 2
    assert (ZERO, 2) in found
    assert (1, 2, b"a") in found
    assert (3, 3, 3, 3) == reader.offsets()
    assert [[b"a"]] == reader.user.log


def test_a_commit_inside(reader: Reader) -> None:
    """A deserializer may call the consumer, whose commits do not count the records of this poll."""

    def act(value: bytes) -> bytes:
        reader.user.log.append(reader.offsets())
        return value

    reader.user.act = act
    reader.write(b"a", b"b")
    assert [(0, 2, b"a"), (0, 3, b"b")] == reader.read_all(2)
    assert (4, 2, 4, 2) == reader.offsets()
    assert [(2, 2, 2, 2), (2, 2, 2, 2), [b"a", b"b"]] == reader.user.log


@pytest.mark.parametrize("commits", [False, True])
def test_a_poll_inside(reader: Reader, commits: bool) -> None:
    """A poll inside a deserializer raises StateError, also after a commit. Later polls continue."""

    def act(value: bytes) -> object:
        if commits:
            reader.consumer.commit()
        try:
            return reader.consumer.poll(0.01)
        except StateError as error:
            return str(error)

    reader.user.act = act
    reader.write(b"a")
    assert [(0, 2, REFUSED)] == reader.read()
    assert (3, 2, 3, 2) == reader.offsets()
    reader.user.act = fail
    reader.write(b"b")
    assert [(0, 3, b"b")] == reader.read()
    assert (4, 2, 4, 2) == reader.offsets()
    assert [[REFUSED], [b"b"]] == reader.user.log


def test_a_seek_inside(reader: Reader) -> None:
    """Records of a partition that a deserializer seeks are not returned; those of the new position are."""
    calls = itertools.count()

    def act(value: bytes) -> bytes:
        if next(calls) == 0:
            reader.consumer.seek(ZERO, 1)
        return value

    reader.user.act = act
    reader.write(b"a", b"b")
    assert [(0, 1, b"1"), (0, 2, b"a"), (0, 3, b"b")] == reader.read_all(3)
    assert (4, 2, 4, 2) == reader.offsets()
    assert [b"1", b"a", b"b"] == [value for batch in reader.user.log for value in batch]


def test_a_pause_inside(reader: Reader) -> None:
    """Records of a partition that a deserializer pauses are returned after `resume`."""

    def act(value: bytes) -> bytes:
        reader.consumer.pause(ZERO)
        return value

    reader.user.act = act
    reader.write(b"a")
    for _ in range(LIMIT):
        assert not reader.consumer.poll(0.05)
        if reader.consumer.paused():
            break
    assert (2, 2, 2, 2) == reader.offsets()
    reader.user.act = fail
    reader.consumer.resume(ZERO)
    assert [(0, 2, b"a")] == reader.read()
    assert (3, 2, 3, 2) == reader.offsets()
    assert [[b"a"]] == reader.user.log


def test_the_end_of_the_subscription_inside(reader: Reader) -> None:
    """Records of partitions that are no longer assigned are not returned."""

    def act(value: bytes) -> bytes:
        reader.consumer.unsubscribe()
        return value

    reader.user.act = act
    reader.write(b"a")
    for _ in range(LIMIT):
        assert not reader.consumer.poll(0.05)
        if not reader.consumer.subscription():
            break
    assert (frozenset(), frozenset()) == (reader.consumer.subscription(), reader.consumer.assignment())
    assert (None, None) == reader.committed()
    assert [] == reader.user.log


def test_a_keyboard_interrupt_inside(reader: Reader) -> None:
    """Records whose poll was interrupted are returned by the next one."""

    def act(value: bytes) -> bytes:
        raise KeyboardInterrupt

    reader.user.act = act
    reader.write(b"a", b"b")
    with pytest.raises(KeyboardInterrupt):
        reader.read()
    assert (2, 2, 2, 2) == reader.offsets()
    reader.user.act = fail
    assert [(0, 2, b"a"), (0, 3, b"b")] == reader.read_all(2)
    assert (4, 2, 4, 2) == reader.offsets()
    assert [[b"a", b"b"]] == reader.user.log


def test_columns(reader: Reader) -> None:
    """Deserializers do not run for `poll_arrow`."""
    reader.user.act = fail
    reader.write(b"bad")
    batch = next(batch for batch in iter(lambda: reader.consumer.poll_arrow(0.05), None) if len(batch))
    assert {ZERO: 3} == {tp: position.offset for tp, position in batch.next_offsets().items()}
    assert (3, 2, 3, 2) == reader.offsets()
