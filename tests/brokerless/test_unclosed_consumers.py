"""Consumers that are garbage-collected without close(): they leave their groups, and nothing waits for that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.testing import FakeCluster
from support.aio.blocking import ThreadRunners
from support.harnesses.inside import engine_of, parts_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TOPIC, GROUP = "t", "g"
LIMIT_S = 30.0  # less than each session timeout
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "classic": (Consumer, {}),
    "threaded": (Consumer, {"engine": "threaded"}),
    "consumer protocol": (Consumer, {"group_protocol": "consumer"}),
    "share group": (ShareConsumer, {}),
    "asyncio": (AsyncConsumer, {}),
    "asyncio, consumer protocol": (AsyncConsumer, {"group_protocol": "consumer"}),
    "asyncio, share group": (AsyncShareConsumer, {}),
}
by_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


@pytest.fixture
def runners() -> Iterator[ThreadRunners]:
    runners = ThreadRunners()
    yield runners
    runners.close()


def member(cluster: FakeCluster, runners: ThreadRunners, kind: str, **options: Any) -> Any:
    """Returns a consumer that is a member of the group."""
    create, of_kind = KINDS[kind]
    consumer = create(TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, **of_kind, **options)
    end = time.monotonic() + LIMIT_S
    while not members(cluster) or (hasattr(consumer, "assignment") and not consumer.assignment()):
        poll = consumer.poll(0.1)
        if asyncio.iscoroutine(poll):
            runners.run(poll)
        assert time.monotonic() < end
    return consumer


def members(cluster: FakeCluster) -> int:
    """Returns the number of members of the group."""
    with contextlib.suppress(ValueError):  # there is no such group yet
        return len(cluster.group(GROUP).members)
    return 0


def assert_left(cluster: FakeCluster) -> None:
    """Wait until the group has no members, for less than a session timeout."""
    end = time.monotonic() + LIMIT_S
    while members(cluster):
        assert time.monotonic() < end
        time.sleep(0.01)


def threads() -> list[threading.Thread]:
    """Returns the running network and heartbeat threads."""
    return [t for t in threading.enumerate() if t.name.startswith(("kconsumer-network", "kconsumer-heartbeat"))]


def assert_ended(running: list[threading.Thread]) -> None:
    """Wait until these threads have ended."""
    for thread in running:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


@by_kind
def test_the_last_reference(cluster: FakeCluster, runners: ThreadRunners, kind: str) -> None:
    """A consumer leaves its group, and its threads end, after the last reference to it is gone."""
    consumer = member(cluster, runners, kind)
    assert 1 == members(cluster)
    running = threads()
    assert running
    del consumer
    assert_left(cluster)
    assert_ended(running)


@by_kind
def test_a_cycle_that_another_thread_collects(cluster: FakeCluster, runners: ThreadRunners, kind: str) -> None:
    """The garbage collector may run in any thread."""
    consumer = member(cluster, runners, kind)
    cycle: list[Any] = [consumer]
    cycle.append(cycle)
    del consumer, cycle
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    assert_left(cluster)


@by_kind
def test_a_lock_that_the_collecting_thread_holds(cluster: FakeCluster, runners: ThreadRunners, kind: str) -> None:
    """The garbage collector may run while any thread holds the engine's lock, and does not wait for it."""
    consumer = member(cluster, runners, kind)
    lock = parts_of(consumer).lock
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            done.wait(LIMIT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(LIMIT_S)
    del consumer
    assert not done.is_set()
    done.set()
    thread.join()
    assert_left(cluster)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "share" not in kind])
def test_its_own_thread_collects(cluster: FakeCluster, runners: ThreadRunners, kind: str) -> None:
    """The garbage collector may run in the consumer's own thread, in the middle of a step."""
    consumer = member(cluster, runners, kind)
    garbage = [consumer]
    heartbeat = parts_of(consumer).group.heartbeat
    poll = heartbeat.poll

    def poll_and_collect(now: float) -> Any:
        garbage.clear()
        return poll(now)

    heartbeat.poll = poll_and_collect
    del consumer
    assert_left(cluster)


@pytest.mark.parametrize("kind", ["classic", "consumer protocol"])
def test_a_static_member(cluster: FakeCluster, runners: ThreadRunners, kind: str) -> None:
    """A static member stays in the group for its successor, as after close()."""
    consumer = member(cluster, runners, kind, group_instance_id="i")
    running = threads()
    assert running
    del consumer
    assert_ended(running)
    assert 1 == members(cluster)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@by_kind
def test_a_forked_child(cluster: FakeCluster, runners: ThreadRunners, kind: str) -> None:
    """A consumer that a forked child drops stays in the group, because it is the parent's."""
    consumer = member(cluster, runners, kind)
    child = os.fork()
    if child == 0:
        del consumer
        gc.collect()
        os._exit(0)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    time.sleep(0.3)
    assert 1 == members(cluster)
    del consumer
    assert_left(cluster)


PROGRAM = """
import logging
logging.disable()
from kconsumer import Consumer
from kconsumer.testing import FakeCluster
cluster = FakeCluster().__enter__()
cluster.create_topic("t")
consumer = Consumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", {options})
while not consumer.assignment():
    consumer.poll(0.1)
print("joined")
"""


@pytest.mark.parametrize("options", ["", "engine='threaded'", "group_protocol='consumer'"])
def test_the_end_of_the_process(options: str) -> None:
    """A process that ends with an unclosed consumer ends normally."""
    program = PROGRAM.format(options=options)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (0, "joined\n", "") == (result.returncode, result.stdout, result.stderr)


def test_a_warning_that_is_an_error(cluster: FakeCluster, runners: ThreadRunners) -> None:
    """The member leaves even if the ResourceWarning is raised as an exception, which Python ignores in `__del__`."""
    consumer = member(cluster, runners, "classic")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            del consumer
        finally:
            sys.unraisablehook = hook
    assert_left(cluster)


@by_kind
def test_a_driver_that_fails(
    cluster: FakeCluster, runners: ThreadRunners, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error, such as one of gevent when the process ends, is not reported, because no code could handle it."""
    consumer = member(cluster, runners, kind)
    engine = engine_of(consumer)

    def fail(_at_end: object) -> bool:
        raise RuntimeError("greenlet is being finalized")

    monkeypatch.setattr(engine.driver, "end_soon", fail)
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    del consumer
    assert [] == unraisable
    monkeypatch.undo()
    engine.drop()
    assert_left(cluster)
