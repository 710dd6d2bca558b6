"""An exception is raised at every function call inside each public method. Afterwards the consumer reads on exactly, or
every call raises an error that says it was interrupted and must be closed.

Each case runs with one of the engines, another one each day (`tox -e interruptions`: with all of them).
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from kconsumer.errors import KafkaError, StateError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.inside import guard_of
from support.harnesses.interruptions import Action, arrival, at_point, handler, no_thread_left, one_of, points

pytestmark = pytest.mark.network_thread

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
ZERO = PARTITIONS[0]


class Interrupted(Exception):
    """The exception of a signal handler that ends a call that takes too long."""


class FromNowhere(BaseException):
    """An exception that no signal handler raised."""


def by_alarm() -> Action:
    """Send SIGALRM; its handler raises, as for a timeout."""
    return arrival(signal.SIGALRM)


def by_ctrl_c() -> Action:
    """Send SIGINT, for which Python raises KeyboardInterrupt."""
    return arrival(signal.SIGINT)


def from_nowhere() -> Action:
    """Raise an exception that the library cannot defer, like one of PyThreadState_SetAsyncExc."""
    raise FromNowhere
    yield  # a generator raises where it is resumed


ACTS = [by_ctrl_c, by_alarm, from_nowhere]


class Journal:
    """Checks that each returned record is the next one of its partition. `redo` records that positions were set."""

    def __init__(self) -> None:
        self.following: dict[TopicPartition, int] = {}
        self.group = uuid.uuid4().hex  # what it has committed fits the records that were returned

    def take(self, records: Any) -> int:
        for record in records:
            tp = record.topic_partition
            assert self.following.get(tp, record.offset) == record.offset, (tp, record.offset, self.following)
            self.following[tp] = record.offset + 1
        return len(records)


CALLS: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda c: c.poll(0.05),
    "poll(0)": lambda c: c.poll(0),
    "commit": lambda c: c.commit(timeout=2),
    "commit_async": lambda c: c.commit_async(),
    "committed": lambda c: c.committed(PARTITIONS, timeout=2),
    "position": lambda c: c.position(ZERO, timeout=2),
    "end_offsets": lambda c: c.end_offsets(PARTITIONS, timeout=2),
    "partitions_for": lambda c: c.partitions_for("t", timeout=2),
    "pause": lambda c: (c.pause(ZERO), c.resume(ZERO)),
    "subscribe": lambda c: c.subscribe(["t"]),
    "current_lag": lambda c: c.current_lag(ZERO),
    "metrics": lambda c: c.metrics(),
    "partition_states": lambda c: c.partition_states(),
    "rejoin": lambda c: (c.unsubscribe(), c.subscribe(["t"])),
}
"""Calls after which the next record is the one after the last that was returned."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of two partitions that have many small batches."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("t", partitions=2)
        for tp in PARTITIONS:
            for _ in range(1000):
                cluster.produce("t", [b"x"] * 10, partition=tp.partition)
        yield cluster


@contextmanager
def member(cluster: FakeCluster, kind: str, journal: Journal) -> Iterator[Consumer]:
    """Make a consumer that has joined and read some records."""
    made = Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=journal.group,
        auto_offset_reset="earliest",
        max_poll_records=5,
        max_partition_fetch_bytes=500,
        auto_commit_interval_ms=20,
        **ENGINES[kind],
    )
    try:
        reads(made, journal)
        yield made
    finally:
        made.close(1)


def reads(consumer: Consumer, journal: Journal) -> None:
    """Check that the next records of both partitions are returned."""
    goal = {tp: journal.following.get(tp, 0) + 1 for tp in PARTITIONS}
    deadline = time.monotonic() + 20
    while any(journal.following.get(tp, 0) < offset for tp, offset in goal.items()):
        assert time.monotonic() < deadline, consumer.partition_states()
        journal.take(consumer.poll(0.5))


def interrupted(consumer: Consumer, call: Callable[[], Any], point: int, act: Callable[[], Action]) -> tuple[bool, Any]:
    """Returns whether the call was interrupted, and its result."""

    def alarm(*_: object) -> None:
        raise Interrupted

    with handler(signal.SIGALRM, alarm), handler(signal.SIGINT, signal.default_int_handler):
        consumer.assignment()  # checks which signals have handlers
        try:
            seen, result = at_point(call, point, act())
        except (Interrupted, KeyboardInterrupt, FromNowhere):
            return True, None
        except KafkaError:
            return True, None  # such as a commit that the group refuses while it rebalances
    return seen >= point, result


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops some of `from_nowhere`
@pytest.mark.parametrize(
    ("name", "kind", "act"),
    [
        (name, kind, act)
        for row, name in enumerate(CALLS)
        for column, act in enumerate(ACTS)
        for kind in one_of(list(ENGINES), row + column)
    ],
)
def test_exception_at_any_call(cluster: FakeCluster, name: str, kind: str, act: Callable[[], Action]) -> None:
    """After the exception of a signal handler the consumer reads on. After another exception it reads on or raises an
    error that says it was interrupted. No record is lost or repeated.
    """
    journal, call = Journal(), CALLS[name]
    remaining = points(3 * list(ENGINES).index(kind) + ACTS.index(act))
    hit = True
    while hit:
        if name == "rejoin" or act is from_nowhere:
            journal = Journal()
        with member(cluster, kind, journal) as consumer:
            while hit:
                if name == "rejoin":
                    consumer.commit()
                point = next(remaining)
                hit, result = interrupted(consumer, lambda: call(consumer), point, act)
                if isinstance(result, ConsumerRecords):
                    journal.take(result)
                if guard_of(consumer).step.unfinished:
                    assert act is from_nowhere
                    with pytest.raises(StateError, match="interrupted in the middle of a step"):
                        consumer.poll(0)
                    break
                if name == "rejoin":
                    consumer.subscribe(["t"])
                consumer.resume(*consumer.paused())
                reads(consumer, journal)
    assert point > 3  # the loop reached some points: little of a poll is Python
    assert no_thread_left()
