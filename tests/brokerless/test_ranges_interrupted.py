"""When an exception is raised at any call, ranges and topics are read exactly or end with an error that says so."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import FrameType
from typing import Any

import pytest

from kconsumer.arrow import RecordBatch, Table
from kconsumer.errors import StateError
from kconsumer.ranges import Gap, RangeClient, RangeReader, TopicReader, scan_topic
from kconsumer.records import ConsumerRecords
from support.fakes.log_broker import BATCHES, GAPS, OFFSETS, SPAN, LogBroker, compacted
from support.harnesses.interruptions import (
    Interruption,
    Tracer,
    arrival,
    handler,
    no_thread_left,
    points,
    raising,
)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
ENGINES = ["classic", "threaded"]
ROWS = 25
STRIDE = 29  # reading a topic makes thousands of calls, most of them while it connects


@pytest.fixture(scope="module")
def broker() -> Iterator[LogBroker]:
    """A broker with two partitions that have the same records."""
    with compacted() as broker:
        yield broker


@pytest.fixture(autouse=True)
def _handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the handler. Python only prints an exception in a destructor or a generator that is being closed; the
    test ignores such output.
    """
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with handler(signal.SIGUSR1, raising):
        yield


def offsets(batches: Sequence[RecordBatch]) -> list[int]:
    """Returns the offsets of the rows of batches."""
    return Table(batches[0].columns, batches).to_pyarrow().column("offset").to_pylist() if batches else []


def open_range(client: RangeClient) -> RangeReader:
    """Open a reader of all of partition 0 but its last two offsets."""
    return client.read_range(("t", 0), 0, SPAN * BATCHES - 2, columns=["offset", "partition"], max_rows=ROWS)


def read_on(reader: RangeReader | TopicReader, point: int, batches: list[RecordBatch]) -> int:
    """Read to the end in spite of one interruption. Returns how often reading was interrupted."""
    interrupted, ended = 0, False
    tracer = Tracer(point, arrival(signal.SIGUSR1), everywhere=True)
    while not ended:
        try:
            tracer.start()
            for batch in reader:  # a `for` loop makes no call between receiving a batch and storing it, unlike next()
                batches.append(batch)
            ended = True
            tracer.stop()
        except Interruption:
            interrupted += 1
        except RuntimeError as error:
            # A Condition of `threading` that is interrupted while it waits raises "release unlocked lock".
            if not isinstance(error.__context__, Interruption):
                raise
            interrupted += 1
        finally:
            tracer.stop()
    return interrupted


@pytest.mark.parametrize("engine", ENGINES)
def test_a_range_interrupted_at_any_call(broker: LogBroker, engine: str) -> None:
    """After an exception at the n-th call inside `next()`, for each n, the reader continues: it returns every row once,
    and every offset without a row in a gap with the correct reason.
    """
    expected = (OFFSETS, (*GAPS[:-1], Gap(GAPS[-1].start, GAPS[-1].end - 2, "compaction")))
    number, whole, remaining = 0, 0, points(ENGINES.index(engine), STRIDE)
    with RangeClient(bootstrap_servers=broker.address, engine=engine) as client:
        while whole < 3:  # the number of calls depends on other threads: a run with few calls is not the last
            number = next(remaining)
            batches: list[RecordBatch] = []
            reader = open_range(client)
            whole = 0 if read_on(reader, number, batches) else whole + 1
            assert expected == (offsets(batches), reader.gaps), f"interrupted at call {number}"
    assert number > 300


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_topic_interrupted_at_any_call(broker: LogBroker, engine: str, threads: int) -> None:
    """An exception at the n-th call inside `next()`, for each n, ends reading with an error or does not end it.

    StopIteration is raised only after every row, and no thread is left.
    """
    number, whole, failed, remaining = 0, 0, 0, points(2 * ENGINES.index(engine) + threads, STRIDE)
    while whole < 3:  # the number of calls depends on other threads: a run with few calls is not the last
        number = next(remaining)
        batches: list[RecordBatch] = []
        reader = scan_topic(
            "t",
            bootstrap_servers=broker.address,
            end=SPAN * BATCHES,
            columns=["offset", "partition"],
            max_rows=ROWS,
            threads=threads,
            engine=engine,
        )
        try:
            whole = 0 if read_on(reader, number, batches) else whole + 1
        except StateError:
            failed += 1
            whole = 0
        else:
            assert sorted(OFFSETS * 2) == sorted(offsets(batches)), f"interrupted at call {number}"
        assert no_thread_left("kconsumer-topic")
    assert number > 300
    assert failed


def test_a_closed_topic_reader_says_so(broker: LogBroker) -> None:
    """After `close()` in the middle, `next()` raises StateError; after `close()` at the end, it raises
    StopIteration.
    """
    with scan_topic("t", bootstrap_servers=broker.address, threads=1, max_rows=ROWS) as reader:
        next(reader)
        reader.close()
        with pytest.raises(StateError, match="closed"):
            next(reader)
    with scan_topic("t", bootstrap_servers=broker.address) as reader:
        batches = list(reader)
    assert (2 * (len(OFFSETS) + 100), []) == (sum(map(len, batches)), list(reader))


def test_memory_error_while_columns_are_built(broker: LogBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose columns could not be built for lack of memory is read again."""
    to_arrow = ConsumerRecords.to_arrow
    failures = [MemoryError(), MemoryError()]

    def failing(self: ConsumerRecords, *arguments: Any, **options: Any) -> RecordBatch:
        if len(batches) == 1 and failures:
            raise failures.pop()
        return to_arrow(self, *arguments, **options)

    monkeypatch.setattr(ConsumerRecords, "to_arrow", failing)
    batches: list[RecordBatch] = []
    with RangeClient(bootstrap_servers=broker.address) as client:
        reader = open_range(client)
        for attempt in range(3):
            with pytest.raises(MemoryError) if attempt < 2 else nullcontext():
                batches.extend(reader)
    assert OFFSETS == offsets(batches)


@pytest.mark.parametrize("engine", ENGINES)
def test_ranges_under_real_signals(broker: LogBroker, engine: str) -> None:
    """Signals whose handler raises arrive at random moments for a second; every range is read exactly."""
    rng, armed, interrupted = random.Random(engine), False, 0

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if armed:
            raise Interruption

    end = time.monotonic() + 1.0
    with (
        handler(signal.SIGALRM, interrupt),
        RangeClient(bootstrap_servers=broker.address, engine=engine) as client,
    ):
        try:
            while time.monotonic() < end or not interrupted:
                reader = open_range(client)
                batches: list[RecordBatch] = []
                while not reader.ended:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.01))
                    try:
                        armed = True
                        for batch in reader:
                            batches.append(batch)
                        armed = False
                    except Interruption:
                        armed = False
                        interrupted += 1
                assert OFFSETS == offsets(batches)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
