"""Reads topics to their end with confluent-kafka, a client that shares no code with the one under test."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from support.brokers.kafka_admin import Kafka

READ_TIMEOUT_S = 60

# Offset, timestamp type, timestamp, key, value, headers.
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

_TYPES = {0: -1, 1: 0, 2: 1}  # librdkafka's numbers of timestamp types to Kafka's


def read_to_end(
    kafka: Kafka, topic: str, partitions: int, *, isolation_level: str = "read_committed"
) -> dict[int, list[Row]]:
    """Returns every record that can be read, by partition."""
    options = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    found: dict[int, list[Row]] = {partition: [] for partition in range(partitions)}
    reading = set(found)
    consumer = Consumer(options)
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
        while reading:
            assert time.monotonic() < deadline, f"confluent-kafka did not reach the end of {topic} {reading}"
            for message in consumer.consume(1000, timeout=0.5):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition].append(as_row(message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    reading.discard(partition)
    finally:
        consumer.close()
    return found


def as_row(message: Any) -> Row:
    """Returns a message of confluent-kafka's as a tuple."""
    kind, time_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return (message.offset(), _TYPES[kind], time_ms, message.key(), message.value(), headers)
