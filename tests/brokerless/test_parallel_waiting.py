"""kconsumer.parallel with MockConsumer: a record, key or partition that waits holds back no other."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.parallel import Processor, Retry
from kconsumer.testing import MockConsumer
from support.harnesses.parallel_runs import until

DEADLINE_S = 20.0
LATER = Retry(attempts=2, backoff_s=1000, max_backoff_s=1000)
PARTITIONS = [TopicPartition("t", n) for n in range(4)]


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    """A consumer with four partitions without records, which never runs idle."""
    options: dict[str, Any] = {"buffer_memory": 4_000_000}
    with MockConsumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options) as consumer:
        consumer.assign(PARTITIONS)
        yield consumer


def add(consumer: MockConsumer, tp: TopicPartition, keys: list[str], value: str = "") -> None:
    """Add a record for each key."""
    log_end = consumer.end_offsets([tp])[tp]
    records = [ConsumerRecord(tp.topic, tp.partition, log_end + n, key=key, value=value) for n, key in enumerate(keys)]
    consumer.add_records(tp, records)


class Run:
    """A run in the background, which is stopped at the end of a block."""

    def __init__(self, consumer: MockConsumer, handler: Callable[[ConsumerRecord], object], **arguments: Any) -> None:
        self.processor = Processor(consumer, handler, drain_timeout_s=0, **arguments)
        self.thread = threading.Thread(target=self.processor.run)

    def __enter__(self) -> Processor:
        self.thread.start()
        return self.processor

    def __exit__(self, *error: object) -> None:
        self.processor.stop()
        self.thread.join(DEADLINE_S)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_failing_shard_holds_back_no_other(consumer: MockConsumer, order: Any) -> None:
    """While a partition or key waits for retries, all records of the others are processed, and it is paused alone."""
    for tp in PARTITIONS:
        add(consumer, tp, ["bad" if tp.partition == 0 else f"key-{n}" for n in range(3000)])
    done: Counter[int] = Counter()

    def handler(record: ConsumerRecord) -> None:
        if record.key == "bad":
            raise ConnectionError
        done[record.partition] += 1

    with Run(consumer, handler, workers=4, order=order, max_in_flight=100, retry=LATER):
        until(lambda: done.total() == 9000)
        until(lambda: consumer.paused() == {PARTITIONS[0]})
    assert {1: 3000, 2: 3000, 3: 3000} == done


def test_a_failing_shard_holds_back_no_slow_one(consumer: MockConsumer) -> None:
    """If all partitions were paused until slow handlers return, those that do not wait for retries are resumed."""
    add(consumer, PARTITIONS[0], ["bad"] * 3000)
    add(consumer, PARTITIONS[1], [f"key-{n}" for n in range(1000)])
    released, done = threading.Event(), deque[int]()

    def handler(record: ConsumerRecord) -> None:
        if record.key == "bad":
            raise ConnectionError
        assert released.wait(DEADLINE_S)
        done.append(record.offset)

    with Run(consumer, handler, workers=2, order="key", max_in_flight=100, retry=LATER):
        until(lambda: consumer.paused() == set(PARTITIONS))
        released.set()
        until(lambda: len(done) == 1000)


def test_a_hot_key_holds_back_no_other(consumer: MockConsumer) -> None:
    """A quarter of the records have a key that is processed only when all others are finished."""
    add(consumer, PARTITIONS[0], ["hot" if n % 4 == 0 else f"key-{n}" for n in range(3000)])
    done: Counter[bool] = Counter()

    def handler(record: ConsumerRecord) -> None:
        if record.key == "hot":
            until(lambda: done[False] == 2250)
        done[record.key == "hot"] += 1

    with Run(consumer, handler, workers=3, order="key", max_in_flight=100):
        until(lambda: done.total() == 3000)
    assert {True: 750, False: 2250} == done


def test_records_that_wait_are_bounded_in_bytes(consumer: MockConsumer) -> None:
    """Behind a key that waits, no more records are held than its partition's share of `buffer_memory`."""
    values = [ConsumerRecord("t", 0, n, key="bad", value="", serialized_value_size=50_000) for n in range(500)]
    consumer.add_records(PARTITIONS[0], values)

    def handler(record: ConsumerRecord) -> None:
        raise ConnectionError

    with Run(consumer, handler, workers=1, order="key", max_in_flight=10, retry=LATER) as processor:
        until(lambda: PARTITIONS[0] in consumer.paused())
        position = processor._state.trackers[PARTITIONS[0]].end
    assert 80 <= position <= 80 + 10 + 1  # 4 MB


def test_a_partition_continues_when_half_has_drained(consumer: MockConsumer) -> None:
    """With small limits, a single partition is paused and resumed often, and everything is processed in order."""
    add(consumer, PARTITIONS[0], [""] * 500)
    done: list[int] = []
    with Run(consumer, lambda record: done.append(record.offset), workers=1, order="partition", max_in_flight=4):
        until(lambda: len(done) == 500)
    assert list(range(500)) == done
