"""`for record in consumer`: which records a loop that stops early has consumed, and how loops end."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.errors import StateError, WakeupError
from support.brokers.kafka import Kafka
from support.harnesses.polling import later, numbered, poll_until, read, tps, values
from support.harnesses.stopwatch import Stopwatch

New = Callable[..., Consumer]


@pytest.fixture
def two(kafka: Kafka, topic_name: str) -> tuple[TopicPartition, ...]:
    """Two partitions with the values 0 to 9 each."""
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, numbered(10), partition=partition)
    return tps(topic_name, 0, 1)


def take(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of a loop that breaks after `count` records."""
    seen: list[bytes | None] = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == count:
            break
    return seen


def test_loop_over_all_records_ends_after_consumer_timeout(ten: TopicPartition, new_consumer: New) -> None:
    """The loop ends when no record arrives for consumer_timeout_ms; another loop continues after it."""
    consumer = new_consumer(consumer_timeout_ms=700)
    consumer.assign([ten])
    watch = Stopwatch()
    assert numbered(10) == values(consumer)
    assert 0.7 <= watch.clock()
    assert watch.seconds() < 3
    assert [] == list(consumer)
    consumer.seek(ten, 8)
    assert numbered(2, 8) == values(consumer)


def test_consumer_timeout_of_zero_does_not_wait(ten: TopicPartition, new_consumer: New) -> None:
    """With consumer_timeout_ms=0 the loop ends as soon as no record is available."""
    consumer = new_consumer(consumer_timeout_ms=0, fetch_max_wait_ms=3000)
    consumer.assign([ten])
    watch = Stopwatch()
    assert [] == list(consumer)
    assert watch.seconds() < 1.0


def test_records_arriving_later_keep_the_loop_going(kafka: Kafka, ten: TopicPartition, new_consumer: New) -> None:
    """The timeout counts from the last batch, not from the start of the loop."""
    consumer = new_consumer(consumer_timeout_ms=1500)
    consumer.assign([ten])
    more = [later(delay, lambda: kafka.produce(ten.topic, [b"more"])) for delay in (1.0, 2.0)]
    assert [*numbered(10), b"more", b"more"] == values(consumer)
    for timer in more:
        timer.join()


def test_break_skips_nothing(ten: TopicPartition, new_consumer: New) -> None:
    """After a break in the middle of a batch the next loop, or poll, continues with the next record."""
    consumer = new_consumer()
    consumer.assign([ten])
    assert numbered(3) == take(consumer, 3)
    assert 3 == consumer.position(ten)
    assert numbered(4, 3) == take(consumer, 4)
    assert numbered(3, 7) == values(read(consumer, 3))
    assert 10 == consumer.position(ten)


def test_break_at_the_last_record_of_a_batch(ten: TopicPartition, new_consumer: New) -> None:
    """A loop that breaks at the last record of a batch leaves the position after that batch."""
    consumer = new_consumer(max_poll_records=5)
    consumer.assign([ten])
    assert numbered(5) == take(consumer, 5)
    assert 5 == consumer.position(ten)
    assert numbered(5, 5) == take(consumer, 5)


def test_commit_inside_a_loop_includes_the_record_at_hand(ten: TopicPartition, new_consumer: New) -> None:
    """commit() and commit_async() in the loop's body commit the position after the present record, not after
    the batch.
    """
    consumer = new_consumer(group_id=ten.topic, enable_auto_commit=False)
    consumer.assign([ten])
    for record in islice(consumer, 4):
        assert record.offset + 1 == consumer.position(ten)
        consumer.commit()
        assert record.offset + 1 == consumer.committed([ten])[ten].offset
    done: list[object] = []
    consumer.commit_async(callback=lambda offsets, error: done.append((offsets[ten].offset, error)))
    poll_until(consumer, lambda: done)
    assert [(4, None)] == done


def test_commit_after_a_break_with_several_partitions(
    two: tuple[TopicPartition, ...], topic_name: str, new_consumer: New
) -> None:
    """After a break, a partition without a yielded record is committed at its first record, and the other at the next
    record.
    """
    consumer = new_consumer(group_id=topic_name, enable_auto_commit=False)
    consumer.assign(two)
    seen = list(islice(consumer, 13))
    ends = {tp: sum(record.topic_partition == tp for record in seen) for tp in two}
    consumer.commit()
    assert ends == {tp: c.offset for tp, c in consumer.committed(two).items() if c is not None}
    rest = read(consumer, 7)
    assert {tp: list(range(ends[tp], 10)) for tp in two if ends[tp] < 10} == {
        tp: [r.offset for r in rest if r.topic_partition == tp] for tp in {r.topic_partition for r in rest}
    }


def test_close_after_a_break_commits_what_was_seen(kafka: Kafka, ten: TopicPartition, new_consumer: New) -> None:
    """After a break, auto-commit in close() covers only yielded records; the next member continues after them."""
    consumer = new_consumer(ten.topic, group_id=ten.topic)
    assert numbered(6) == take(consumer, 6)
    consumer.close()
    assert {0: 6} == kafka.committed(ten.topic, ten.topic)
    following = new_consumer(ten.topic, group_id=ten.topic)
    assert numbered(4, 6) == values(read(following, 4))


def test_interval_commit_after_a_break(kafka: Kafka, ten: TopicPartition, new_consumer: New) -> None:
    """An automatic commit after a break covers only records that the loop has yielded."""
    consumer = new_consumer(group_id=ten.topic, auto_commit_interval_ms=50)
    consumer.assign([ten])
    take(consumer, 2)
    consumer.pause(ten)
    time.sleep(0.1)
    poll_until(consumer, lambda: any(kafka.committed(ten.topic, ten.topic).values()))  # 0 before the records came
    assert {0: 2} == kafka.committed(ten.topic, ten.topic)
    consumer.resume(ten)
    assert numbered(8, 2) == values(read(consumer, 8))


def test_seek_inside_a_loop(two: tuple[TopicPartition, ...], new_consumer: New) -> None:
    """seek() in the body determines the next record of its partition and loses no records of other partitions."""
    consumer = new_consumer(consumer_timeout_ms=1000)
    consumer.assign(two)
    sought = None
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in two}
    for record in consumer:
        seen[record.topic_partition].append(record.offset)
        if sought is None and record.offset == 4:
            sought = record.topic_partition
            consumer.seek(sought, 8)
    (other,) = set(two) - {sought}
    assert sought is not None
    assert [0, 1, 2, 3, 4, 8, 9] == seen[sought]
    assert list(range(10)) == seen[other]


def test_poll_inside_a_loop_shares_the_position(ten: TopicPartition, new_consumer: New) -> None:
    """poll() in the body returns the records after the present one; the loop continues after those."""
    consumer = new_consumer(consumer_timeout_ms=1000)
    consumer.assign([ten])
    seen: list[bytes | None] = []
    for record in consumer:
        seen.append(record.value)
        if record.offset == 2:
            seen += values(read(consumer, 3, max_records=3))
    assert numbered(10) == seen


def test_pause_inside_a_loop(two: tuple[TopicPartition, ...], new_consumer: New) -> None:
    """pause() in the body prevents further fetches; the loop still yields the rest of the present batch."""
    consumer = new_consumer(max_poll_records=4)
    consumer.assign(two)
    first = None
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in two}
    for record in islice(consumer, 14):
        seen[record.topic_partition].append(record.offset)
        if first is None:
            first = record.topic_partition
            consumer.pause(first)
    assert not consumer.poll(0.5)
    (other,) = set(two) - {first}
    assert first is not None
    assert ([0, 1, 2, 3], list(range(10))) == (seen[first], seen[other])


def test_assign_after_a_break(two: tuple[TopicPartition, ...], new_consumer: New) -> None:
    """A partition that stays assigned continues where the loop stopped."""
    consumer = new_consumer()
    consumer.assign(two)
    (record,) = list(islice(consumer, 1))
    consumer.assign([record.topic_partition])
    assert numbered(9, 1) == values(read(consumer, 9))


def test_wakeup_in_the_middle_of_a_batch_loses_nothing(ten: TopicPartition, new_consumer: New) -> None:
    """A wakeup during the body is raised by the next poll of the loop, after all records of the batch were yielded."""
    consumer = new_consumer(max_poll_records=5)
    consumer.assign([ten])
    seen: list[bytes | None] = []

    def loop() -> None:
        for record in consumer:
            seen.append(record.value)
            if record.offset == 2:
                consumer.wakeup()

    with pytest.raises(WakeupError):
        loop()
    assert numbered(5) == seen
    assert numbered(5, 5) == take(consumer, 5)


def test_loop_over_a_closed_consumer(ten: TopicPartition, new_consumer: New) -> None:
    """close() in the body ends the loop with StateError, and no further record is yielded."""
    consumer = new_consumer(ten.topic, group_id=ten.topic)
    seen: list[bytes | None] = []

    def loop() -> None:
        for record in consumer:
            seen.append(record.value)
            consumer.close()

    with pytest.raises(StateError, match="closed"):
        loop()
    assert [b"0"] == seen


def test_old_iterator_and_a_new_one_share_the_consumer(ten: TopicPartition, new_consumer: New) -> None:
    """Two iterators that are used in turn yield each record once."""
    consumer = new_consumer(max_poll_records=4)
    consumer.assign([ten])
    first, second = iter(consumer), iter(consumer)
    seen = [next(iterator).value for iterator in (first, second, first, second, second, first)]
    assert numbered(6) == seen
    assert OffsetAndMetadata(6).offset == consumer.position(ten)
