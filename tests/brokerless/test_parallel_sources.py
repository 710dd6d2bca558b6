"""kconsumer.parallel with an AsyncConsumer and with a ShareConsumer, on FakeCluster."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import ConsumerRecord, ShareConsumer, groups
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import ConfigError, StateError
from kconsumer.parallel import AsyncProcessor, Processor, Retry, ShareProcessor, process
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_runs import Finished, run_until_finished
from support.members.share_groups import configure_group

pytestmark = pytest.mark.network_thread

RECORDS, PARTITIONS = 200, 3


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of three partitions."""
    with FakeCluster(
        group_consumer_heartbeat_interval_ms=100,
        group_share_heartbeat_interval_ms=100,
        group_share_min_record_lock_duration_ms=1000,
    ) as cluster:
        cluster.create_topic("t", PARTITIONS)
        cluster.produce("t", [(f"key-{n % 20}", str(n)) for n in range(RECORDS)])
        configure_group(cluster.bootstrap_servers, "shared", {"share.auto.offset.reset": "earliest"})
        yield cluster


def consumer(cluster: FakeCluster, **options: Any) -> AsyncConsumer:
    """Returns a member of the group g."""
    chosen = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return AsyncConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **chosen)


def member(cluster: FakeCluster, **options: Any) -> ShareConsumer:
    """Returns a member of the share group."""
    chosen = {"share_acknowledgement_mode": "explicit", **options}
    return ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="shared", **chosen)


def committed(cluster: FakeCluster) -> int:
    """Returns the sum of the committed offsets."""
    return sum(committed.offset for committed in cluster.committed("g").values())


def acknowledged(cluster: FakeCluster) -> int:
    """Returns the number of records that no member of the share group receives again."""
    offsets = groups.offsets("shared", bootstrap_servers=cluster.bootstrap_servers).values()
    return sum((offset.end or 0) - offset.lag for offset in offsets if offset.lag is not None)


# --- AsyncConsumer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_an_async_consumer(cluster: FakeCluster, order: Any) -> None:
    """`await process(…)` calls the handler in the event loop of the caller, in order, and commits everything."""
    seen: list[ConsumerRecord] = []
    calls = Finished(RECORDS)
    running: Counter[object] = Counter()
    threads = set()

    async def handle(record: ConsumerRecord) -> None:
        shard = (record.partition, {"partition": "", "key": record.key, "none": record.offset}[order])
        running[shard] += 1
        assert running[shard] == 1
        threads.add(threading.get_ident())
        await asyncio.sleep(0.001)
        running[shard] -= 1
        seen.append(record)
        calls.add(record)

    async def run() -> Any:
        async with consumer(cluster) as source:
            return await process(source, handle, workers=10, order=order, executor="asyncio")

    summary = asyncio.run(run())
    assert (RECORDS, "stop", 0) == (summary.processed, summary.reason, summary.abandoned)
    assert (RECORDS, {threading.get_ident()}) == (committed(cluster), threads)
    shards: dict[object, list[int]] = {}
    for record in seen:
        shards.setdefault((record.partition, record.key if order == "key" else ""), []).append(record.offset)
    assert order == "none" or all(offsets == sorted(offsets) for offsets in shards.values())


def test_failures_in_an_event_loop(cluster: FakeCluster) -> None:
    """Records are tried again, become dead letters, and errors of on_failure="stop" are raised."""
    dead: list[bytes] = []
    calls = Finished(RECORDS)

    async def handle(record: ConsumerRecord) -> None:
        if record.value == b"55":
            raise ValueError(record.value)
        calls.add(record)

    async def bury(record: ConsumerRecord, error: BaseException) -> None:
        dead.append(record.value)
        calls.add(record)

    async def run(**arguments: Any) -> Any:
        async with consumer(cluster) as source:
            retry = Retry(attempts=3, backoff_s=0.001)
            return await process(source, handle, order="none", executor="asyncio", retry=retry, **arguments)

    with pytest.raises(ValueError, match="55"):
        asyncio.run(run())
    assert committed(cluster) < RECORDS
    summary = asyncio.run(run(on_failure=bury))
    assert ([b"55"], 1, 2) == (dead, summary.failed, summary.retries)
    assert committed(cluster) == RECORDS


def test_a_stopped_run_in_an_event_loop(cluster: FakeCluster) -> None:
    """`stop()` waits for handlers. The next run on the same consumer continues with what was not started."""
    calls = Finished(RECORDS)

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.001)
        calls.add(record)
        if len(calls) == 50:
            processor.stop()

    async def run() -> Any:
        nonlocal processor
        async with consumer(cluster) as source:
            processor = AsyncProcessor(source, handle, workers=4, order="none")
            first = await processor.run()
            with pytest.raises(StateError, match="runs once"):
                await processor.run()
            return first, await process(source, handle, executor="asyncio")

    processor: AsyncProcessor
    first, second = asyncio.run(run())
    assert ("stop", 0) == (first.reason, first.abandoned)
    assert RECORDS == first.processed + second.processed
    assert {1} == set(calls.values())
    assert RECORDS == committed(cluster)


def test_a_cancelled_run(cluster: FakeCluster) -> None:
    """If the task is cancelled, what is finished is committed later, and the next run processes only the rest."""
    finished = Finished(RECORDS)
    stuck = {b"3", b"77"}

    async def handle(record: ConsumerRecord) -> None:
        if record.value in stuck:
            await asyncio.sleep(60)
        finished.add(record)

    async def run() -> None:
        async with consumer(cluster) as source:
            task = asyncio.create_task(process(source, handle, order="none", executor="asyncio", commit_interval_s=100))
            while len(finished) < RECORDS - len(stuck):
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            stuck.clear()
            summary = await process(source, handle, order="none", executor="asyncio")
            assert 2 == summary.processed

    asyncio.run(run())
    assert {1} == set(finished.values())
    assert RECORDS == committed(cluster)


# --- ShareConsumer ---------------------------------------------------------------------------------------------------


def test_rejected_records(cluster: FakeCluster) -> None:
    """After the last attempt a record is rejected, which no member receives again."""
    attempts: Counter[bytes] = Counter()

    def handle(record: ConsumerRecord) -> None:
        attempts[record.value] += 1
        if record.value == b"55":
            raise ValueError

    with member(cluster) as source:
        retry = Retry(attempts=3, backoff_s=0.001)
        summary = run_until_finished(
            ShareProcessor(source, handle, order="none", on_failure="skip", retry=retry), RECORDS
        )
    assert (RECORDS - 1, 1, 2, 3) == (summary.processed, summary.failed, summary.retries, attempts[b"55"])
    assert RECORDS == acknowledged(cluster)


def test_a_stop_while_locks_are_renewed(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that returns while the renewal of its lock is in flight, and the run ends: its record is accepted."""
    configure_group(cluster.bootstrap_servers, "shared", {"share.record.lock.duration.ms": "1000"})
    started, released = threading.Event(), threading.Event()
    finished: list[bytes] = []

    def handle(record: ConsumerRecord) -> None:
        if record.value == b"7":
            started.set()
            released.wait(30)
        finished.append(record.value)

    with member(cluster, max_poll_records=1000) as source:
        processor = ShareProcessor(source, handle, order="none")
        poll = source.poll

        def stop_at_the_renewal(timeout: Any) -> Any:
            if started.is_set() and not released.is_set():
                processor.stop()  # so that this poll raises WakeupError, after the renewal was started
                released.set()
            return poll(timeout)

        monkeypatch.setattr(source, "poll", stop_at_the_renewal)
        summary = processor.run()
    assert b"7" in finished
    assert (len(finished), "stop") == (summary.processed, summary.reason)
    assert len(finished) == acknowledged(cluster)


def test_a_class_of_the_application(cluster: FakeCluster) -> None:
    """`process` accepts classes that are derived from ShareConsumer."""

    class Own(ShareConsumer):
        """A class in a module of the application."""

    finished = Finished(RECORDS)
    options: dict[str, Any] = {"group_id": "shared", "share_acknowledgement_mode": "explicit"}
    with Own("t", bootstrap_servers=cluster.bootstrap_servers, **options) as source:
        summary = process(source, finished.add, workers=4, order="none")
    assert (RECORDS, RECORDS) == (summary.processed, acknowledged(cluster))


def test_wrong_arguments(cluster: FakeCluster) -> None:
    """What is not possible with a kind of consumer raises an error that says what to use."""

    async def handle(record: ConsumerRecord) -> None:
        """Do nothing."""

    async def run() -> None:
        async with consumer(cluster) as source:
            with pytest.raises(ConfigError, match="use executor='asyncio'"):
                process(source, handle)  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=r"takes a kconsumer.Consumer, not AsyncConsumer"):
                Processor(source, handle, executor="asyncio")
        async with consumer(cluster, enable_auto_commit=True) as source:
            with pytest.raises(ConfigError, match="enable_auto_commit=False"):
                process(source, handle, executor="asyncio")

    asyncio.run(run())
    with member(cluster) as source, pytest.raises(ConfigError, match="use order='none'"):
        process(source, print)
    with (
        member(cluster, share_acknowledgement_mode="implicit") as source,
        pytest.raises(ConfigError, match="share_acknowledgement_mode='explicit'"),
    ):
        process(source, print, order="none")
    other: Any = object()
    for kind in (AsyncProcessor, ShareProcessor):
        with pytest.raises(TypeError, match="takes a"):
            kind(other, print)
