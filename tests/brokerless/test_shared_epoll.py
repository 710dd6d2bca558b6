"""AsyncConsumers of one event loop share an epoll set: what idle ones cost, and that none disturbs the others."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kconsumer import ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer, loop_epoll
from kconsumer.aio.fast_path import AsyncFastPath
from kconsumer.engine.threaded import ThreadedDriver
from kconsumer.errors import StateError
from kconsumer.testing import FakeCluster

pytestmark = [
    pytest.mark.network_thread,
    pytest.mark.skipif(not loop_epoll.AVAILABLE, reason="the system has no epoll"),
]

COUNT = 5
Reading = tuple[AsyncConsumer, "asyncio.Task[ConsumerRecords]"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic that has a partition for each consumer, and no records."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=COUNT)
        yield cluster


def control_of(consumer: AsyncConsumer) -> AsyncFastPath:
    """Returns the fast path of a consumer."""
    control: AsyncFastPath = consumer._engine._async_path
    return control


async def responses(consumer: AsyncConsumer, count: int) -> None:
    """Wait until the fast path of a consumer has processed this many more responses."""
    path = control_of(consumer).path
    end = path.responses + count
    while path.responses < end:
        await asyncio.sleep(0.005)


@asynccontextmanager
async def idle_consumers(cluster: FakeCluster, **options: object) -> AsyncIterator[list[Reading]]:
    """Consumers of a partition each, which poll and have nothing to read. The polls are cancelled at the end."""
    async with AsyncExitStack() as stack:
        readings = []
        for number in range(COUNT):
            consumer = await stack.enter_async_context(
                AsyncConsumer(
                    bootstrap_servers=cluster.bootstrap_servers,
                    auto_offset_reset="earliest",
                    fetch_max_wait_ms=10,
                    **options,
                )
            )
            consumer.assign([TopicPartition("orders", number)])
            readings.append((consumer, asyncio.create_task(consumer.poll(60))))
        for consumer, _ in readings:
            await responses(consumer, 3)
        try:
            yield readings
        finally:
            for _, polling in readings:
                polling.cancel()
            await asyncio.wait([polling for _, polling in readings])


async def read_all(cluster: FakeCluster, readings: list[Reading]) -> None:
    """Produce a record for each consumer, and check that its poll returns it."""
    for number in range(COUNT):
        cluster.produce("orders", [str(number)], partition=number)
    for consumer, polling in readings:
        records = await asyncio.wait_for(polling, 20)
        (tp,) = consumer.assignment()
        assert [str(tp.partition).encode()] == [record.value for record in records]


@pytest.mark.fast_path
def test_an_idle_consumer_takes_no_steps(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While consumers are idle, their responses call no Python function of ours: no poll is resumed, no consumer is
    called, and no network thread runs. Of all consumers together, the event loop makes one call for each wakeup.
    """
    called: list[str] = []
    for owner, name in ((AsyncFastPath, "_ready"), (ThreadedDriver, "_run_once"), (ThreadedDriver, "_begin_wait")):
        original = getattr(owner, name)

        def noted(*args: object, original: Callable[..., object] = original, name: str = name) -> object:
            called.append(name)
            return original(*args)

        monkeypatch.setattr(owner, name, noted)

    async def main() -> None:
        # With telemetry, the first step is due after a second.
        async with idle_consumers(cluster, enable_metrics_push=False) as readings:
            paths = [control_of(consumer).path for consumer, _ in readings]
            called.clear()
            thread, python_calls = threading.get_ident(), []

            def count(frame: object, event: str, _: object) -> None:
                code = getattr(frame, "f_code").co_filename  # noqa: B009
                if event == "call" and threading.get_ident() == thread and f"{os.sep}kconsumer{os.sep}" in code:
                    python_calls.append(code)

            before = sum(path.responses for path in paths)
            sys.setprofile(count)
            try:
                for consumer, _ in readings:
                    await responses(consumer, 20)
            finally:
                sys.setprofile(None)
            assert 20 * COUNT <= sum(path.responses for path in paths) - before
            assert [] == called
            assert len(python_calls) <= COUNT, python_calls  # `control_of` is not one: it is in this file
            await read_all(cluster, readings)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.fast_path
def test_timeouts_of_fetches_do_not_end_an_idle_poll(cluster: FakeCluster) -> None:
    """The fast path stays armed beyond the timeout of the fetch with which it was armed: later ones time out later."""

    async def main() -> None:
        # With telemetry, the first step is due after a second, and ends the wait on the fast path.
        async with idle_consumers(cluster, request_timeout_ms=1000, enable_metrics_push=False) as readings:
            paths = [control_of(consumer).path for consumer, _ in readings]
            until = max(path.until for path in paths)
            clock = readings[0][0]._engine._clock
            before = [path.last_poll for path in paths]
            while clock.now() < until + 100:
                await asyncio.sleep(0.01)
            assert all(path.armed and path.until > until for path in paths)
            assert before == [path.last_poll for path in paths]
            assert not any(polling.done() for _, polling in readings)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.fast_path
def test_one_consumer_does_not_disturb_the_others(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One poll raises, one is cancelled, one consumer is closed, and the code of one never ends: the others read."""

    async def main() -> None:
        async with idle_consumers(cluster) as readings:
            (failing, fails), (_, cancelled), (closed, ends), *others = readings
            control = control_of(failing)
            monkeypatch.setattr(control, "_limits", None)  # the callback of the event loop raises TypeError
            cancelled.cancel()
            await closed.close()
            stuck = asyncio.create_task(asyncio.Event().wait())
            for number in range(COUNT):
                cluster.produce("orders", [str(number)], partition=number)
            for consumer, polling in others:
                (tp,) = consumer.assignment()
                records = await asyncio.wait_for(polling, 20)
                assert [str(tp.partition).encode()] == [record.value for record in records]
            with pytest.raises(TypeError):
                await asyncio.wait_for(fails, 20)
            with pytest.raises(StateError):
                await ends
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert [b"0"] == [record.value for record in await failing.poll(20)]
            assert [b"1"] == [record.value for record in await readings[1][0].poll(20)]
            stuck.cancel()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not caplog.records


@pytest.mark.fast_path
def test_a_callback_that_raises_does_not_end_the_others(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an error escapes from what the event loop calls for one consumer, it is reported, and the others read."""
    reported: list[BaseException] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        # With telemetry, the poll may continue without the fast path.
        async with idle_consumers(cluster, enable_metrics_push=False) as readings:
            failing = readings[0][0]
            control = control_of(failing)
            original = control._ready
            failures = iter([True] * 3)

            def ready() -> None:
                if next(failures, False):
                    raise RuntimeError("broken")
                original()

            monkeypatch.setattr(control, "_ready", ready)
            readings[0][1].cancel()
            await asyncio.wait([readings[0][1]])
            readings[0] = failing, asyncio.create_task(failing.poll(60))
            await responses(failing, 2)
            await read_all(cluster, readings)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert ["broken"] * 3 == [str(error) for error in reported]


@pytest.mark.fast_path
def test_a_settled_poll_continues_although_a_callback_raises(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another thread settles the fast path, the poll continues without it. No error can let it wait for its timeout.

    The poll is not woken a second time, so what wakes it must not be what processes responses.
    """

    def settle(control: AsyncFastPath) -> None:
        with control._parts.lock:
            pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        async with idle_consumers(cluster) as readings:
            for consumer, _ in readings:
                control = control_of(consumer)
                monkeypatch.setattr(control, "_ready", lambda: 1 / 0)
                before = control.path.last_poll
                await loop.run_in_executor(None, settle, control)
                while control.path.last_poll == before:
                    await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.fast_path
def test_the_set_ends_with_its_last_consumer(cluster: FakeCluster) -> None:
    """Consumers of a loop use one epoll set, which the loop no longer watches after the last one was closed."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with idle_consumers(cluster) as readings:
            shared = {id(control_of(consumer)._shared) for consumer, _ in readings}
            assert 1 == len(shared)
            epoll = loop_epoll._epolls[id(loop)].epoll
            assert loop.remove_reader(epoll)
            loop.add_reader(epoll, epoll.serve)
            await read_all(cluster, readings)
        gc.collect()
        assert id(loop) not in loop_epoll._epolls
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="closed"):
            epoll.fileno()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.fast_path
def test_a_forked_child_does_not_change_the_set(cluster: FakeCluster) -> None:
    """The child of a fork shares the epoll set. If it stops watching, or ends, its parent continues to read."""

    async def main() -> None:
        async with idle_consumers(cluster) as readings:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads
                child = os.fork()
            if child == 0:
                for consumer, _ in readings:
                    control_of(consumer)._unwatch()
                os._exit(0)
            assert os.waitpid(child, 0) == (child, 0)
            for consumer, _ in readings:
                await responses(consumer, 2)
            await read_all(cluster, readings)

    asyncio.run(asyncio.wait_for(main(), 60))
