"""The attributes of a record, deserializers, and the batch that poll returns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka.serialization import SerializationContext, StringDeserializer

from kconsumer import Consumer, ConsumerRecords, OffsetAndMetadata, TimestampType, TopicPartition
from kconsumer.errors import RecordDeserializationError
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until, read, tps, values

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


class TopicAndHeaders:
    """A deserializer object whose result contains its arguments."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> object:
        return topic, tuple(headers), data


def shown(data: bytes, context: SerializationContext) -> object:
    """A deserializer with confluent-kafka's signature whose result contains its context."""
    return context.topic, context.field, data


def test_kinds_of_deserializers(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A callable, an object with deserialize(), and confluent-kafka's callables with a context all work as
    deserializers.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b'{"a": 1}'], keys=[b"k"], headers=[("h", b"1")])
    for options, expected in (
        ({"value_deserializer": json.loads}, (b"k", {"a": 1})),
        ({"key_deserializer": TopicAndHeaders()}, ((topic_name, (("h", b"1"),), b"k"), b'{"a": 1}')),
        ({"key_deserializer": shown, "value_deserializer": shown}, None),
        ({"value_deserializer": StringDeserializer()}, (b"k", '{"a": 1}')),
    ):
        consumer = new_consumer(**options)
        consumer.assign(tps(topic_name, 0))
        (record,) = read(consumer, 1)
        expected = expected or ((topic_name, "key", b"k"), (topic_name, "value", b'{"a": 1}'))
        assert expected == (record.key, record.value)
        assert (1, 8) == (record.serialized_key_size, record.serialized_value_size)


def test_deserialization_failure_comes_after_the_good_records(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Records before the invalid one are returned first. Then each poll raises the error with the raw record, until a
    seek past it (KIP-334, KIP-1036).
    """
    kafka.create_topic(topic_name)
    texts = [b"1", b"2", b"not a number", b"4"]
    kafka.produce(topic_name, texts, keys=[b"a", b"b", b"c", b"d"], headers=[("h", b"1")], partition=0)
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(value_deserializer=int, group_id=topic_name)
    consumer.assign([tp])
    assert [1, 2] == values(read(consumer, 2))
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match=rf"{topic_name}-0.*offset 2") as caught:
            consumer.poll(10)
        error = caught.value
        assert (tp, 2, "value") == (error.topic_partition, error.offset, error.origin)
        assert (b"c", b"not a number", (("h", b"1"),)) == (error.key, error.value, error.headers)
        assert isinstance(error.__cause__, ValueError)
        assert 2 == consumer.position(tp)
    consumer.commit()
    assert 2 == consumer.committed([tp])[tp].offset, "only what was returned counts as consumed"
    consumer.seek(tp, error.offset + 1)
    assert [4] == values(read(consumer, 1))


def test_deserializer_that_recovers(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Each poll deserializes the failed record again, so a temporary failure needs no seek."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(3))
    broken = True

    def deserialize(data: bytes) -> int:
        if broken and data == b"1":
            raise ConnectionError("the schema registry is down")
        return int(data)

    consumer = new_consumer(value_deserializer=deserialize)
    consumer.assign(tps(topic_name, 0))
    assert [0] == values(read(consumer, 1))
    with pytest.raises(RecordDeserializationError, match="schema registry"):
        consumer.poll(10)
    broken = False
    assert [1, 2] == values(read(consumer, 2))


def test_bad_key_of_one_partition_leaves_others_alone(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """While the next record of one partition cannot be deserialized, records of the other partition are still
    returned.
    """
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, [b"v"], keys=[b"\xff"], partition=0)
    kafka.produce(topic_name, numbered(20), keys=[b"ok"] * 20, partition=1)
    consumer = new_consumer(key_deserializer=bytes.decode, max_poll_records=4)
    consumer.assign(tps(topic_name, 0, 1))
    seen: list[object] = []
    errors = []
    deadline = time.monotonic() + 20
    while (len(seen) < 20 or not errors) and time.monotonic() < deadline:
        try:
            seen += values(consumer.poll(0.5))
        except RecordDeserializationError as error:
            errors.append((error.topic_partition.partition, error.offset, error.origin))
            consumer.pause(error.topic_partition)
    assert numbered(20) == seen
    assert [(0, 0, "key")] == errors


# --- the batch ---


def test_batch_of_several_partitions(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """len(), count, bool(), iteration, partitions(), records(), by_partition() and next_offsets() of a batch agree."""
    kafka.create_topic(topic_name, 3)
    kafka.produce(topic_name, numbered(2), partition=0)
    kafka.produce(topic_name, numbered(3), partition=2)
    zero, one, two = tps(topic_name, 0, 1, 2)
    consumer = new_consumer()
    consumer.assign([zero, one, two])
    batch = consumer.poll(10)
    assert isinstance(batch, ConsumerRecords)
    assert (5, 5, True, 5) == (len(batch), batch.count, bool(batch), len(list(batch)))
    assert frozenset({zero, two}) == batch.partitions()
    assert [0, 1, 2] == [record.offset for record in batch.records(two)]
    assert [] == batch.records(one)
    assert {zero: [b"0", b"1"], two: [b"0", b"1", b"2"]} == {
        tp: values(records) for tp, records in batch.by_partition().items()
    }
    assert {zero: OffsetAndMetadata(2, "", 0), two: OffsetAndMetadata(3, "", 0)} == batch.next_offsets()
    assert list(batch) == list(batch), "can be read as often as wanted"
    empty = consumer.poll(0)
    assert (False, 0, [], frozenset(), {}) == (
        bool(empty),
        len(empty),
        list(empty),
        empty.partitions(),
        empty.next_offsets(),
    )


def test_batch_outlives_later_polls_and_the_consumer(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A batch remains readable after further polls, a seek and close()."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10), compression="gzip")
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(max_poll_records=5)
    consumer.assign([tp])
    first = consumer.poll(10)
    second = consumer.poll(10)
    consumer.seek(tp, 0)
    consumer.poll(10)
    consumer.close()
    assert numbered(10) == values([*first, *second])


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
