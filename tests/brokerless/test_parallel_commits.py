"""kconsumer.parallel: a run that ends has committed what its handlers have finished. No record is skipped."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import RecordDeserializationError
from kconsumer.parallel import AsyncProcessor, Processor, Summary
from kconsumer.parallel.finished_offsets import encode
from kconsumer.testing import FakeCluster, MockConsumer
from support.harnesses.parallel_handlers import write_value
from support.harnesses.parallel_runs import options, run_with, until

DEADLINE_S = 20.0
TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of one partition."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", 1)
        yield cluster


def committed(cluster: FakeCluster) -> int | None:
    """Returns the committed offset."""
    found = cluster.committed("g").get(TP)
    return None if found is None else found.offset


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS"])
def test_a_commit_that_fails_after_the_stop_is_repeated(cluster: FakeCluster, error: str) -> None:
    """If a run is stopped while its periodic commit is in flight, and this fails, the offsets are committed again."""
    cluster.produce("t", [str(n) for n in range(10)])
    cluster.delay("OffsetCommit", 0.3)
    last_seen = threading.Event()

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 9:
            cluster.fail_next("OffsetCommit", error)
            last_seen.set()

    with Consumer("t", **options(cluster)) as consumer:
        processor = Processor(consumer, handle, commit_interval_s=0.05)

        def stop() -> None:
            until(lambda: last_seen.is_set() and processor._state.commits._in_flight)
            processor.stop()

        summary = run_with(processor, stop)
    assert ({TP: 10}, 10) == (summary.committed, committed(cluster))


def test_a_cancelled_run_commits_what_finished_during_a_commit(cluster: FakeCluster) -> None:
    """If the task is cancelled while a commit is in flight, what has finished since is committed, too."""
    cluster.produce("t", [str(n) for n in range(200)])
    cluster.delay("OffsetCommit", 0.3)
    finished: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.005)
        finished.append(record.offset)

    async def run() -> int | None:
        async with AsyncConsumer("t", **options(cluster)) as consumer:
            processor = AsyncProcessor(consumer, handle, workers=1, commit_interval_s=0.05)
            task = asyncio.create_task(processor.run())
            while not processor._state.commits._in_flight or len(finished) < 20:
                await asyncio.sleep(0.005)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return committed(cluster)

    assert asyncio.run(run()) == len(finished) < 200


def test_a_callback_and_a_handler_that_commit_without_offsets() -> None:
    """commit() without offsets, in a rebalance callback or a handler, commits no record that is not finished."""
    revoked = threading.Event()
    finished: list[int] = []
    in_handlers: set[TopicPartition] = set()
    arguments = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with MockConsumer(**arguments, consumer_timeout_ms=100) as consumer:

        def handle(record: ConsumerRecord) -> None:
            consumer.commit_async()
            in_handlers.update(consumer.committed_offsets())
            assert revoked.wait(DEADLINE_S)
            finished.append(record.offset)

        def rebalance() -> None:
            revoked.set()
            consumer.rebalance([])

        consumer.subscribe(["t"], on_revoke=lambda consumer, _: consumer.commit())
        consumer.rebalance([TP])
        consumer.add_records(TP, range(1000))
        for call in (bool, rebalance):
            consumer.schedule(call)
        Processor(consumer, handle, workers=1).run()
        assert consumer.committed_offsets()[TP].offset == len(finished) < 1000
    assert not in_handlers


def test_a_coroutine_that_commits_without_offsets(cluster: FakeCluster) -> None:
    """A handler that awaits commit() of its AsyncConsumer commits no record that is not finished."""
    cluster.produce("t", [str(n) for n in range(10)])
    early: list[int] = []

    async def run() -> Summary:
        async with AsyncConsumer("t", **options(cluster)) as consumer:

            async def handle(record: ConsumerRecord) -> None:
                await consumer.commit()
                if (committed(cluster) or 0) > record.offset:
                    early.append(record.offset)
                if record.offset == 9:
                    processor.stop()

            processor = AsyncProcessor(consumer, handle, workers=1)
            return await processor.run()

    assert (10, []) == (asyncio.run(run()).processed, early)


@pytest.mark.parametrize("polls", [True, False])
def test_commits_continue_while_handlers_are_waited_for(cluster: FakeCluster, polls: bool) -> None:
    """What finishes after the stop is committed before the last handler returns, though the last poll has failed."""
    cluster.produce("t", [str(n) for n in range(2)])
    slow, stuck = threading.Event(), threading.Event()
    started: list[int] = []

    def handler(record: ConsumerRecord) -> None:
        started.append(record.offset)
        (stuck if record.offset else slow).wait(DEADLINE_S)

    with Consumer("t", **options(cluster, value_deserializer=int)) as consumer:
        processor = Processor(consumer, handler, order="none", commit_interval_s=0.05)

        def stop() -> None:
            until(lambda: len(started) == 2)
            if polls:
                processor.stop()
            else:
                cluster.produce("t", ["refused"])
                until(lambda: processor._state.queue._closed)
            slow.set()
            until(lambda: committed(cluster) == 1)
            stuck.set()

        if polls:
            assert 2 == run_with(processor, stop).processed
        else:
            with pytest.raises(RecordDeserializationError):
                run_with(processor, stop)
    assert 2 == committed(cluster)


def test_a_callable_that_does_not_return_does_not_end_the_run_with_an_error(cluster: FakeCluster) -> None:
    """A coroutine of on_failure that still runs at the end of the drain time is abandoned as a handler is."""
    cluster.produce("t", [str(n) for n in range(3)])
    started: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        if record.offset == 1:
            raise ValueError

    async def dead_letter(record: ConsumerRecord, error: BaseException) -> None:
        started.append(record.offset)
        await asyncio.sleep(600)

    arguments: dict[str, Any] = {"order": "none", "retry": None, "on_failure": dead_letter, "drain_timeout_s": 0.05}

    async def run() -> Summary:
        async with AsyncConsumer("t", **options(cluster, group_id="h")) as consumer:
            processor = AsyncProcessor(consumer, handle, **arguments)
            task = asyncio.create_task(processor.run())
            while len(started) < 2 or processor.summary().processed < 2:
                await asyncio.sleep(0.005)
            processor.stop()
            return await task

    with Consumer("t", **options(cluster)) as consumer:
        processor = Processor(consumer, handle, executor="asyncio", **arguments)

        def stop() -> None:
            until(lambda: started and processor.summary().processed == 2)
            processor.stop()

        summaries = [run_with(processor, stop), asyncio.run(run())]
    assert [("stop", 1, 0)] * 2 == [(summary.reason, summary.abandoned, summary.failed) for summary in summaries]
    assert 1 == committed(cluster)


def test_a_refused_record_keeps_the_order_of_its_key(cluster: FakeCluster) -> None:
    """With order="key", a record whose value is refused waits for earlier ones of its key, and later ones for it."""
    cluster.produce("t", [("k", "1"), ("k", "2"), ("k", "bad"), ("k", "4")])
    calls: list[tuple[object, object]] = []

    def deserialize(data: bytes) -> int:
        return int(data)

    def handler(record: ConsumerRecord) -> None:
        time.sleep(0.01)  # so that a record that does not wait would overtake
        calls.append((record.key, record.value))

    def stop() -> None:
        until(lambda: len(calls) == 4)
        processor.stop()

    with Consumer("t", **options(cluster, key_deserializer="str", value_deserializer=deserialize)) as consumer:
        processor = Processor(consumer, handler, order="key", on_failure=lambda record, error: handler(record))
        run_with(processor, stop)
    assert [("k", 1), ("k", 2), (b"k", b"bad"), ("k", 4)] == calls


def test_a_seek_back_over_gaps_processes_again(cluster: FakeCluster) -> None:
    """After a seek back, finished records are processed again, also if the first poll returns only a position."""
    cluster.produce("t", [str(n) for n in range(50)])
    for _ in range(3):  # offsets without records
        with suppress(LookupError), cluster.transaction() as transaction:
            transaction.produce("t", [b"x"] * 5)
            raise LookupError
    cluster.produce("t", [str(n) for n in range(100)])
    chosen = options(cluster, isolation_level="read_committed", max_partition_fetch_bytes=1, fetch_max_bytes=1)
    got: list[int] = []
    with Consumer(**chosen, consumer_timeout_ms=1000) as consumer:
        consumer.assign([TP])
        consumer.commit({TP: OffsetAndMetadata(100, encode(100, [(110, 130)])[0], None)})
        consumer.seek(TP, 52)
        Processor(consumer, lambda record: got.append(record.offset)).run()
    assert list(range(68, 168)) == got


def test_a_worker_process_that_dies_idle_costs_no_attempt(cluster: FakeCluster, tmp_path: Path) -> None:
    """The record after its death is processed by the next process, though a failed attempt would have skipped it."""
    cluster.produce("t", ["1"])
    path = tmp_path / "handled"
    with Consumer("t", **options(cluster)) as consumer:
        handler = partial(write_value, path)
        processor = Processor(consumer, handler, workers=1, executor="processes", retry=None, on_failure="skip")

        def kill() -> None:
            until(lambda: processor.summary().processed == 1)
            [process] = multiprocessing.active_children()
            process.kill()
            process.join()
            cluster.produce("t", ["2", "3"])
            until(lambda: path.read_text() == "1\n2\n3\n")
            processor.stop()

        summary = run_with(processor, kill)
    assert (3, 0, 0) == (summary.processed, summary.failed, summary.retries)


def test_no_process_is_started_after_the_end() -> None:
    """A worker process that must be replaced while the run ends is not replaced, so that none is left."""
    from kconsumer.parallel.processes import WorkerProcess

    process = WorkerProcess(pickle.dumps(print), 0)
    process.start()
    first = process._process
    assert first is not None
    process.end()
    first.join(DEADLINE_S)
    with pytest.raises(Exception, match="the run has ended"):
        process.start()
    assert (first, False) == (process._process, first.is_alive())
