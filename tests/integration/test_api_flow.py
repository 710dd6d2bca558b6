"""Which records a poll returns, and how many: limits, pausing, small fetch sizes, order and fairness."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from kconsumer import Consumer, TopicPartition
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, read, tps, values
from support.harnesses.stopwatch import Stopwatch

New = Callable[..., Consumer]


# --- limits of a poll ---


def test_max_poll_records_bounds_every_poll(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """No poll returns more than max_poll_records, and all records are returned in order (Java testMaxPollRecords)."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(1000))
    consumer = new_consumer(max_poll_records=7)
    consumer.assign(tps(topic_name, 0))
    seen: list[bytes | None] = []
    while len(seen) < 1000:
        batch = consumer.poll(5)
        assert 1 <= len(batch) <= 7
        seen += values(batch)
    assert numbered(1000) == seen


def test_max_records_of_one_poll(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """poll(max_records=…) limits only that poll, to a number below or above max_poll_records."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(30))
    consumer = new_consumer(max_poll_records=5)
    consumer.assign(tps(topic_name, 0))
    assert 2 == len(consumer.poll(10, max_records=2))
    assert 5 == len(consumer.poll(10))
    assert 23 == len(consumer.poll(10, max_records=100))
    assert 30 == consumer.position(TopicPartition(topic_name, 0))


def test_poll_with_timeout_zero_comes_to_records(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Repeated poll(0) calls join the group and eventually return records (Java
    testPollEventuallyReturnsRecordsWithZeroTimeout).
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(100))
    consumer = new_consumer(topic_name, group_id=topic_name, fetch_max_wait_ms=3000)
    seen: list[bytes | None] = []
    deadline = time.monotonic() + 20
    while len(seen) < 100 and time.monotonic() < deadline:
        watch = Stopwatch()
        seen += values(consumer.poll(0))
        assert watch.seconds() < 1.0
        time.sleep(0.005)
    assert numbered(100) == seen


def test_poll_returns_when_the_first_records_come(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A long poll returns with the first records. A poll without records returns after its timeout and not earlier."""
    kafka.create_topic(topic_name)
    consumer = new_consumer()
    consumer.assign(tps(topic_name, 0))
    watch = Stopwatch()
    assert not consumer.poll(0.4)
    assert 0.4 <= watch.clock()
    assert watch.seconds() < 1.4
    kafka.produce(topic_name, [b"x"])
    watch = Stopwatch()
    assert [b"x"] == values(consumer.poll(30))
    assert watch.seconds() < 2


def test_timeouts_in_every_form(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Timeouts may be seconds or timedeltas, and must not be negative."""
    kafka.create_topic(topic_name)
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(group_id=topic_name)
    consumer.assign([tp])
    watch = Stopwatch()
    assert not consumer.poll(timedelta(milliseconds=300))
    assert 0.3 <= watch.clock()
    assert watch.seconds() < 1.3
    consumer.commit({tp: 1}, timeout=timedelta(seconds=5))
    assert 1 == consumer.committed([tp], timeout=5)[tp].offset
    assert 0 == consumer.end_offsets([tp], timeout=timedelta(seconds=5))[tp]
    for call in (lambda t: consumer.poll(t), lambda t: consumer.position(tp, timeout=t), consumer.list_topics):
        with pytest.raises(ValueError, match="negative"):
            call(timedelta(seconds=-1))
    consumer.close(timedelta(seconds=5))


# --- pause and resume ---


def test_pause_and_resume(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """poll() returns no records of a paused partition; after resume() reading continues at the same position (Java
    testPartitionPauseAndResume).
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(5))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer()
    consumer.assign([tp])
    read(consumer, 5)
    consumer.pause(tp)
    assert frozenset({tp}) == consumer.paused()
    kafka.produce(topic_name, numbered(5, 5))
    assert not consumer.poll(0.3)
    assert 5 == consumer.position(tp)
    consumer.resume(tp)
    assert frozenset() == consumer.paused()
    assert numbered(5, 5) == values(read(consumer, 5))


def test_paused_partition_keeps_what_is_buffered(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Pausing between polls keeps fetched records: after resume() the next poll returns them without a fetch."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(max_poll_records=4)
    consumer.assign([tp])
    read(consumer, 4)
    buffered = consumer.partition_states()[tp].buffered_bytes
    assert buffered > 0
    consumer.pause(tp)
    assert not consumer.poll(0.2)
    assert buffered == consumer.partition_states()[tp].buffered_bytes
    consumer.resume(tp)
    assert numbered(4, 4) == values(consumer.poll(0)), "returned at once from the buffer"


def test_paused_partition_does_not_hold_up_others(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Records of other partitions are returned although records of the paused partition are first in the buffer."""
    kafka.create_topic(topic_name, 3)
    for partition in range(3):
        kafka.produce(topic_name, numbered(30), partition=partition)
    partitions = tps(topic_name, 0, 1, 2)
    consumer = new_consumer(max_poll_records=5)
    consumer.assign(partitions)
    (first,) = {record.topic_partition for record in read(consumer, 5)}
    others = set(partitions) - {first}
    consumer.pause(first)
    assert others == {record.topic_partition for record in read(consumer, 60)}
    consumer.resume(first)
    assert numbered(25, 5) == values(read(consumer, 25))


def test_seek_while_paused(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """seek() works on a paused partition. After resume() reading continues at the new position, and the buffered
    records are dropped.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(max_poll_records=2)
    consumer.assign([tp])
    read(consumer, 2)
    consumer.pause(tp)
    consumer.seek(tp, 7)
    assert not consumer.poll(0.2)
    assert 7 == consumer.position(tp)
    consumer.resume(tp)
    assert [b"7", b"8"] == values(read(consumer, 2))


def test_pause_is_forgotten_with_the_assignment(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A partition that assign() removes and adds again is not paused. A partition that stays assigned remains
    paused.
    """
    kafka.create_topic(topic_name, 2)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer()
    consumer.assign([zero, one])
    consumer.pause(zero, one)
    consumer.assign([one])
    consumer.assign([zero, one])
    assert frozenset({one}) == consumer.paused()


# --- fetch sizes ---


@pytest.mark.parametrize("option", ["fetch_max_bytes", "max_partition_fetch_bytes"])
def test_record_larger_than_the_fetch_size_is_read(
    kafka: Kafka, topic_name: str, new_consumer: New, option: str
) -> None:
    """A record larger than the fetch limit is returned if it is the first of its partition (KIP-74, Java
    testFetchRecordLargerThan…).
    """
    kafka.create_topic(topic_name)
    large = b"x" * 10_241
    kafka.produce(topic_name, [b"small", large, b"after"], config={"linger.ms": 0, "batch.num.messages": 1})
    consumer = new_consumer(**{option: 10_240})
    consumer.assign(tps(topic_name, 0))
    assert [b"small", large, b"after"] == values(read(consumer, 3))


def test_all_partitions_are_read_with_tiny_fetch_sizes(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """With fetch limits of a few records, all partitions of all topics are read to the end (Java
    testLowMaxFetchSizeForRequestAndPartition).
    """
    topics = [f"{topic_name}-{letter}" for letter in "abc"]
    for topic in topics:
        kafka.create_topic(topic, 8)
        for partition in range(8):
            kafka.produce(topic, [b"%d-%d" % (partition, n) for n in range(10)], partition=partition)
    consumer = new_consumer(*topics, group_id=topic_name, fetch_max_bytes=500, max_partition_fetch_bytes=100)
    records = read(consumer, 3 * 8 * 10)
    expected = {(topic, p, b"%d-%d" % (p, n)) for topic in topics for p in range(8) for n in range(10)}
    assert expected == {(record.topic, record.partition, record.value) for record in records}


def test_buffer_memory_smaller_than_what_is_there(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """With a buffer of 1 MiB, 16 MiB in four partitions are read completely, and the buffer never exceeds its limit."""
    kafka.create_topic(topic_name, 4)
    for partition in range(4):
        kafka.produce(topic_name, [b"x" * 65_536] * 64, partition=partition)
    consumer = new_consumer(buffer_memory=1 << 20, max_partition_fetch_bytes=1 << 18, fetch_max_bytes=1 << 20)
    consumer.assign(tps(topic_name, 0, 1, 2, 3))
    seen = 0
    deadline = time.monotonic() + 30
    while seen < 256 and time.monotonic() < deadline:
        seen += len(consumer.poll(1, max_records=10))
        assert sum(state.buffered_bytes for state in consumer.partition_states().values()) <= 1 << 20
    assert 256 == seen


# --- order and fairness ---


def test_no_partition_starves(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """While one partition has far more records than the others, the first records of each other partition are returned
    before a quarter of the large one has been read (Java KIP-41's round robin).
    """
    kafka.create_topic(topic_name, 4)
    # The batches are well below a quarter of the partition, because a batch is always read as a whole.
    kafka.produce(topic_name, numbered(40_000), partition=0, config={"batch.num.messages": 1000})
    for partition in (1, 2, 3):
        kafka.produce(topic_name, numbered(100), partition=partition)
    consumer = new_consumer(max_poll_records=100, max_partition_fetch_bytes=20_000)
    consumer.assign(tps(topic_name, 0, 1, 2, 3))
    seen = dict.fromkeys(range(4), 0)
    while min(seen[1], seen[2], seen[3]) < 100:
        for record in consumer.poll(10):
            seen[record.partition] += 1
        assert seen[0] < 10_000, seen
