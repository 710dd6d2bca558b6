"""kconsumer.parallel with batches, with whole consumers on FakeCluster: executors, orders, failures, share groups."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, ShareConsumer, groups
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import TimeoutError
from kconsumer.parallel import Batch, PartialBatchError, Processor, Retry, ShareProcessor, process
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_handlers import hang, insert, insert_async, process_each, process_each_async
from support.harnesses.parallel_journal import Journal, out_of_order, overlaps
from support.harnesses.parallel_runs import run_until_finished, run_with, until

RECORDS, PARTITIONS, KEYS = 300, 3, 20
ORDERS = ("partition", "key", "none")
EXECUTORS = ("threads", "processes", "asyncio")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of three partitions."""
    with FakeCluster(group_share_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        cluster.produce("orders", [(f"key-{n % KEYS}", str(n)) for n in range(RECORDS)])
        cluster.configure_group("shared", share_auto_offset_reset="earliest")
        yield cluster


@pytest.fixture
def source(cluster: FakeCluster) -> Iterator[Consumer]:
    """A member of a group."""
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options) as consumer:
        yield consumer


def committed(cluster: FakeCluster) -> int:
    """Returns the sum of the committed offsets."""
    return sum(committed.offset for committed in cluster.committed("g").values())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_all_records_are_processed_in_order(
    cluster: FakeCluster, source: Consumer, tmp_path: Path, executor: Any, order: Any
) -> None:
    """Though a handler fails for some records of its batches, none is lost, and orders hold."""
    journal = Journal(tmp_path / "journal", fails=0.05)
    handler: Any = process_each_async if executor == "asyncio" else process_each
    options: dict[str, Any] = {"workers": 4, "batch": Batch(8, 0.01), "retry": Retry(20, 0.001)}
    processor = Processor(source, partial(handler, journal), order=order, executor=executor, **options)
    summary = run_until_finished(processor, RECORDS)
    assert (RECORDS, RECORDS, 0) == (len(journal.finished()), summary.processed, summary.failed)
    assert order != "none" or {1} == set(journal.finished().values())
    assert ([], []) == (overlaps(journal.entries(), order), out_of_order(journal.entries(), order))
    assert RECORDS == committed(cluster)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_bad_record_fails_alone(cluster: FakeCluster, source: Consumer, tmp_path: Path, executor: Any) -> None:
    """A batch that fails as a whole is tried again, the last time record by record, so only bad ones are given up."""
    dead: list[tuple[bytes, str]] = []
    options: dict[str, Any] = {"workers": 2, "order": "none", "batch": Batch(50), "retry": Retry(3, 0)}
    processor = Processor(
        source,
        partial(insert_async if executor == "asyncio" else insert, tmp_path / "batches"),
        executor=executor,
        on_failure=lambda record, error: dead.append((record.value, str(error))),
        **options,
    )
    summary = run_until_finished(processor, RECORDS)
    assert {(b"7", "a bad row"), (b"11", "a bad row")} == set(dead)
    assert (2, RECORDS - 2, RECORDS) == (summary.failed, summary.processed, committed(cluster))
    batches = (tmp_path / "batches").read_text().split()
    assert {"1:3"} == {batch for batch in batches if batch.endswith(":3")}
    assert max(int(batch.split(":")[0]) for batch in batches) > 1


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_batch_that_takes_too_long(source: Consumer, tmp_path: Path, executor: Any) -> None:
    """A process is killed, and its batch tried again. A thread is replaced, and its batch is given up."""
    dead: list[type] = []
    processor = Processor(
        source,
        partial(hang, tmp_path / "marker"),
        workers=2,
        order="none",
        executor=executor,
        batch=Batch(20),
        handler_timeout_s=0.5,
        retry=Retry(3, 0),
        on_failure=lambda record, error: dead.append(type(error)),
    )
    summary = run_until_finished(processor, RECORDS)
    (tmp_path / "marker").unlink()  # ends the thread that was replaced
    if executor == "processes":
        assert (RECORDS, 0) == (summary.processed, summary.failed)
    else:
        assert {TimeoutError} == set(dead)
        assert (RECORDS, len(dead)) == (summary.processed + summary.failed, summary.failed)


def test_a_stop_waits_for_batches(cluster: FakeCluster, source: Consumer) -> None:
    """Batches that run are finished and committed, and no others are started."""
    started, gate = threading.Event(), threading.Event()
    done: list[int] = []

    def handler(records: list[ConsumerRecord]) -> None:
        started.set()
        gate.wait(20)
        done.extend(record.offset for record in records)

    processor = Processor(source, handler, workers=2, batch=Batch(10), order="key")

    def stop() -> None:
        until(started.is_set)
        processor.stop()
        gate.set()

    summary = run_with(processor, stop)
    assert 0 < summary.processed == len(done) <= 20
    assert 0 == summary.abandoned
    processor = Processor(source, lambda records: done.extend(record.offset for record in records), batch=Batch(50))
    run_until_finished(processor, RECORDS - summary.processed)
    assert (RECORDS, RECORDS) == (len(done), committed(cluster))


def test_a_failure_that_ends_the_run(cluster: FakeCluster, source: Consumer) -> None:
    """What the other records of the batch have finished is committed, and is not processed again."""
    calls: list[bytes] = []

    def handler(records: list[ConsumerRecord]) -> None:
        calls.extend(record.value for record in records)
        if b"7" in calls[-len(records) :] and not fixed:
            raise PartialBatchError([at for at, record in enumerate(records) if record.value == b"7"], "no room")

    fixed: list[bool] = []
    with pytest.raises(PartialBatchError, match="no room") as raised:
        Processor(source, handler, workers=1, order="none", batch=Batch(RECORDS), retry=None).run()
    assert len(raised.value.__notes__) == 1
    fixed.append(True)
    left = RECORDS - len(calls) + 1
    processor = Processor(source, handler, order="none", batch=Batch(RECORDS))

    def stop() -> None:
        until(lambda: processor.summary().processed == left)
        processor.stop()

    run_with(processor, stop)
    assert {b"7": 2} == {value: count for value, count in Counter(calls).items() if count > 1}
    assert (RECORDS, RECORDS) == (len(set(calls)), committed(cluster))


def test_an_async_consumer(cluster: FakeCluster) -> None:
    """Batches are processed in its event loop."""
    sizes: list[int] = []

    async def handler(records: list[ConsumerRecord]) -> None:
        await asyncio.sleep(0.001)
        sizes.append(len(records))

    async def run() -> None:
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AsyncConsumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", consumer_timeout_ms=300, **options
        ) as consumer:
            await process(consumer, handler, executor="asyncio", workers=3, batch=Batch(20))

    asyncio.run(run())
    assert (RECORDS, RECORDS) == (sum(sizes), committed(cluster))
    assert 20 == max(sizes)


@pytest.mark.network_thread
def test_a_share_group(cluster: FakeCluster) -> None:
    """Records of a batch are accepted or rejected each by itself."""
    rejected: list[bytes] = []
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "shared"}
    with ShareConsumer("orders", **options, share_acknowledgement_mode="explicit") as consumer:
        processor = ShareProcessor(
            consumer,
            partial(insert, Path("/dev/null")),
            workers=2,
            order="none",
            batch=Batch(20, 0.01),
            retry=Retry(2, 0),
            on_failure=lambda record, error: rejected.append(record.value),
        )
        summary = run_until_finished(processor, RECORDS)
    assert ([b"11", b"7"], RECORDS - 2) == (sorted(rejected), summary.processed)
    servers = cluster.bootstrap_servers
    assert {0} == {offset.lag for offset in groups.offsets("shared", bootstrap_servers=servers).values()}
