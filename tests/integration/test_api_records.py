"""The attributes of a record, deserializers, and the batch that poll returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TimestampType, TopicPartition
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until, read, tps

New = Callable[..., Consumer]


# --- records ---


def test_key_value_headers_and_times(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Every attribute of a record is returned as it was written; header values may be null, and header names may
    repeat.
    """
    kafka.create_topic(topic_name)
    headers: Sequence[tuple[str, bytes | None]] = [("a", b"1"), ("ü", b""), ("a", None)]
    kafka.produce(topic_name, [b"value"], keys=[b"k"], headers=headers, timestamps=[1_700_000_000_123])
    consumer = new_consumer()
    consumer.assign(tps(topic_name, 0))
    (record,) = read(consumer, 1)
    assert (topic_name, 0, 0, TopicPartition(topic_name, 0)) == (
        record.topic,
        record.partition,
        record.offset,
        record.topic_partition,
    )
    assert (b"k", b"value", 1, 5) == (
        record.key,
        record.value,
        record.serialized_key_size,
        record.serialized_value_size,
    )
    assert (1_700_000_000_123, TimestampType.CREATE_TIME) == (record.timestamp, record.timestamp_type)
    assert (("a", b"1"), ("ü", b""), ("a", None)) == record.headers
    assert 0 == record.leader_epoch


def test_null_and_empty_keys_and_values(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A null key or value is None with size -1, an empty one is b"" with size 0. Deserializers are not called
    for null.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [None, b"", b"v"], keys=[b"", None, b"k"], partition=0)
    consumer = new_consumer()
    consumer.assign(tps(topic_name, 0))
    records = read(consumer, 3)
    assert [(b"", None), (None, b""), (b"k", b"v")] == [(r.key, r.value) for r in records]
    assert [(0, -1), (-1, 0), (1, 1)] == [(r.serialized_key_size, r.serialized_value_size) for r in records]
    decoding = new_consumer(key_deserializer=bytes.decode, value_deserializer=bytes.decode)
    decoding.assign(tps(topic_name, 0))
    assert [("", None), (None, ""), ("k", "v")] == [(r.key, r.value) for r in read(decoding, 3)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_log_append_time(kafka: Kafka, topic_name: str, new_consumer: New, compression: str) -> None:
    """With message.timestamp.type=LogAppendTime, compressed and uncompressed records have the broker's timestamp."""
    kafka.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    kafka.produce(topic_name, numbered(5), timestamps=[1000] * 5, compression=compression)
    consumer = new_consumer()
    consumer.assign(tps(topic_name, 0))
    for record in read(consumer, 5):
        assert TimestampType.LOG_APPEND_TIME is record.timestamp_type
        assert before <= record.timestamp <= time.time() * 1000


# --- deserializers ---


# --- the batch ---


def test_committing_a_batch(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """commit(batch) commits the batch's next_offsets(), although the position has advanced since."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(max_poll_records=4, group_id=topic_name, enable_auto_commit=False)
    consumer.assign([tp])
    first = consumer.poll(10)
    second = consumer.poll(10)
    assert (4, 4) == (len(first), len(second))
    consumer.commit(first)
    assert OffsetAndMetadata(4, "", 0) == consumer.committed([tp])[tp]
    done: list[object] = []
    consumer.commit_async(second, lambda offsets, error: done.append((dict(offsets), error)))
    poll_until(consumer, lambda: done)
    assert [({tp: OffsetAndMetadata(8, "", 0)}, None)] == done


def test_position_moves_over_transaction_markers(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """next_offsets() and position() include the commit marker after the last record (KIP-1094)."""
    kafka.create_topic(topic_name)
    kafka.produce_transaction(topic_name, numbered(3))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer()
    consumer.assign([tp])
    batch = consumer.poll(20)
    assert [0, 1, 2] == [record.offset for record in batch]
    poll_until(consumer, lambda: consumer.position(tp) == 4)
    assert {tp: 4} == consumer.end_offsets([tp])
    assert 0 == consumer.current_lag(tp)
