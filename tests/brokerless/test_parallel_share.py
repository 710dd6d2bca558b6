"""kconsumer.parallel with share consumers, on FakeCluster: what records wait for, and what becomes of each of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kconsumer import AcknowledgeType, ConsumerRecord, ShareConsumer, ShareRecord, groups, parallel
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import ConcurrentAccessError, ConfigError, RecordDeserializationError, StateError
from kconsumer.parallel import AsyncShareProcessor, Retry, ShareProcessor, process
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_handlers import require_first_delivery
from support.harnesses.parallel_runs import Finished

pytestmark = pytest.mark.network_thread

RECORDS = 100


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster of two brokers with a topic of two partitions."""
    with FakeCluster(2, group_share_heartbeat_interval_ms=100, group_share_min_record_lock_duration_ms=1000) as cluster:
        cluster.create_topic("t", 2)
        cluster.configure_group("g", share_auto_offset_reset="earliest")
        yield cluster


@pytest.fixture
def written(cluster: FakeCluster) -> FakeCluster:
    """The cluster with records."""
    for partition in range(2):
        cluster.produce("t", [str(n) for n in range(partition, RECORDS, 2)], partition=partition)
    return cluster


def options(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    """Returns the options of a member of the group g."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "share_acknowledgement_mode": "explicit",
        **more,
    }


def unfinished(cluster: FakeCluster) -> int:
    """Returns the number of records that a member of the group may receive yet."""
    return sum(offset.lag or 0 for offset in groups.offsets("g", bootstrap_servers=cluster.bootstrap_servers).values())


# --- what records wait for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["threads", "asyncio"])
def test_no_record_waits_for_a_slow_one(written: FakeCluster, executor: Any) -> None:
    """While one handler has not returned, all other records are acquired, processed and accepted."""
    finished, others = Finished(RECORDS), threading.Event()

    def handle(record: ConsumerRecord) -> None:
        if record.value == b"3":
            assert others.wait(30)
        finished.add(record)
        if len(finished) == RECORDS - 1:
            others.set()

    async def handle_async(record: ConsumerRecord) -> None:
        while record.value == b"3" and not others.is_set():
            await asyncio.sleep(0.001)
        handle(record)

    handler = handle if executor == "threads" else handle_async
    with ShareConsumer("t", **options(written)) as consumer:
        summary = process(consumer, handler, workers=4, order="none", executor=executor)
    assert (RECORDS, "stop", {1}) == (summary.processed, summary.reason, set(finished.values()))
    assert 0 == unfinished(written)


def test_handlers_may_use_the_consumer(written: FakeCluster) -> None:
    """The run waits while another thread uses its consumer, and acknowledges everything afterwards."""
    finished = Finished(RECORDS)
    with ShareConsumer("t", **options(written)) as consumer:

        def handle(record: ConsumerRecord) -> None:
            for _ in range(20):
                with suppress(ConcurrentAccessError):
                    consumer.metrics()
            finished.add(record)

        summary = process(consumer, handle, workers=4, order="none")
    assert (RECORDS, "stop", {1}) == (summary.processed, summary.reason, set(finished.values()))
    assert 0 == unfinished(written)


def test_no_record_waits_for_a_retry(written: FakeCluster) -> None:
    """A record that waits for its next attempt keeps no other record waiting."""
    finished = Finished(RECORDS)
    attempts = 0

    def handle(record: ConsumerRecord) -> None:
        nonlocal attempts
        if record.value == b"3":
            attempts += 1
            if len(finished) < RECORDS - 1:
                raise ValueError
        finished.add(record)

    with ShareConsumer("t", **options(written)) as consumer:
        process(consumer, handle, workers=2, order="none", retry=Retry(attempts=1000, backoff_s=0.01))
    assert (True, {1}) == (attempts > 1, set(finished.values()))


def test_only_what_workers_can_process_is_acquired(cluster: FakeCluster) -> None:
    """While the handlers of all workers run, no more than two records for each worker are locked."""
    cluster.create_topic("one", 1)
    cluster.produce("one", ["value"] * RECORDS)
    started, ends = threading.Semaphore(0), threading.Event()

    def handle(record: ConsumerRecord) -> None:
        started.release()
        ends.wait(30)

    with ShareConsumer("one", **options(cluster)) as consumer, ShareConsumer("one", **options(cluster)) as other:
        processor = ShareProcessor(consumer, handle, workers=4, order="none")
        thread = threading.Thread(target=processor.run)
        thread.start()
        for _ in range(4):
            assert started.acquire(timeout=30)
        found: list[ConsumerRecord] = []
        while len(found) < RECORDS - 8:
            found += (records := list(other.poll(10.0)))
            assert records
            for record in records:
                other.acknowledge(record)
        processor.stop()
        ends.set()
        thread.join()
        assert 4 == processor.summary().processed


# --- records that fail -----------------------------------------------------------------------------------------------


def refuse_three(data: bytes) -> int:
    """A deserializer that refuses one record."""
    if data == b"3":
        raise ValueError("three")
    return int(data)


@pytest.mark.parametrize("executor", ["threads", "asyncio"])
def test_a_refused_record_goes_to_on_failure(written: FakeCluster, executor: Any) -> None:
    """A callable gets the record that a deserializer refuses, with its bytes and its delivery count, once."""
    dead: list[tuple[Any, int, type[BaseException]]] = []
    finished = Finished(RECORDS)

    def handle(record: ConsumerRecord) -> None:
        finished.add(record)

    async def handle_async(record: ConsumerRecord) -> None:
        finished.add(record)

    def bury(record: ConsumerRecord, error: BaseException) -> None:
        assert isinstance(record, ShareRecord)
        dead.append((record.value, record.delivery_count, type(error)))
        finished.add(record)

    handler = handle if executor == "threads" else handle_async
    with ShareConsumer("t", **options(written, value_deserializer=refuse_three)) as consumer:
        summary = process(consumer, handler, order="none", executor=executor, on_failure=bury)
    assert (RECORDS - 1, 1) == (summary.processed, summary.failed)
    assert ([(b"3", 1, RecordDeserializationError)], 0) == (dead, unfinished(written))


def test_a_refused_record_is_rejected(written: FakeCluster) -> None:
    """With on_failure="skip", a record that a deserializer refuses is rejected, and no member receives it again."""
    finished = Finished(RECORDS - 1)
    with ShareConsumer("t", **options(written, value_deserializer=refuse_three, consumer_timeout_ms=2000)) as consumer:
        summary = process(consumer, finished.add, order="none", on_failure="skip")
        if summary.reason == "stop":  # the refused record may have been the last one
            process(consumer, finished.add, order="none", on_failure="skip")
    assert 0 == unfinished(written)


def test_a_refused_record_ends_the_run(written: FakeCluster) -> None:
    """With on_failure="stop", the error ends the run, and the record is delivered again."""
    for _ in range(2):
        with (
            ShareConsumer("t", **options(written, value_deserializer=refuse_three)) as consumer,
            pytest.raises(RecordDeserializationError, match="three"),
        ):
            process(consumer, lambda record: None, order="none")


def test_restarts_use_up_few_deliveries(written: FakeCluster) -> None:
    """A program that fails and is restarted again and again uses up one delivery of one record at each restart."""

    def fail(record: ConsumerRecord) -> None:
        raise ConnectionError("the database is down")

    for _ in range(4):
        with ShareConsumer("t", **options(written)) as consumer, pytest.raises(ConnectionError):
            process(consumer, fail, workers=4, order="none", retry=Retry(attempts=2, backoff_s=0.1))
    finished = Finished(RECORDS)
    deliveries: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        assert isinstance(record, ShareRecord)
        deliveries.append(record.delivery_count)
        finished.add(record)

    with ShareConsumer("t", **options(written)) as consumer:
        process(consumer, handle, workers=4, order="none")
    assert RECORDS == len(deliveries)
    assert sum(deliveries) - RECORDS <= 8 + 3


def test_worker_processes_get_the_delivery_count(written: FakeCluster) -> None:
    """A record in a worker process has the delivery count that the group has set."""
    with ShareConsumer("t", **options(written, consumer_timeout_ms=1000)) as consumer:
        summary = process(consumer, require_first_delivery, workers=2, order="none", executor="processes", retry=None)
    assert (RECORDS, "idle") == (summary.processed, summary.reason)


# --- acknowledge(topic, partition, offset, type) ---------------------------------------------------------------------


def test_a_refused_record_can_be_rejected(cluster: FakeCluster) -> None:
    """After RecordDeserializationError, the record can be acknowledged by its offset, but not renewed."""
    cluster.produce("t", ["1", "3", "5"], partition=0)
    seen: list[int] = []
    with ShareConsumer("t", **options(cluster, value_deserializer=refuse_three)) as consumer:
        while len(seen) < 2:
            try:
                for record in consumer.poll(1.0):
                    seen.append(record.value)
                    consumer.acknowledge("t", 0, record.offset, AcknowledgeType.ACCEPT)
            except RecordDeserializationError as error:
                tp = error.topic_partition
                with pytest.raises(StateError, match="cannot be renewed"):
                    consumer.acknowledge(tp.topic, tp.partition, error.offset, AcknowledgeType.RENEW)
                consumer.acknowledge(tp.topic, tp.partition, error.offset, AcknowledgeType.REJECT)
        assert [None] == list(consumer.commit().values())
        with pytest.raises(StateError, match="cannot be acknowledged"):
            consumer.acknowledge("t", 0, 1, AcknowledgeType.ACCEPT)
    assert ([1, 5], 0) == (seen, unfinished(cluster))


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_a_refused_record_is_released_by_default(cluster: FakeCluster, mode: str) -> None:
    """The next poll releases it, and the group delivers it until its deliveries are exhausted."""
    cluster.produce("t", ["3"], partition=0)
    errors = 0
    settings = options(cluster, value_deserializer=refuse_three, share_acknowledgement_mode=mode)
    with ShareConsumer("t", **settings) as consumer:
        while errors < 5:
            try:
                consumer.poll(1.0)
            except RecordDeserializationError:
                errors += 1
        assert not consumer.poll(0.5)
    assert 0 == unfinished(cluster)


# --- AsyncShareConsumer ----------------------------------------------------------------------------------------------


def test_an_async_share_consumer(written: FakeCluster) -> None:
    """`await process(…)` calls the handler in the event loop of the caller. No record waits for a slow one."""
    finished, others = Finished(RECORDS), asyncio.Event()
    threads = set()

    async def handle(record: ConsumerRecord) -> None:
        threads.add(threading.get_ident())
        if record.value == b"3":
            await others.wait()
        finished.add(record)
        if len(finished) == RECORDS - 1:
            others.set()

    async def main() -> parallel.Summary:
        async with AsyncShareConsumer("t", **options(written)) as consumer:
            return await process(consumer, handle, workers=4, order="none", executor="asyncio")

    summary = asyncio.run(main())
    assert (RECORDS, "stop", {1}) == (summary.processed, summary.reason, set(finished.values()))
    assert ({threading.get_ident()}, 0) == (threads, unfinished(written))


def test_a_cancelled_run(written: FakeCluster) -> None:
    """If the task is cancelled, what is finished is accepted, and all other records are released."""
    first, second = Finished(RECORDS + 1), Finished(RECORDS)
    stuck = asyncio.Event()

    async def handle(record: ConsumerRecord) -> None:
        if record.value in (b"3", b"8"):
            await stuck.wait()
        first.add(record)

    async def handle_rest(record: ConsumerRecord) -> None:
        second.add(record)

    async def main() -> parallel.Summary:
        async with AsyncShareConsumer("t", **options(written, consumer_timeout_ms=1000)) as consumer:
            task = asyncio.create_task(AsyncShareProcessor(consumer, handle, order="none").run())
            while len(first) < RECORDS - 2:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await process(consumer, handle_rest, order="none", executor="asyncio")

    summary = asyncio.run(main())
    assert (2, {b"3", b"8"}, 0) == (summary.processed, set(second), unfinished(written))


def test_wrong_arguments(written: FakeCluster) -> None:
    """What is not possible with an AsyncShareConsumer raises an error that says what to use."""

    async def main() -> None:
        async with AsyncShareConsumer("t", **options(written)) as consumer:
            with pytest.raises(ConfigError, match="use executor='asyncio'"):
                process(consumer, print, order="none")  # type: ignore[call-overload]
            with pytest.raises(ConfigError, match="use order='none'"):
                await process(consumer, asyncio.sleep, executor="asyncio")
            with pytest.raises(TypeError, match=r"takes a kconsumer.ShareConsumer, not AsyncShareConsumer"):
                ShareProcessor(consumer, print)
        with ShareConsumer("t", **options(written)) as other:
            wrong: Any = other
            with pytest.raises(TypeError, match=r"takes a kconsumer\.aio\.AsyncShareConsumer"):
                AsyncShareProcessor(wrong, asyncio.sleep)

    asyncio.run(main())
