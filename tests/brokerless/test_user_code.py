"""User code never runs while the engine's lock is held, and calls that it makes do not corrupt the surrounding call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.fakes.tls_peer import server_context
from support.harnesses.engines import ENGINES
from support.harnesses.inside import engine_of, parts_of
from support.harnesses.threads import elsewhere

pytestmark = pytest.mark.network_thread

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@contextmanager
def new_cluster(**options: Any) -> Iterator[FakeCluster]:
    """A cluster with a topic of two partitions with a thousand records each."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=100, **options) as cluster:
        cluster.create_topic("t", partitions=2)
        for partition in range(2):
            for start in range(0, 1000, 10):
                cluster.produce("t", [b"%d" % offset for offset in range(start, start + 10)], partition=partition)
        yield cluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with new_cluster() as cluster:
        yield cluster


class Hooks(logging.Handler):
    """Every callable that a user may give to a consumer; each records whether another thread could take the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer: Consumer | None = None
        self.locked: list[str] = []
        self.seen: set[str] = set()

    def look(self, hook: str) -> None:
        """Record that a callable runs, and whether the lock is free."""
        self.seen.add(hook)
        if self.consumer is None:
            return
        lock: Any = engine_of(self.consumer).lock

        def take() -> None:
            if not lock.acquire(timeout=0.5):
                raise AssertionError(hook)
            lock.release()

        if lock._is_owned() or elsewhere(take) is not None:
            self.locked.append(hook)

    def emit(self, record: logging.LogRecord) -> None:
        self.look(f"log {record.name}")

    def key(self, data: bytes) -> bytes:
        self.look("key deserializer")
        return data

    def value(self, data: bytes) -> bytes:
        self.look("value deserializer")
        return data

    def on_consume(self, records: Any) -> Any:
        self.look("on_consume")
        return records

    def on_commit(self, *_: object) -> None:
        self.look("on_commit")

    def close(self) -> None:
        self.look("close")

    def init(self, _metrics: object) -> None:
        self.look("init")

    def metric_change(self, _metric: object) -> None:
        self.look("metric_change")

    def metric_removal(self, _metric: object) -> None:
        self.look("metric_removal")

    def on_assign(self, *_: object) -> None:
        self.look("on_assign")

    def on_revoke(self, *_: object) -> None:
        self.look("on_revoke")


@pytest.mark.parametrize("kind", ENGINES)
def test_lock_is_free_while_user_code_runs(cluster: FakeCluster, kind: str) -> None:
    """While deserializers, interceptors, listeners, commit callbacks, reporters and log handlers run, another thread
    can take the lock. (An assignor runs under it, as in Java.)
    """
    hooks = Hooks()
    logger = logging.getLogger("kconsumer")
    level = logger.level
    logger.addHandler(hooks)
    logger.setLevel(logging.DEBUG)
    try:
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            key_deserializer=hooks.key,
            value_deserializer=hooks.value,
            interceptors=[hooks],
            metrics_reporters=[hooks],
            on_commit=hooks.on_commit,
            auto_commit_interval_ms=10,
            max_poll_records=5,
            **ENGINES[kind],
        )
        hooks.consumer = consumer
        with consumer:
            consumer.subscribe(["t"], on_assign=hooks.on_assign, on_revoke=hooks.on_revoke)
            for _ in range(20):
                consumer.poll(0.2)
            consumer.commit_async(callback=hooks.on_commit)
            consumer.commit()
            consumer.seek(ZERO, 10**6)  # out of range: logged, and reset
            consumer.poll(0.2)
            consumer.unsubscribe()
            consumer.assign([ONE])
            consumer.poll(0.2)
    finally:
        logger.removeHandler(hooks)
        logger.setLevel(level)
    assert [] == hooks.locked
    expected = {"value deserializer", "on_consume", "on_commit", "close", "metric_change", "metric_removal"}
    assert expected | {"on_assign", "on_revoke"} <= hooks.seen
    logs = {
        "log kconsumer.coordinator.membership",
        "log kconsumer.coordinator.lookup",
        "log kconsumer.offsets.reset_manager",
    }
    assert logs <= hooks.seen


def wait_for_heartbeats(consumer: Consumer, count: int) -> float:
    """Block as a slow callable would until `count` heartbeats had responses. Returns how many had."""
    before, deadline = consumer.metrics()["heartbeat-total"], time.monotonic() + 8
    while consumer.metrics()["heartbeat-total"] < before + count and time.monotonic() < deadline:
        time.sleep(0.05)
    return consumer.metrics()["heartbeat-total"] - before


@pytest.mark.parametrize("kind", ENGINES)
def test_heartbeats_continue_while_a_deserializer_waits(cluster: FakeCluster, kind: str) -> None:
    """A deserializer that waits for three heartbeats gets them, and its result is returned."""
    slow, seen = threading.Event(), []

    def value(data: bytes) -> bytes:
        if not slow.is_set():
            slow.set()
            seen.append(wait_for_heartbeats(consumer, 3))
        return data

    options = ENGINES[kind] | ({} if kind == "consumer" else {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000})
    with Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        value_deserializer=value,
        **options,
    ) as consumer:
        deadline, records = time.monotonic() + 20, []
        while not records:
            assert time.monotonic() < deadline
            records = list(consumer.poll(1))
    assert b"0" == records[0].value
    assert seen[0] >= 3, seen


@pytest.mark.parametrize("kind", ENGINES)
def test_heartbeats_continue_while_a_key_password_waits(kind: str, tmp_path: Path) -> None:
    """Certificate files change, and the callable `ssl_password` blocks when the next connection is made. It runs
    without the lock on a background thread, heartbeats are sent on the other connection, and the new certificates are
    used.

    Meanwhile the calling thread polls, and may hold the lock: the classic engine does while it waits for the network.
    """
    authority, own = Authority(), tmp_path / "client.pem"
    changed, sent, threads, owned = threading.Event(), [], [], []

    def renew() -> None:
        certificate = authority.issue()
        own.write_text(certificate.chain + certificate.encrypted("sesame"))

    def password() -> str:
        if changed.is_set():
            threads.append(threading.current_thread().name)
            owned.append(lock._is_owned())
            sent.append(wait_for_heartbeats(consumer, 3))
        return "sesame"

    renew()
    options = ENGINES[kind] | ({} if kind == "consumer" else {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000})
    with (
        new_cluster(tls=server_context(tmp_path, authority.issue(), authority)) as cluster,
        Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            security_protocol="SSL",
            ssl_cafile=authority.write(tmp_path / "ca.pem"),
            ssl_certfile=str(own),
            ssl_password=password,
            **options,
        ) as consumer,
    ):
        lock: Any = engine_of(consumer).lock
        while not consumer.poll(1):
            pass
        renew()
        changed.set()
        cluster.disconnect_next("Fetch")
        deadline = time.monotonic() + 20
        while not sent:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        while consumer.poll(0):
            pass
        cluster.produce("t", [b"new"])
        while not consumer.poll(1):
            assert time.monotonic() < deadline
    assert {"kconsumer-background"} == set(threads)
    assert {False} == set(owned)
    assert sent[0] >= 3, sent


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupted_listener_in_unsubscribe(cluster: FakeCluster, kind: str, stop: type[BaseException]) -> None:
    """Ctrl-C in on_revoke ends the membership nevertheless: the consumer can subscribe and read again."""

    def on_revoke(*_: object) -> None:
        raise stop

    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **ENGINES[kind]
    ) as consumer:
        for _ in range(2):
            consumer.subscribe(["t"], on_revoke=on_revoke)
            deadline = time.monotonic() + 20
            while not consumer.poll(1):
                assert time.monotonic() < deadline
            with pytest.raises(stop):
                consumer.unsubscribe()
            assert frozenset() == consumer.assignment()


def test_heartbeat_thread_survives(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """A bug's error in the heartbeat thread is logged, and heartbeats continue."""
    with Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        session_timeout_ms=6000,
    ) as consumer:
        while not consumer.poll(1):
            pass
        group: Any = parts_of(consumer).group
        poll, failed = group.heartbeat.poll, []

        def broken(now: float) -> Any:
            if not failed:
                failed.append(now)
                raise IndexError("a mistake")
            return poll(now)

        group.heartbeat.poll = broken
        assert wait_for_heartbeats(consumer, 3) >= 3
    assert failed
    assert "a mistake" in caplog.text


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("timeout", [timedelta.max, 1e10, float("inf")])
def test_longest_timeouts(cluster: FakeCluster, kind: str, timeout: Any) -> None:
    """Calls that wait accept every timeout up to timedelta.max."""
    with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **ENGINES[kind]
    ) as consumer:
        while not consumer.poll(timeout):
            pass
        assert {ZERO: 1000} == consumer.end_offsets([ZERO], timeout=timeout)
        consumer.commit(timeout=timeout)


@pytest.mark.parametrize("kind", ENGINES)
def test_one_wakeup_raises_once(cluster: FakeCluster, kind: str) -> None:
    """A wakeup that ends committed() is not raised again by the next poll, which looks up the same offsets."""
    from kconsumer.errors import WakeupError

    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **ENGINES[kind]
    ) as consumer:
        consumer.assign([ZERO, ONE])
        consumer.poll(0)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.committed([ZERO, ONE], timeout=5)
        deadline = time.monotonic() + 20
        while not consumer.poll(0.5):
            assert time.monotonic() < deadline
