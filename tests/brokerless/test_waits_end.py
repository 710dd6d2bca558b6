"""Every call that waits ends soon after Ctrl-C, a signal, `_thread.interrupt_main`, an asynchronous exception or
`wakeup()`, while records are read one by one and while there are none.

The calls would wait for a minute. The bounds are a few seconds, so that a busy machine cannot exceed them.
"""

from __future__ import annotations

import _thread
import asyncio
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import WakeupError
from kconsumer.testing import FakeCluster, MockConsumer
from support.harnesses.engines import ENGINES, Stop
from support.harnesses.interruptions import handler, one_of

pytestmark = pytest.mark.network_thread

ZERO = TopicPartition("t", 0)
WAIT_S = 60.0
BOUND_S = 3.0


def ctrl_c() -> None:
    """Send SIGINT to the process."""
    os.kill(os.getpid(), signal.SIGINT)


def terminate() -> None:
    """Send SIGUSR1 to the process, whose handler raises."""
    os.kill(os.getpid(), signal.SIGUSR1)


def interrupt_main() -> None:
    """Simulate SIGINT, as debuggers and notebooks do. No system call returns."""
    _thread.interrupt_main()


def async_exception() -> None:
    """Raise an exception in the main thread. No system call returns."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(Stop))


INTERRUPTS = [ctrl_c, terminate, interrupt_main, async_exception]


def stop(*_: object) -> None:
    """Raise Stop, as the handler of a signal."""
    raise Stop


@contextmanager
def after(delay_s: float, act: Callable[[], object]) -> Iterator[list[float]]:
    """Call `act` in another thread after a while. Yields a list to which the time of this is added."""
    called: list[float] = []

    def run() -> None:
        called.append(time.monotonic())
        act()

    timer = threading.Timer(delay_s, run)
    timer.start()
    try:
        yield called
    finally:
        timer.cancel()
        timer.join()


def until_raised(call: Callable[[Any], object], consumer: Any) -> None:
    """Make a call that raises. An asynchronous exception may be raised only after its end."""
    call(consumer)
    while True:
        time.sleep(0.001)


def check_ends(call: Callable[[Any], object], consumer: Any, act: Callable[[], object], error: Any) -> None:
    """Check that a call raises `error` soon after another thread has called `act`."""
    with handler(signal.SIGUSR1, stop), handler(signal.SIGINT, signal.default_int_handler), after(0.2, act) as called:
        with pytest.raises(error):
            until_raised(call, consumer)
        delay_s = time.monotonic() - called[0]
    assert delay_s < BOUND_S


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=60_000) as cluster:
        cluster.create_topic("t")
        yield cluster


def idle_options(cluster: FakeCluster) -> dict[str, Any]:
    """Returns the options of a consumer for which nothing is due within a minute."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50_000,
        "request_timeout_ms": 55_000,
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": 14_000,
        "enable_metrics_push": False,
    }


@contextmanager
def reader(cluster: FakeCluster, engine: str, *, group: bool = True, **options: Any) -> Iterator[Consumer]:
    """Make a consumer that has read records one by one."""
    chosen = idle_options(cluster) | ENGINES[engine] | options | ({"group_id": "g"} if group else {})
    if engine == "consumer":
        del chosen["session_timeout_ms"], chosen["heartbeat_interval_ms"]
    consumer = Consumer(**chosen)
    try:
        if group:
            consumer.subscribe(["t"])
        else:
            consumer.assign([ZERO])
        for _ in range(6):
            cluster.produce("t", [b"x"])
            while not consumer.poll(20):
                pass
        yield consumer
    finally:
        cluster.produce("t", [b"last"])  # ends the fetch for which close() may wait
        consumer.close(5)


def loop(consumer: Any) -> None:
    """Read records until an exception ends it."""
    for _ in consumer:
        pass


WAITS: dict[str, Callable[[Any], object]] = {
    "poll": lambda consumer: consumer.poll(WAIT_S),
    "poll_arrow": lambda consumer: consumer.poll_arrow(WAIT_S),
    "loop": loop,
}
REQUESTS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "commit": ("OffsetCommit", lambda consumer: consumer.commit({ZERO: 1}, timeout=WAIT_S)),
    "committed": ("OffsetFetch", lambda consumer: consumer.committed([ZERO], timeout=WAIT_S)),
    "end_offsets": ("ListOffsets", lambda consumer: consumer.end_offsets([ZERO], timeout=WAIT_S)),
    "partitions_for": ("Metadata", lambda consumer: consumer.partitions_for("other", timeout=WAIT_S)),
}
KINDS = [(engine, group) for engine in ENGINES for group in (True, False) if group or engine != "consumer"]


@pytest.mark.parametrize("act", INTERRUPTS)
@pytest.mark.parametrize(("engine", "group"), KINDS)
def test_interrupted_wait_for_records(cluster: FakeCluster, engine: str, group: bool, act: Callable[[], None]) -> None:
    """A wait for records ends soon after it was interrupted, and the next record is returned."""
    error = KeyboardInterrupt if act in (ctrl_c, interrupt_main) else Stop
    with reader(cluster, engine, group=group) as consumer:
        for wait in WAITS.values():
            check_ends(wait, consumer, act, error)
            cluster.produce("t", [b"next"])
            assert [b"next"] == [record.value for record in consumer.poll(20)]


@pytest.mark.parametrize(
    ("engine", "name", "act"),
    [
        (engine, name, act)
        for row, act in enumerate(INTERRUPTS)
        for column, name in enumerate(REQUESTS)
        for engine in one_of(list(ENGINES), row + column)
    ],
)
def test_interrupted_request(cluster: FakeCluster, engine: str, name: str, act: Callable[[], None]) -> None:
    """A call that waits for a response ends soon after it was interrupted."""
    error = KeyboardInterrupt if act in (ctrl_c, interrupt_main) else Stop
    api, request = REQUESTS[name]
    with reader(cluster, engine) as consumer:
        cluster.delay(api, WAIT_S)
        try:
            check_ends(request, consumer, act, error)
        finally:
            cluster.delay(api, 0)
            cluster.disconnect(1)


@pytest.mark.parametrize("act", INTERRUPTS)
def test_interrupted_loop_over_a_mock_consumer(act: Callable[[], None]) -> None:
    """A loop over a MockConsumer that has no records left ends soon after it was interrupted, and rests until then."""
    error = KeyboardInterrupt if act in (ctrl_c, interrupt_main) else Stop
    consumer = MockConsumer(auto_offset_reset="earliest")
    consumer.assign([ZERO])
    began = time.process_time()
    check_ends(loop, consumer, act, error)
    assert time.process_time() - began < 0.3
    consumer.close()


@pytest.mark.parametrize("act", INTERRUPTS)
def test_interrupted_share_consumer(cluster: FakeCluster, act: Callable[[], None]) -> None:
    """The same for a ShareConsumer that waits for records."""
    error = KeyboardInterrupt if act in (ctrl_c, interrupt_main) else Stop
    servers = cluster.bootstrap_servers
    options = {"bootstrap_servers": servers, "fetch_max_wait_ms": 50_000, "request_timeout_ms": 55_000}
    with ShareConsumer("t", group_id="s", **options) as consumer:
        consumer.poll(0.5)
        check_ends(WAITS["poll"], consumer, act, error)
        cluster.produce("t", [b"last"])


@pytest.mark.parametrize(("engine", "group"), KINDS)
def test_wakeup_ends_each_wait(cluster: FakeCluster, engine: str, group: bool) -> None:
    """After wakeup(), a wait for records raises WakeupError soon, and only once."""
    with reader(cluster, engine, group=group) as consumer:
        for wait in WAITS.values():
            check_ends(wait, consumer, consumer.wakeup, WakeupError)
            cluster.produce("t", [b"next"])
            assert [b"next"] == [record.value for record in consumer.poll(20)]


@pytest.mark.parametrize(
    ("engine", "name"), [(engine, name) for row, name in enumerate(REQUESTS) for engine in one_of(list(ENGINES), row)]
)
def test_wakeup_ends_each_request(cluster: FakeCluster, engine: str, name: str) -> None:
    """After wakeup(), a call that waits for a response raises WakeupError soon."""
    api, request = REQUESTS[name]
    with reader(cluster, engine) as consumer:
        cluster.delay(api, WAIT_S)
        try:
            check_ends(request, consumer, consumer.wakeup, WakeupError)
        finally:
            cluster.delay(api, 0)
            cluster.disconnect(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_wakeup_ends_an_await(cluster: FakeCluster, protocol: str) -> None:
    """A poll of an AsyncConsumer raises WakeupError soon after wakeup(), from its own thread or another one."""

    async def main() -> None:
        options = idle_options(cluster) | {"group_id": "g", "group_protocol": protocol}
        if protocol == "consumer":
            del options["session_timeout_ms"], options["heartbeat_interval_ms"]
        async with AsyncConsumer("t", **options) as consumer:
            for _ in range(6):
                cluster.produce("t", [b"x"])
                while not await consumer.poll(20):
                    pass
            for later in (loop_later, thread_later):
                called: list[float] = []
                later(partial(wake, consumer, called))
                with pytest.raises(WakeupError):
                    await consumer.poll(WAIT_S)
                assert time.monotonic() - called[0] < BOUND_S
                cluster.produce("t", [b"next"])
                assert [b"next"] == [record.value for record in await consumer.poll(20)]
            cluster.produce("t", [b"last"])  # ends the fetch for which close() may wait

    def wake(consumer: AsyncConsumer, called: list[float]) -> None:
        called.append(time.monotonic())
        consumer.wakeup()

    def loop_later(act: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(0.5, act)

    def thread_later(act: Callable[[], object]) -> None:
        threading.Timer(0.5, act).start()

    asyncio.run(main())
