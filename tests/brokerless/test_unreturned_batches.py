"""A batch counts as consumed when the poll that returns it has ended, and never before.

A signal handler, or another thread, uses the consumer at each point of a poll at which Python may run a handler. It
never commits a record of a batch that was not returned, and if the poll raises, its batch is returned again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import StateError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES, Stop
from support.harnesses.interruptions import arrival, at_point, handler, one_of, points

# A handler may run inside a finalizer. Python then reports its exception instead of raising it.
UNRAISABLE = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.network_thread, pytest.mark.filterwarnings(UNRAISABLE)]

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
ZERO = PARTITIONS[0]
LIMIT_S = 20


class Member:
    """A member of the group g, and what its polls have returned."""

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        self.cluster = cluster
        self.consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            max_poll_records=5,
            retry_backoff_ms=10,
            default_api_timeout_ms=10_000,
            **{"enable_auto_commit": False, **options},
        )
        self.returned = dict.fromkeys(PARTITIONS, 0)  # the offsets after the records that calls have returned
        self.written = 0  # the number of records in each partition
        self.ahead: dict[TopicPartition, set[int]] = {tp: set() for tp in PARTITIONS}  # returned out of order
        self.repeats = False  # records may be returned again
        self.loop: Iterator[Any] | None = None

    def take(self, records: Iterable[tuple[TopicPartition, int]]) -> None:
        """Note returned records. The records of a batch that a handler's poll has passed may be returned later."""
        for tp, offset in records:
            ahead, following = self.ahead[tp], self.returned[tp]
            new = offset >= following and offset not in ahead
            assert new or self.repeats, f"{offset} of {tp} was returned again"
            if new:
                ahead.add(offset)
            while self.returned[tp] in ahead:
                ahead.remove(self.returned[tp])
                self.returned[tp] += 1

    def write(self, count: int) -> None:
        """Write this many records to each partition."""
        self.written += count
        for tp in PARTITIONS:
            self.cluster.produce("t", [b"x"] * count, partition=tp.partition)

    def read(self, backlog: int) -> None:
        """Read the records of each partition except the last `backlog`, and all records that were passed."""
        goal, deadline = self.written - backlog, time.monotonic() + LIMIT_S
        while any(self.returned[tp] < goal or self.ahead[tp] for tp in PARTITIONS):
            assert time.monotonic() < deadline, (self.returned, goal, self.ahead, self.consumer.partition_states())
            self.take(places(self.consumer.poll(0.2)))

    def check_commits(self) -> None:
        """Check that no record is committed that was not returned."""
        committed = {tp: known.offset for tp, known in self.cluster.committed("g").items()}
        late = {tp: (offset, self.returned[tp]) for tp, offset in committed.items() if offset > self.returned[tp]}
        assert not late, f"committed, returned: {late}"


def places(records: Iterable[Any]) -> list[tuple[TopicPartition, int]]:
    """Returns the partition and the offset of each record."""
    return [(record.topic_partition, record.offset) for record in records]


# --- calls that return records -------------------------------------------------------------------------------------


def one(member: Member) -> Any:
    """Returns the next record of a loop, which continues unless an exception has ended it."""
    if member.loop is None:
        member.loop = iter(member.consumer)
    try:
        return [next(member.loop)]
    except BaseException:
        member.loop = None
        raise


CALLS: dict[str, Callable[[Member], Any]] = {
    "poll": lambda member: member.consumer.poll(5),
    "poll some": lambda member: member.consumer.poll(5, max_records=2),
    "poll_arrow": lambda member: member.consumer.poll_arrow(5, max_rows=5),
    "loop": one,
}


def places_of(result: Any) -> list[tuple[TopicPartition, int]]:
    """Returns the partition and the offset of each record or row of a result."""
    if hasattr(result, "to_pyarrow"):
        rows = result.to_pyarrow().select(["topic", "partition", "offset"]).to_pylist()
        return [(TopicPartition(row["topic"], row["partition"]), row["offset"]) for row in rows]
    return places(result)


# --- handlers ------------------------------------------------------------------------------------------------------


def commit(member: Member) -> None:
    """Commit all positions."""
    with suppress(StateError):  # the call may be refused inside a deserializer
        member.consumer.commit()
    member.check_commits()


def commit_async(member: Member) -> None:
    """Commit all positions without waiting."""
    with suppress(StateError):
        member.consumer.commit_async()


def poll(member: Member) -> None:
    """Poll inside the call, and write records for the call."""
    with suppress(StateError):
        member.take(places(member.consumer.poll(0)))
    member.write(1)


def stop(_: Member) -> None:
    """Raise an exception, like Ctrl-C."""
    raise Stop


def commit_and_stop(member: Member) -> None:
    """Commit all positions and raise an exception."""
    commit(member)
    raise Stop


def poll_and_stop(member: Member) -> None:
    """Poll inside the call and raise an exception. The records of both polls may be returned again."""
    member.repeats = True
    poll(member)
    raise Stop


def poll_commit_and_stop(member: Member) -> None:
    """Poll inside the call, commit what was returned until then, and raise an exception."""
    member.repeats = True
    poll(member)
    commit_and_stop(member)


def pause(member: Member) -> None:
    """Pause and resume a partition."""
    member.consumer.pause(ZERO)
    member.consumer.resume(ZERO)


def seek(member: Member) -> None:
    """Seek back, so that records are returned again."""
    member.repeats = True
    member.consumer.seek(ZERO, max(0, member.returned[ZERO] - 3))


def wait(_: Member) -> None:
    """Let other threads run, until an auto-commit is due."""
    time.sleep(0.03)
    raise Stop


ACTS = [commit, commit_async, poll, stop, commit_and_stop, poll_and_stop, poll_commit_and_stop, pause, seek, wait]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of two partitions."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=200) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


def call_with_handler(member: Member, call: Callable[[Member], Any], point: int, act: Callable[[Member], None]) -> int:
    """Make a call, in which a signal arrives at a point, whose handler is `act`. Returns the number of points."""
    seen = point
    with handler(signal.SIGUSR1, lambda *_: act(member)):
        member.consumer.assignment()  # checks which signals have handlers
        with suppress(Stop):
            seen, result = at_point(lambda: call(member), point, arrival(signal.SIGUSR1))
            member.take(places_of(result))
    return seen


CASES = [
    (engine, name, act, backlog)
    for row, act in enumerate(ACTS)
    for column, name in enumerate(CALLS)
    for number, backlog in enumerate((15, 0))
    for engine in one_of(list(ENGINES), row + column + number)
]


@pytest.mark.parametrize(("engine", "name", "act", "backlog"), CASES)
def test_handler_at_any_point(
    cluster: FakeCluster, engine: str, name: str, act: Callable[[Member], None], backlog: int
) -> None:
    """At each point of a call that returns records, a handler commits, polls or raises: nothing is committed before it
    was returned, and every record is returned.
    """
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 10} if act is wait else {}
    member = Member(cluster, **options, **ENGINES[engine])
    try:
        member.write(20)
        member.read(backlog)
        for point in points(ACTS.index(act)):
            member.write(5 if backlog else 1)
            member.repeats = False
            if call_with_handler(member, CALLS[name], point, act) < point:
                break
            member.check_commits()
            member.read(backlog)
    finally:
        member.consumer.close(1)
