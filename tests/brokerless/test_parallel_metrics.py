"""The metrics of kconsumer.parallel, and the warning about a record that remains unfinished."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer._core.lock import Clock
from kconsumer.parallel import Processor, Retry
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.run_metrics import WARNING_MS
from kconsumer.testing import MockConsumer

TP = TopicPartition("t", 0)


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    """A consumer of a partition with ten records, whose values are their offsets."""
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with MockConsumer(**options, consumer_timeout_ms=100) as consumer:
        consumer.assign([TP])
        consumer.add_records(TP, [ConsumerRecord("t", 0, n, key=f"key-{n}", value=n) for n in range(10)])
        yield consumer


def test_metrics_of_a_run(consumer: MockConsumer) -> None:
    """Counts, times and states are among the metrics of the consumer, and `Processor.metrics` returns them."""

    def handler(record: ConsumerRecord) -> None:
        if record.value == 3:
            raise ValueError

    processor = Processor(consumer, handler, retry=Retry(attempts=3, backoff_s=0), on_failure="skip")
    assert {} == processor.metrics()
    processor.run()
    found = {name.name: value for name, value in processor.metrics().items()}
    assert set(processor.metrics()) <= set(consumer.metrics())
    counts = ("records-processed-total", "records-failed-total", "retries-total", "records-in-flight", "suspended")
    assert [9, 1, 2, 0, 0] == [found[name] for name in counts]
    assert 0 <= found["handler-time-avg"] <= found["handler-time-max"]


class SetClock(Clock):
    """A clock that a test moves."""

    moved_ms = 0.0

    def now(self) -> float:
        """Returns the time, with what the test has added."""
        return super().now() + self.moved_ms


class MovedProcessor(Processor):
    """A run with a clock that a test moves."""

    clock = SetClock()

    def _create_concurrency(self) -> Concurrency:
        return Concurrency(self.clock)


def test_a_record_that_remains_unfinished(consumer: MockConsumer, caplog: pytest.LogCaptureFixture) -> None:
    """A warning names it, its key, its age and what it waits for, and is repeated after twice the time."""
    started, stuck = threading.Event(), threading.Event()

    def handler(record: ConsumerRecord) -> None:
        if record.value == 4:
            started.set()
            stuck.wait(20.0)

    def lines() -> list[str]:
        return [message for message in caplog.messages if "has been unfinished" in message]

    processor = MovedProcessor(consumer, handler)
    thread = threading.Thread(target=processor.run)
    with caplog.at_level(logging.WARNING):
        thread.start()
        end = time.monotonic() + 20.0
        while len(lines()) < 2 and time.monotonic() < end:
            time.sleep(0.002)
            processor.clock.moved_ms += 1000.0 * started.is_set()
        stuck.set()
        thread.join(20.0)
    found = [re.fullmatch(r"t-0 offset 4 \(key 'key-4'\) has been unfinished for (\d+) s: (.*)", x) for x in lines()]
    assert {"its handler has not returned"} == {match[2] for match in found if match}
    first, second = (int(match[1]) for match in found[:2] if match)
    assert WARNING_MS / 1000 <= first < 2 * first <= second
