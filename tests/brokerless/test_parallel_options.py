"""kconsumer.parallel with MockConsumer: attempts, retries, orders and time limits of handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.errors import TimeoutError
from kconsumer.parallel import Attempt, Retry, process
from kconsumer.testing import MockConsumer
from support.harnesses.parallel_handlers import fail_twice, sleep
from support.harnesses.parallel_runs import until

DEADLINE_S = 20.0
TP = TopicPartition("t", 0)


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    """A consumer of a partition with ten records, whose values are their offsets."""
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with MockConsumer(**options, consumer_timeout_ms=100) as consumer:
        consumer.assign([TP])
        consumer.add_records(TP, list(range(10)))
        yield consumer


@pytest.mark.parametrize("executor", ["threads", "processes", "asyncio"])
def test_a_handler_knows_its_attempt(consumer: MockConsumer, executor: Any, tmp_path: Path) -> None:
    """A handler of two arguments gets the number of the attempt, and how many remain."""
    path = tmp_path / "attempts"

    async def fail_async(record: ConsumerRecord, attempt: Attempt) -> None:
        fail_twice(path, record, attempt)

    handler: Any = fail_async if executor == "asyncio" else partial(fail_twice, path)
    summary = process(consumer, handler, workers=1, executor=executor, retry=Retry(attempts=3, backoff_s=0))
    assert (10, 20, 0) == (summary.processed, summary.retries, summary.failed)
    assert "0:1:2 0:2:1 0:3:0 1:1:2 " == path.read_text()[:24]


def test_errors_that_are_not_tried_again(consumer: MockConsumer) -> None:
    """They go to `on_failure` at once."""
    dead: list[object] = []

    def handler(record: ConsumerRecord) -> None:
        raise KeyError if record.value == 3 else ConnectionError

    retry = Retry(attempts=2, backoff_s=0, never=(KeyError,))
    summary = process(consumer, handler, retry=retry, on_failure=lambda record, error: dead.append(record.value))
    assert (10, 9, list(range(10))) == (summary.failed, summary.retries, dead)


def test_a_delay_function_that_raises_ends_the_run(consumer: MockConsumer) -> None:
    """Its error is raised, and the record is not committed."""

    def delay(failures: int) -> float:
        raise LookupError("in the function")

    def handler(record: ConsumerRecord) -> None:
        if record.value == 3:
            raise ValueError

    with pytest.raises(LookupError, match="in the function"):
        process(consumer, handler, retry=Retry(backoff_s=delay))
    assert 3 == consumer.committed_offsets()[TP].offset


def test_order_by_a_function(consumer: MockConsumer) -> None:
    """Records for which the function returns the same are processed one after the other; None is no order."""
    gate = threading.Event()
    started: list[int] = []

    def handler(record: ConsumerRecord) -> None:
        started.append(record.value)
        if record.value == 0:
            gate.wait(DEADLINE_S)

    def release() -> None:
        until(lambda: len(started) == 9)
        gate.set()

    thread = threading.Thread(target=release)
    thread.start()
    process(consumer, handler, order=lambda record: "same" if record.value in (0, 4) else None)
    thread.join()
    assert (4, 10) == (started[-1], len(started))


@pytest.mark.parametrize("executor", ["threads", "processes", "asyncio"])
def test_a_handler_that_takes_too_long(consumer: MockConsumer, executor: Any) -> None:
    """Its attempt fails, and the records behind it are processed. Only a thread is not tried again."""
    stuck = threading.Event()
    dead: list[tuple[object, type[BaseException]]] = []

    async def sleep_async(record: ConsumerRecord) -> None:
        if record.value == 4:
            await asyncio.sleep(600)

    def wait(record: ConsumerRecord) -> None:
        if record.value == 4:
            stuck.wait(DEADLINE_S)

    async def dead_letter_async(record: ConsumerRecord, error: BaseException) -> None:
        dead.append((record.value, type(error)))

    def dead_letter(record: ConsumerRecord, error: BaseException) -> None:
        dead.append((record.value, type(error)))

    summary = process(
        consumer,
        {"threads": wait, "processes": sleep, "asyncio": sleep_async}[executor],
        workers=1,
        executor=executor,
        handler_timeout_s=0.3,
        retry=Retry(attempts=2, backoff_s=0),
        on_failure=dead_letter_async if executor == "asyncio" else dead_letter,
    )
    stuck.set()
    assert [(4, TimeoutError)] == dead
    assert (9, 1, 0) == (summary.processed, summary.failed, summary.abandoned)
    assert (executor != "threads") == summary.retries
    assert 10 == consumer.committed_offsets()[TP].offset
