"""kconsumer.parallel with whole consumers on FakeCluster: executors, orders, rebalances, restarts, backpressure."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer.errors import RecordDeserializationError, WorkerProcessError
from kconsumer.parallel import Processor, Retry, Summary
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_handlers import die, die_once, fail_on
from support.harnesses.parallel_journal import Journal, out_of_order, overlaps
from support.harnesses.parallel_runs import run_until_finished, until

Handler = Callable[[ConsumerRecord], object]
RECORDS, PARTITIONS, KEYS = 300, 3, 20
ORDERS = ("partition", "key", "none")
EXECUTORS = ("threads", "processes", "asyncio")
PROTOCOLS = ("classic", "consumer")
DEADLINE_S = 30.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("orders", PARTITIONS)
        cluster.produce("orders", [(f"key-{n % KEYS}", str(n)) for n in range(RECORDS)])
        yield cluster


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    """Returns a member of the group."""
    chosen: dict[str, Any] = {
        "group_id": "workers",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "retry_backoff_ms": 20,
        **options,
    }
    if chosen.get("group_protocol") != "consumer":
        chosen.setdefault("heartbeat_interval_ms", 50)
    return Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, **chosen)


def ends(cluster: FakeCluster, group: str = "workers") -> int:
    """Returns the sum of the committed offsets."""
    return sum(committed.offset for committed in cluster.committed(group).values())


def run(
    source: Consumer, handler: Callable[[ConsumerRecord], object], records: int = RECORDS, **options: Any
) -> Summary:
    """Process records, and stop when this number is finished."""
    return run_until_finished(Processor(source, handler, **options), records)


class Member:
    """A member of the group in a thread of its own."""

    def __init__(self, cluster: FakeCluster, handler: Handler, **arguments: Any) -> None:
        names = ("group_protocol", "partition_assignment_strategy")
        options = {name: arguments.pop(name) for name in names if name in arguments}
        self.consumer = consumer(cluster, **options)
        self.processor = Processor(self.consumer, handler, **arguments)
        self.summary: Summary | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self.consumer:
                self.summary = self.processor.run()
        except BaseException as error:
            self.error = error

    def join(self) -> Summary:
        """Wait for the end, and return the summary."""
        self.thread.join(DEADLINE_S)
        assert (None, False) == (self.error, self.thread.is_alive())
        assert self.summary is not None
        return self.summary


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_all_records_are_processed_in_order(cluster: FakeCluster, journal: Journal, executor: Any, order: Any) -> None:
    """Each executor processes each record once, in the chosen order, and everything is committed."""
    protocol = PROTOCOLS[ORDERS.index(order) % 2]
    handler = journal.process_async if executor == "asyncio" else journal.process
    with consumer(cluster, group_protocol=protocol) as source:
        summary = run(source, handler, workers=4, order=order, executor=executor)
    assert {1} == set(journal.finished().values())
    assert (RECORDS, RECORDS, "stop") == (len(journal.finished()), summary.processed, summary.reason)
    assert ([], []) == (overlaps(journal.entries(), order), out_of_order(journal.entries(), order))
    assert (RECORDS, RECORDS) == (ends(cluster), sum(summary.committed.values()))
    assert {""} == {committed.metadata for committed in cluster.committed("workers").values()}
    assert (executor == "processes") == (os.getpid() not in {entry.process for entry in journal.entries()})


def test_no_more_records_are_taken_than_allowed(cluster: FakeCluster) -> None:
    """The positions are never more than `max_in_flight` beyond what is finished."""
    taken: list[int] = []
    with consumer(cluster) as source:
        processor: Processor

        def handler(record: ConsumerRecord) -> None:
            taken.append(processor._state.queue.in_flight)
            if len(taken) == RECORDS:
                processor.stop()

        processor = Processor(source, handler, workers=2, max_in_flight=10, order="none")
        assert RECORDS == processor.run().processed
    assert 10 >= max(taken)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_error_ends_the_run(cluster: FakeCluster, executor: Any) -> None:
    """With on_failure="stop", the error of the last attempt is raised with a note, and its record is not committed."""

    async def fail_async(record: ConsumerRecord) -> None:
        fail_on(55, record)

    handler = fail_async if executor == "asyncio" else partial(fail_on, 55)
    retry = Retry(attempts=2, backoff_s=0.01)
    with consumer(cluster) as source, pytest.raises(ValueError, match="record 55") as caught:
        run(source, handler, workers=2, order="none", executor=executor, retry=retry)
    assert caught.value.__notes__[-1].startswith("while processing orders-")
    assert caught.value.__notes__[-1].endswith(", attempt 2")
    assert (executor == "processes") == any("in the worker process" in note for note in caught.value.__notes__)
    repeated: list[bytes] = []
    with consumer(cluster) as source:
        run(source, lambda record: repeated.append(record.value), RECORDS - ends(cluster))
    assert b"55" in repeated


@pytest.mark.parametrize("executor", ["threads", "asyncio"])
def test_dead_letters(cluster: FakeCluster, executor: Any) -> None:
    """A callable gets the record and the error of the last attempt. The record is committed, and others do not wait."""
    dead: list[tuple[bytes, str]] = []

    async def fail_async(record: ConsumerRecord) -> None:
        fail_on(55, record)

    async def keep_async(record: ConsumerRecord, error: BaseException) -> None:
        dead.append((record.value, str(error)))

    def keep(record: ConsumerRecord, error: BaseException) -> None:
        dead.append((record.value, str(error)))

    asynchronous = executor == "asyncio"
    with consumer(cluster) as source:
        summary = run(
            source,
            fail_async if asynchronous else partial(fail_on, 55),
            executor=executor,
            retry=Retry(attempts=3, backoff_s=0.001),
            on_failure=keep_async if asynchronous else keep,
        )
    assert [(b"55", "record 55")] == dead
    assert (RECORDS - 1, 1, 2) == (summary.processed, summary.failed, summary.retries)
    assert RECORDS == ends(cluster)


@pytest.mark.parametrize("chosen", ["skip", "callable"])
def test_records_that_a_deserializer_refuses(cluster: FakeCluster, chosen: Any) -> None:
    """They are skipped, or go to the callable as bytes with the error of the deserializer, and are not tried again."""
    dead: list[tuple[object, type[BaseException]]] = []

    def number(data: bytes) -> int:
        if data == b"55":
            raise ValueError("not this one")
        return int(data)

    with consumer(cluster, value_deserializer=number) as source:
        summary = run(
            source,
            lambda record: None,
            on_failure="skip" if chosen == "skip" else lambda record, error: dead.append((record.value, type(error))),
        )
    assert [(b"55", RecordDeserializationError)] * (chosen == "callable") == dead
    assert (RECORDS - 1, 1, 0) == (summary.processed, summary.failed, summary.retries)
    assert RECORDS == ends(cluster)


def test_a_worker_process_that_dies_is_replaced(cluster: FakeCluster, tmp_path: Path) -> None:
    """The death of a process is a failed attempt. Another process is started, which tries again."""
    handler = partial(die_once, tmp_path / "marker")
    with consumer(cluster) as source:
        summary = run(source, handler, workers=2, executor="processes")
    assert (RECORDS, 1, RECORDS) == (summary.processed, summary.retries, ends(cluster))


def test_a_record_that_kills_processes_is_a_dead_letter(cluster: FakeCluster) -> None:
    """After the last attempt, the error says how the process died."""
    dead: list[BaseException] = []
    with consumer(cluster) as source:
        summary = run(
            source,
            die,
            workers=2,
            executor="processes",
            retry=Retry(attempts=2, backoff_s=0),
            on_failure=lambda record, error: dead.append(error),
        )
    assert (RECORDS - 1, 1) == (summary.processed, summary.failed)
    [error] = dead
    assert isinstance(error, WorkerProcessError)
    assert "died (killed by signal 9) while it processed a record; another one was started" in str(error)


def test_a_commit_with_metadata_that_are_too_long_is_repeated() -> None:
    """If the broker allows less metadata, shorter ones are committed."""
    with FakeCluster(offset_metadata_max_bytes=20) as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", [str(n) for n in range(400)])
        block, done = threading.Event(), []

        def handler(record: ConsumerRecord) -> None:
            if record.offset % 50 == 0:
                block.wait(DEADLINE_S)
            done.append(record.offset)

        member = Member(cluster, handler, workers=9, order="none", commit_interval_s=0.05, drain_timeout_s=0)
        until(lambda: len(done) == 392)
        until(lambda: cluster.committed("workers"))
        member.processor.stop()
        member.join()
        [committed] = cluster.committed("workers").values()
        assert (0, True) == (committed.offset, 0 < len(committed.metadata) <= 20)
        block.set()


def test_partitions_of_assign(cluster: FakeCluster) -> None:
    """A consumer with assigned partitions is processed and committed, too."""
    with consumer(cluster) as source:
        source.unsubscribe()
        source.assign([TopicPartition("orders", 1)])
        [records] = source.end_offsets([("orders", 1)]).values()
        summary = run(source, lambda record: None, records, order="key")
    assert {TopicPartition("orders", 1): summary.processed} == dict(summary.committed)
