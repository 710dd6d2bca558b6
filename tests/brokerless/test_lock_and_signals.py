"""Signal handlers never run while the main thread holds the lock of an engine.

A handler may call commit(), for which another thread needs the lock. If the handler ran while its own thread held the
lock, the commit would wait for itself until its timeout. No call of an AsyncConsumer blocks a handler.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer.engine.environment import Environment
from kconsumer.errors import KafkaError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.interruptions import EVENTS, handler

pytestmark = pytest.mark.network_thread

ZERO = TopicPartition("t", 0)

CALLS: dict[str, Callable[[Any], Any]] = {
    "poll": lambda c: c.poll(0.02),
    "poll(0)": lambda c: c.poll(0),
    "poll_arrow": lambda c: c.poll_arrow(0.02),
    "subscribe": lambda c: c.subscribe(["t"]),
    "assignment": lambda c: c.assignment(),
    "subscription": lambda c: c.subscription(),
    "commit": lambda c: c.commit(),
    "commit_async": lambda c: c.commit_async(),
    "committed": lambda c: c.committed([ZERO]),
    "position": lambda c: (c.seek_to_end(ZERO), c.position(ZERO)),
    "seek": lambda c: c.seek(ZERO, 5),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "beginning_offsets": lambda c: c.beginning_offsets([ZERO]),
    "end_offsets": lambda c: c.end_offsets([ZERO]),
    "offsets_for_times": lambda c: c.offsets_for_times({ZERO: 1}),
    "current_lag": lambda c: c.current_lag(ZERO),
    "pause": lambda c: c.pause(ZERO),
    "resume": lambda c: c.resume(ZERO),
    "paused": lambda c: c.paused(),
    "partitions_for": lambda c: c.partitions_for("t"),
    "list_topics": lambda c: c.list_topics(),
    "group_metadata": lambda c: c.group_metadata(),
    "enforce_rebalance": lambda c: c.enforce_rebalance(),
    "metrics": lambda c: c.metrics(),
    "partition_states": lambda c: c.partition_states(),
    "timeout": lambda c: c.commit({TopicPartition("t", 0): 1}, timeout=0.0),
    "wakeup": lambda c: c.wakeup(),
    "repr": repr,
    "unsubscribe": lambda c: c.unsubscribe(),
    "close": lambda c: c.close(1),
}
"""Every public method, in the order in which they are called."""


class Watch:
    """Notes each place at which Python could run a signal handler while the main thread holds an engine's lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._locks: list[Any] = []
        self.places: set[str] = set()
        self.points = 0
        original = Environment.reentrant_lock

        def make(environment: Environment) -> Any:
            lock = original(environment)
            self._locks.append(lock)
            return lock

        monkeypatch.setattr(Environment, "reentrant_lock", make)

    def _handler(self, *_: object) -> None:
        raise AssertionError("no signal arrives in these tests")

    def _event(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in EVENTS:
            return
        self.points += 1
        if signal.getsignal(signal.SIGUSR1) == self._handler and any(lock._is_owned() for lock in self._locks):
            self.places.add(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calls of the block."""
        profile = self._event
        with handler(signal.SIGUSR1, self._handler):
            sys.setprofile(profile)
            try:
                yield
            finally:
                sys.setprofile(None)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watches the engines of the consumers that the test creates."""
    return Watch(monkeypatch)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("t")
        yield cluster


def options_of(cluster: FakeCluster) -> dict[str, Any]:
    """Returns the options of the consumers."""
    return {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_handler_runs_with_the_lock(cluster: FakeCluster, watch: Watch, engine: str) -> None:
    """In no method of a consumer a handler can run while the calling thread holds the lock."""
    consumer = Consumer("t", **options_of(cluster), **ENGINES[engine], max_poll_records=5)
    with watch.watching():
        for _ in range(10):
            cluster.produce("t", [b"x"])
            assert consumer.poll(20)
            consumer.poll(0.01)
        cluster.produce("t", [b"x"] * 100)
        for call in CALLS.values():
            with suppress(KafkaError):
                call(consumer)
    assert [] == sorted(watch.places)
    assert watch.points > 1000


def test_no_handler_of_a_share_consumer_runs_with_the_lock(watch: Watch) -> None:
    """The same for the methods of ShareConsumer."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("g", **{"share.auto.offset.reset": "earliest"})
        consumer = ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g")
        with watch.watching():
            for _ in range(5):
                cluster.produce("t", [b"x"])
                while not consumer.poll(1):
                    pass
                consumer.commit()
            consumer.commit_async()
            consumer.metrics()
            repr(consumer)
            consumer.close(1)
    assert [] == sorted(watch.places)
