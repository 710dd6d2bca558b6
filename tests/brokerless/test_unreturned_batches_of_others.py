"""A batch counts as consumed when the poll that returns it has ended: close() in a handler, ShareConsumer, asyncio.

See `test_unreturned_batches.py` for other calls in handlers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import StateError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import Stop
from support.harnesses.interruptions import Tracer, arrival, at_point, handler, points

# A handler may run inside a finalizer. Python then reports its exception instead of raising it.
UNRAISABLE = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.network_thread, pytest.mark.filterwarnings(UNRAISABLE)]

ENGINES: dict[str, dict[str, Any]] = {"classic": {}, "threaded": {"engine": "threaded"}}
ZERO = TopicPartition("t", 0)
LIMIT = 100  # polls


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("s", **{"share.auto.offset.reset": "earliest"})
        yield cluster


def committed(cluster: FakeCluster) -> int:
    """Returns the committed offset of the group g."""
    found = cluster.committed("g").get(ZERO)
    return 0 if found is None else found.offset


# --- close() in a handler ------------------------------------------------------------------------------------------


def first_of_a_loop(consumer: Consumer, kept: list[Any]) -> Any:
    """Returns the first record of a loop, which is closed later, outside of the call."""
    kept.append(iter(consumer))
    return [next(kept[-1])]


CALLS: dict[str, Callable[[Consumer, list[Any]], Any]] = {
    "poll": lambda consumer, _: consumer.poll(5),
    "poll_arrow": lambda consumer, _: consumer.poll_arrow(5, max_rows=5),
    "loop": first_of_a_loop,
}


@pytest.mark.parametrize("backlog", [True, False])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("engine", ENGINES)
def test_close_at_any_point(cluster: FakeCluster, engine: str, name: str, backlog: bool) -> None:
    """A handler closes the consumer at any point of a poll, and exits: what close() commits was returned."""
    kept: list[Any] = []  # otherwise a signal might arrive while one of them is garbage collected
    for point in points(list(CALLS).index(name)):
        start = committed(cluster)
        cluster.produce("t", [b"x"] * 20)
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            max_poll_records=5 if backlog else 100,
            fetch_max_wait_ms=20,
            **ENGINES[engine],
        )

        kept.append(consumer)

        def exit_now(*_: object, consumer: Consumer = consumer) -> None:
            consumer.close(5)
            raise Stop

        consumer.assign([ZERO])
        returned = start
        while returned < start + (5 if backlog else 20):
            returned += len(consumer.poll(5))
        if not backlog:
            consumer.poll(0.01)
            cluster.produce("t", [b"x"])
        with handler(signal.SIGUSR1, exit_now):
            consumer.assignment()  # checks which signals have handlers
            try:
                seen, taken = at_point(lambda: CALLS[name](consumer, kept), point, arrival(signal.SIGUSR1))  # noqa: B023
                returned += len(taken)
            except Stop:
                seen = point
            except StateError as error:  # the handler ran in a finalizer, and the poll found the end
                if "closed" not in str(error):
                    raise
                seen = point
        consumer.close(5)
        assert start <= committed(cluster) <= returned
        if seen < point:
            break


@pytest.mark.parametrize("create", [Consumer, ShareConsumer])
def test_timeout_closes(cluster: FakeCluster, create: Any) -> None:
    """A timeout whose `total_seconds` closes the consumer: the error of the poll says that the consumer is closed."""

    class Timeout:
        def total_seconds(self) -> float:
            consumer.close()
            return 0.1

    consumer = create("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g")
    with pytest.raises(StateError, match="was closed"):
        consumer.poll(Timeout())


# --- ShareConsumer -------------------------------------------------------------------------------------------------


def commit(consumer: ShareConsumer) -> None:
    """Acknowledge what was returned."""
    with suppress(StateError):
        consumer.commit()


def commit_async(consumer: ShareConsumer) -> None:
    """Acknowledge what was returned, without waiting."""
    with suppress(StateError):
        consumer.commit_async()


def stop(_: ShareConsumer) -> None:
    """Raise an exception, like Ctrl-C."""
    raise Stop


def commit_and_stop(consumer: ShareConsumer) -> None:
    """Acknowledge what was returned, and raise an exception."""
    commit(consumer)
    raise Stop


@pytest.mark.parametrize("act", [commit, commit_async, stop, commit_and_stop])
def test_acknowledgements_at_any_point(cluster: FakeCluster, act: Callable[[ShareConsumer], None]) -> None:
    """At each point of a poll of a ShareConsumer, a handler commits or raises: no record is accepted that was not
    returned, and the records of a poll that raised are delivered again at once.
    """
    returned: set[int] = set()
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "s", "fetch_max_wait_ms": 20}
    with ShareConsumer("t", on_acknowledge=lambda *_: None, **options) as consumer:
        written = 0
        for point in points(0):
            cluster.produce("t", [b"x"] * 3)
            written += 3
            seen = point
            with handler(signal.SIGUSR1, lambda *_: act(consumer)), suppress(Stop):
                consumer.subscription()  # checks which signals have handlers
                seen, records = at_point(lambda: consumer.poll(2), point, arrival(signal.SIGUSR1))
                returned.update(record.offset for record in records)
            for _ in range(LIMIT):  # the locks of records expire much later
                if len(returned) == written:
                    break
                returned.update(record.offset for record in consumer.poll(0.05))
            assert list(range(written)) == sorted(returned)
            if seen < point:
                break


# --- AsyncConsumer -------------------------------------------------------------------------------------------------


class Between:
    """An awaitable that runs a coroutine, and awaits `act` at its suspension number `point`, counted from 1."""

    def __init__(self, coroutine: Any, point: int, act: Callable[[], Any]) -> None:
        self._coroutine, self._point, self._act = coroutine, point, act
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        iterator = self._coroutine.__await__()
        while True:
            try:
                waits_for = next(iterator)
            except StopIteration as end:
                return end.value
            self.suspensions += 1
            yield waits_for
            if self.suspensions == self._point:
                yield from asyncio.ensure_future(self._act()).__await__()


async def slowly(data: bytes) -> bytes:
    """Deserialize a value in a coroutine that is suspended."""
    await asyncio.sleep(0)
    return data


def at_once(data: bytes) -> bytes:
    """Deserialize a value."""
    return data


@pytest.mark.parametrize("deserializer", [None, at_once, slowly])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commits_of_another_task(cluster: FakeCluster, protocol: str, deserializer: Any) -> None:
    """At each suspension of a poll of an AsyncConsumer, another task commits: nothing that was not returned."""

    async def main() -> None:
        async with AsyncConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=20,
            value_deserializer=deserializer,
        ) as consumer:
            returned = written = 0

            async def commit_now() -> None:
                await consumer.commit()
                assert committed(cluster) <= returned

            for point in [0] * 5 + list(range(1, 30)):
                cluster.produce("t", [b"x"] * 3)
                written += 3
                polling = Between(consumer.poll(5), point, commit_now)
                returned += len(await polling)
                for _ in range(LIMIT):
                    if returned == written:
                        break
                    returned += len(await consumer.poll(0.2))
                assert written == returned
                if 1 < point > polling.suspensions:
                    break

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_async_commit_at_any_point(cluster: FakeCluster, protocol: str) -> None:
    """At each point of a poll of an AsyncConsumer, a signal handler raises: nothing is lost, nothing is committed that
    was not returned.
    """

    async def main() -> None:
        consumer = AsyncConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=20,
        )
        returned = written = 0

        def commit_and_stop(*_: object) -> None:
            consumer.commit_async()
            raise Stop

        for point in points(1):
            cluster.produce("t", [b"x"] * 3)
            written += 3
            seen = point
            with handler(signal.SIGUSR1, commit_and_stop), suppress(Stop):
                consumer.assignment()
                seen, records = await at_await(consumer.poll(5), point)
                returned += len(records)
            assert committed(cluster) <= returned
            for _ in range(LIMIT):
                if returned == written:
                    break
                returned += len(await consumer.poll(0.2))
            assert written == returned
            if seen < point:
                break
        await consumer.close()

    asyncio.run(main())


async def at_await(call: Any, point: int) -> tuple[int, Any]:
    """Await a call, in which SIGUSR1 arrives at its n-th point. Returns the number of points and the result."""
    tracer = Tracer(point, arrival(signal.SIGUSR1))
    try:
        tracer.start()
        result = await call
    finally:
        tracer.stop()
    return tracer.seen, result
