"""A signal handler calls every public method inside every public method, in both engines and both protocols.

The handler runs while the outer call waits, and at moments spread over the call.
"""

from __future__ import annotations

import logging
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import KafkaError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.inside import engine_of, guard_of, parts_of
from support.harnesses.interruptions import arrival, at_point, handler, no_thread_left, one_of, signal_after
from support.harnesses.stopwatch import Stopwatch

pytestmark = pytest.mark.network_thread

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BATCHES, BATCH = 200, 10

CALLS: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda c: c.poll(0.2),
    "poll(0)": lambda c: c.poll(0),
    "poll_arrow": lambda c: c.poll_arrow(0.2),
    "next": lambda c: next(iter(c)),
    "subscribe": lambda c: c.subscribe(["t"]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "assign": lambda c: c.assign([ZERO]),
    "assignment": lambda c: c.assignment(),
    "subscription": lambda c: c.subscription(),
    "commit": lambda c: c.commit(timeout=0.5),
    "commit_async": lambda c: c.commit_async(),
    "committed": lambda c: c.committed([ZERO], timeout=0.5),
    "position": lambda c: c.position(ZERO, timeout=0.5),
    "seek": lambda c: c.seek(ZERO, 5),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "seek_to_end": lambda c: c.seek_to_end(),
    "beginning_offsets": lambda c: c.beginning_offsets([ZERO], timeout=0.5),
    "end_offsets": lambda c: c.end_offsets([ZERO], timeout=0.5),
    "offsets_for_times": lambda c: c.offsets_for_times({ZERO: 1}, timeout=0.5),
    "current_lag": lambda c: c.current_lag(ZERO),
    "pause": lambda c: c.pause(ZERO),
    "resume": lambda c: c.resume(ZERO),
    "paused": lambda c: c.paused(),
    "partitions_for": lambda c: c.partitions_for("t", timeout=0.5),
    "list_topics": lambda c: c.list_topics(timeout=0.5),
    "group_metadata": lambda c: c.group_metadata(),
    "enforce_rebalance": lambda c: c.enforce_rebalance(),
    "client_instance_id": lambda c: c.client_instance_id(timeout=0.5),
    "metrics": lambda c: c.metrics(),
    "partition_states": lambda c: c.partition_states(),
    "wakeup": lambda c: c.wakeup(),
    "repr": repr,
    "close": lambda c: c.close(0.4),
}
"""Every public method."""

WAITING: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda c: c.poll(0.4),
    "poll_arrow": lambda c: c.poll_arrow(0.4),
    "commit": lambda c: c.commit({ZERO: 1}, timeout=0.4),
    "committed": lambda c: c.committed([ZERO], timeout=0.4),
    "position": lambda c: (c.seek_to_end(ZERO), c.position(ZERO, timeout=0.4)),
    "end_offsets": lambda c: c.end_offsets([ZERO], timeout=0.4),
    "partitions_for": lambda c: c.partitions_for("unknown", timeout=0.4),
    "close": lambda c: (c.commit_async({ZERO: 1}), c.close(0.4)),
}
"""Calls that wait for a response which never comes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of two partitions that have many small batches."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("t", partitions=2)
        for tp in (ZERO, ONE):
            for _ in range(BATCHES):
                cluster.produce("t", [b"x"] * BATCH, partition=tp.partition)
        yield cluster


@contextmanager
def member(cluster: FakeCluster, kind: str) -> Iterator[Consumer]:
    """Make a consumer that has joined and read some records, in a group of its own."""
    made = Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        max_poll_records=7,
        consumer_timeout_ms=200,
        max_partition_fetch_bytes=1000,
        **ENGINES[kind],
    )
    try:
        until(lambda: made.poll(1))
        yield made
    finally:
        made.close(0.2)


def until(condition: Callable[[], object]) -> None:
    """Call a function until it returns a truthy value."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline


class Inner:
    """A signal handler that makes a call, and the result of that call."""

    def __init__(self, consumer: Consumer, call: Callable[[Consumer], Any]) -> None:
        self._consumer, self._call = consumer, call
        self.ran = 0
        self.errors: list[BaseException] = []

    def __call__(self, *_: object) -> None:
        self.ran += 1
        try:
            self._call(self._consumer)
        except (KafkaError, StopIteration) as error:
            self.errors.append(error)


def is_settled(consumer: Consumer) -> bool:
    """Poll, and return whether the consumer has its partitions, and no rebalance that would move the positions."""
    consumer.poll(0.1)
    return consumer.assignment() == {ZERO, ONE} and engine_of(consumer)._group_idle()


def reads_on(consumer: Consumer) -> None:
    """Check that the consumer is closed, or returns the records of both partitions in order from their positions on."""
    if guard_of(consumer).closed:
        return
    if consumer.subscription() != {"t"}:
        consumer.unsubscribe()
        consumer.subscribe(["t"])
    for _ in range(2):  # a wakeup may be pending, or an error of the interrupted call
        with suppress(KafkaError):
            consumer.poll(0)
    until(lambda: is_settled(consumer))
    consumer.resume(ZERO, ONE)
    consumer.seek(ZERO, 0)
    consumer.seek(ONE, 0)
    following = {ZERO: 0, ONE: 0}
    deadline = time.monotonic() + 20
    while min(following.values()) < 10:
        assert time.monotonic() < deadline
        for record in consumer.poll(1):
            tp = record.topic_partition
            assert following[tp] == record.offset
            following[tp] += 1


@pytest.mark.parametrize(
    ("outer", "kind"), [(outer, kind) for row, outer in enumerate(CALLS) for kind in one_of(list(ENGINES), row)]
)
def test_handler_inside_a_call(cluster: FakeCluster, outer: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """When a handler uses the consumer at any moment of any call, both calls end in time with documented errors. Then
    the consumer reads on or is closed, and no thread is left.
    """
    caplog.set_level(logging.WARNING)
    call = CALLS[outer]
    with member(cluster, kind) as counted:
        moments, _ = at_point(lambda: quiet(call, counted), 0, iter(()))
    left = list(enumerate(CALLS.items()))
    while left:
        with member(cluster, kind) as consumer:
            while left and not guard_of(consumer).closed:
                index, (name, inner) = left.pop()
                acting = Inner(consumer, inner)
                with handler(signal.SIGUSR1, acting):
                    began = time.monotonic()
                    at_point(
                        lambda: quiet(call, consumer),
                        1 + index * moments // len(CALLS),
                        arrival(signal.SIGUSR1),
                    )
                    assert time.monotonic() - began < 8, name
                assert acting.ran <= 1
                reads_on(consumer)
    assert moments > 3
    assert no_thread_left()
    assert len(caplog.records) < 5 * len(CALLS), [record.getMessage() for record in caplog.records]


def quiet(call: Callable[[Consumer], Any], consumer: Consumer) -> None:
    """Make a call and ignore documented errors."""
    with suppress(KafkaError, StopIteration):
        call(consumer)


@contextmanager
def interrupted_network(cluster: FakeCluster) -> Iterator[None]:
    """Hold all requests and responses while the block runs."""
    cluster.interrupt_network(1)
    try:
        yield
    finally:
        cluster.restore_network(1)


@pytest.mark.parametrize(
    ("inner", "outer", "kind"),
    [
        (inner, outer, kind)
        for row, inner in enumerate(["close", "unsubscribe", "commit", "wakeup", "seek"])
        for column, outer in enumerate(WAITING)
        for kind in one_of(list(ENGINES), row + column)
    ],
)
def test_handler_while_a_call_waits(
    cluster: FakeCluster, inner: str, outer: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that uses the consumer while a call waits for the network runs at once, and the call ends."""
    caplog.set_level(logging.WARNING)
    sent: list[Stopwatch] = []
    delays_s: list[float] = []
    while not sent:  # on a busy machine the call may end before the thread that sends the signal runs
        with member(cluster, kind) as consumer, interrupted_network(cluster):
            consumer.pause(ZERO, ONE)
            acting = Inner(consumer, CALLS[inner])

            def run(*_: object, acting: Inner = acting) -> None:
                delays_s.append(sent[0].seconds())
                acting()

            began = time.monotonic()
            with handler(signal.SIGUSR1, run), signal_after(0.05, signal.SIGUSR1, sent):
                quiet(WAITING[outer], consumer)
            assert time.monotonic() - began < 8
            assert len(sent) == len(delays_s)
            if inner == "close" and sent:
                assert guard_of(consumer).closed
    assert delays_s[0] < 0.3
    assert no_thread_left()
    assert len(caplog.records) < 40


@pytest.mark.parametrize("kind", ENGINES)
def test_ctrl_c_ends_a_close_that_waits_to_leave(cluster: FakeCluster, kind: str) -> None:
    """An exception of a signal handler ends close() while the coordinator does not respond to the leaving member."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with member(cluster, kind) as consumer, interrupted_network(cluster):
        began = time.monotonic()
        with handler(signal.SIGUSR1, interrupt), signal_after(0.3, signal.SIGUSR1), pytest.raises(KeyboardInterrupt):
            consumer.close(20)
        assert time.monotonic() - began < 8
        assert guard_of(consumer).closed
    assert no_thread_left()


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("call", ["next", "poll", "poll_arrow", "seek", "metrics"])
def test_no_new_handler_runs_under_the_lock(cluster: FakeCluster, kind: str, call: str) -> None:
    """A handler that was installed just before a call never runs while the call holds the lock of the engine, also if
    the call finds records at once.
    """
    owned: list[bool] = []
    with member(cluster, kind) as consumer:
        is_owned, point, moments = parts_of(consumer).lock._is_owned, 0, 1
        while point < moments:
            point += 1
            consumer.assignment()  # finds that there is no handler of this signal
            with handler(signal.SIGUSR1, lambda *_: owned.append(is_owned())):
                moments, _ = at_point(lambda: quiet(CALLS[call], consumer), point, arrival(signal.SIGUSR1))
    assert owned
    assert not any(owned)
