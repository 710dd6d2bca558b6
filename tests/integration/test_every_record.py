"""A million records of all shapes and codecs: read once, in order, equal to what another client reads."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kconsumer import Consumer, TopicPartition
from support.brokers.kafka import Kafka

RECORDS, MORE = 1_200_000, 3_000_000
PARTITIONS = 6
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK = 20_000  # records of one codec in a row; each partition gets every codec several times

Digest = Any


def load(kafka: Kafka, topic: str, records: int) -> None:
    """Write records with keys, null keys, null values, and headers with and without value; codecs alternate within each
    partition.
    """
    shapes = list(record_shapes())
    producers = {
        codec: kafka.producer({"compression.type": codec, "queue.buffering.max.messages": 200_000, "linger.ms": 20})
        for codec in CODECS
    }
    for start in range(0, records, CHUNK):
        number = start // CHUNK
        producer = producers[CODECS[number % len(CODECS)]]
        # The partition changes more slowly than the codec, so that each partition holds all five.
        partition = number // len(CODECS) % PARTITIONS
        for index in range(start, start + CHUNK):
            key, value, headers = shapes[index % len(shapes)]
            while True:
                try:
                    producer.produce(topic, value, key, partition, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
        assert 0 == producer.flush(60), "all records acknowledged"


def record_shapes() -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]]:
    """Returns different records of about 100 bytes; their number is prime."""
    rng = random.Random(7)
    for number in range(997):
        key = None if number % 7 == 0 else b"key-%06d" % number
        value = None if number % 11 == 0 else rng.randbytes(20) + b"%07d" % number * 10
        headers: list[tuple[str, bytes | None]] | None = None
        if number % 5 == 0:
            headers = [("trace", rng.randbytes(8)), ("empty", b""), ("null", None)][: 1 + number % 3]
        yield key, value, headers


class PartitionDigest:
    """A digest of the records read from one partition, in order."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b()
        self.count = 0
        self.last = -1

    def add(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: object) -> None:
        """Add the next record, whose offset must be greater than the last one's."""
        assert offset > self.last, f"offset {offset} after {self.last}"
        self.last = offset
        self.count += 1
        self.hash.update(repr((offset, timestamp, key, value, headers)).encode())

    def result(self) -> tuple[int, int, str]:
        """Returns the number of records, the last offset and the digest."""
        return self.count, self.last, self.hash.hexdigest()


def read_with_confluent(kafka: Kafka, topic: str, records: int) -> list[tuple[int, int, str]]:
    """Read the topic with confluent-kafka. Returns the digests of its partitions."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 500_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    digests = [PartitionDigest() for _ in range(PARTITIONS)]
    count = 0
    while count < records:
        for message in consumer.consume(10_000, 5.0):
            assert message.error() is None, message.error()
            headers = tuple(message.headers() or ())
            digests[message.partition()].add(
                message.offset(), message.timestamp()[1], message.key(), message.value(), headers
            )
            count += 1
    consumer.close()
    return [digest.result() for digest in digests]


def read_with_kconsumer(kafka: Kafka, topic: str, total: int, **engine: str) -> list[tuple[int, int, str]]:
    """Read the topic with a kconsumer group. Returns the digests of its partitions."""
    digests = [PartitionDigest() for _ in range(PARTITIONS)]
    count = 0
    group = "-".join([topic, "ours", *engine.values()])
    servers = kafka.bootstrap_servers
    with Consumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", **engine) as consumer:
        while count < total:
            records = consumer.poll(10.0)
            assert records, f"only {count} of {total} records"
            for record in records:
                digests[record.partition].add(record.offset, record.timestamp, record.key, record.value, record.headers)
            count += len(records)
        assert not consumer.poll(0.5), "nothing comes after the last record"
        positions = [consumer.position(TopicPartition(topic, p)) for p in range(PARTITIONS)]
    assert positions == [digest.last + 1 for digest in digests]
    return [digest.result() for digest in digests]


@pytest.mark.timeout(900)  # the longer one uses one processor for two minutes
@pytest.mark.parametrize("total", [RECORDS, pytest.param(MORE, marks=pytest.mark.long)])
def test_records_of_every_shape_and_codec(kafka: Kafka, topic_name: str, total: int) -> None:
    """Every record is read once, in order, equal in key, value, headers and timestamp to what confluent-kafka reads."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    load(kafka, topic, total)
    expected = read_with_confluent(kafka, topic, total)
    assert total == sum(count for count, _, _ in expected)
    assert expected == read_with_kconsumer(kafka, topic, total)
    assert expected == read_with_kconsumer(kafka, topic, total, engine="threaded")
    kafka.delete_topic(topic)
