"""A forked child that uses its copy of a consumer disturbs nothing of its parent, whatever it calls."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES

pytestmark = [
    pytest.mark.network_thread,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of os.fork() in a process with threads
]

ZERO = TopicPartition("t", 0)
BOUND_S = 3.0  # a record that is delayed until the request timeout comes much later
LIMIT_S = 30.0

CALLS: dict[str, Callable[[Any], object]] = {
    "repr": repr,
    "poll": lambda c: c.poll(0.1),
    "poll(0)": lambda c: c.poll(0),
    "poll_arrow": lambda c: c.poll_arrow(0.1),
    "next": lambda c: next(iter(c)),
    "commit": lambda c: c.commit(timeout=0.1),
    "commit_async": lambda c: c.commit_async(),
    "position": lambda c: c.position(ZERO, timeout=0.1),
    "end_offsets": lambda c: c.end_offsets([ZERO], timeout=0.1),
    "seek": lambda c: c.seek(ZERO, 0),
    "pause": lambda c: c.pause(ZERO),
    "resume": lambda c: c.resume(ZERO),
    "assignment": lambda c: c.assignment(),
    "unsubscribe": lambda c: c.unsubscribe(),
    "current_lag": lambda c: c.current_lag(ZERO),
    "metrics": lambda c: c.metrics(),
    "partition_states": lambda c: c.partition_states(),
    "status": lambda c: c.status(),
    "group_metadata": lambda c: c.group_metadata(),
    "enforce_rebalance": lambda c: c.enforce_rebalance(),
    "wakeup": lambda c: c.wakeup(),
    "close": lambda c: c.close(0.1),
}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        yield cluster


def options_of(cluster: FakeCluster) -> dict[str, Any]:
    """Returns the options of the consumers."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 10_000,
        "request_timeout_ms": 40_000,
    }


def wait_for(child: int) -> bool:
    """Wait until a child has ended. Returns False if it was killed after a time limit."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.parametrize("engine", ENGINES)
def test_every_call_of_a_child(cluster: FakeCluster, engine: str) -> None:
    """After any call of a child, the parent receives the next record at once. No call of the child hangs."""
    with Consumer("t", **options_of(cluster), **ENGINES[engine]) as consumer:
        for name, call in CALLS.items():
            for _ in range(3):
                cluster.produce("t", [b"x"])
                while not consumer.poll(20):
                    pass
            child = os.fork()
            if child == 0:
                try:
                    with suppress(BaseException):
                        call(consumer)
                    gc.collect()
                finally:
                    os._exit(0)
            assert wait_for(child), name
            cluster.produce("t", [b"next"])
            began = time.monotonic()
            assert [b"next"] == [record.value for record in consumer.poll(20)], name
            assert time.monotonic() - began < BOUND_S, name
        cluster.produce("t", [b"last"])  # ends the fetch for which close() may wait


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_child_of_an_event_loop(cluster: FakeCluster, protocol: str) -> None:
    """A child that is forked while a poll is awaited ends this poll: the parent receives the next record at once.

    The child has no running event loop. If it left `asyncio.run`, asyncio itself would disturb the parent's loop.
    """

    async def main() -> None:
        async with AsyncConsumer("t", **options_of(cluster), group_protocol=protocol) as consumer:
            for _ in range(5):
                cluster.produce("t", [b"x"])
                while not await consumer.poll(20):
                    pass
            poll = consumer.poll(25)
            waiting = asyncio.ensure_future(poll)
            await asyncio.sleep(0.2)
            child = os.fork()
            if child == 0:
                try:
                    with suppress(BaseException):
                        repr(consumer)
                        poll.close()
                    gc.collect()
                finally:
                    os._exit(0)
            assert await asyncio.to_thread(wait_for, child)
            cluster.produce("t", [b"next"])
            began = time.monotonic()
            records = await waiting
            assert time.monotonic() - began < BOUND_S
            assert [b"next"] == [record.value for record in records]
            cluster.produce("t", [b"last"])  # ends the fetch for which close() may wait

    asyncio.run(main())
