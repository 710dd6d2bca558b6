"""Transactions and unusual logs on real brokers: read_committed returns the same records as another client."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, IsolationLevel, TopicPartition
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import ADMIN_TIMEOUT_S, wait_until
from support.harnesses.stopwatch import Stopwatch
from support.oracles.confluent_reader import Row, read_to_end

New = Callable[..., Consumer]
READ_TIMEOUT_S = 60
COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}


@pytest.fixture(params=["kafka", "kafka39"])
def broker(request: pytest.FixtureRequest) -> Kafka:
    """Each of the two broker versions."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Kafka)
    return found


@pytest.fixture
def reader(broker: Kafka, new_consumer: New) -> New:
    """Returns a function that makes consumers of that broker that read from the beginning."""

    def make(**options: Any) -> Consumer:
        return new_consumer(bootstrap_servers=broker.bootstrap_servers, **options)

    return make


def as_row(record: Any) -> Row:
    """Returns a record in the form of the other client's records."""
    kind = int(record.timestamp_type)
    return (record.offset, kind, record.timestamp, record.key, record.value, record.headers)


def read_all(consumer: Consumer, topic: str, partitions: int) -> dict[int, list[Row]]:
    """Returns all records up to the end offset at the start of the call."""
    tps = [TopicPartition(topic, partition) for partition in range(partitions)]
    consumer.assign(tps)
    ends = consumer.end_offsets(tps)
    found: dict[int, list[Row]] = {partition: [] for partition in range(partitions)}
    deadline = time.monotonic() + READ_TIMEOUT_S
    while any(consumer.position(tp) < ends[tp] for tp in tps):
        assert time.monotonic() < deadline, f"stuck: {consumer.partition_states()}"
        for record in consumer.poll(1):
            found[record.partition].append(as_row(record))
    return found


class Transactions:
    """Several transactional producers of one topic."""

    def __init__(self, broker: Kafka, topic: str, producers: int) -> None:
        self.topic = topic
        self.open: set[int] = set()
        self.counts = {"commit": 0, "abort": 0}
        self.producers = [
            broker.producer({"transactional.id": f"{topic}-{number}", "compression.type": codec})
            for number, codec in zip(range(producers), ("none", "gzip", "snappy", "lz4", "zstd"), strict=False)
        ]
        for producer in self.producers:
            producer.init_transactions(ADMIN_TIMEOUT_S)

    def produce(self, number: int, partition: int, count: int) -> None:
        """Write some records, and begin a transaction if none is open. Returns when the log contains them."""
        producer = self.producers[number]
        if number not in self.open:
            producer.begin_transaction()
            self.open.add(number)
        for i in range(count):
            producer.produce(self.topic, b"%d-%d" % (number, i), b"k%d" % i, partition, headers=[("n", b"%d" % number)])
        assert 0 == producer.flush(ADMIN_TIMEOUT_S)

    def end(self, number: int, how: str) -> None:
        """Commit or abort, if the producer is in a transaction."""
        if number in self.open:
            self.open.remove(number)
            self.counts[how] += 1
            getattr(self.producers[number], f"{how}_transaction")(ADMIN_TIMEOUT_S)

    def end_all(self) -> None:
        """Abort all open transactions."""
        for number in list(self.open):
            self.end(number, "abort")


@pytest.mark.parametrize("seed", range(3))
def test_interleaved_transactions(broker: Kafka, reader: New, topic_name: str, seed: int) -> None:
    """Five producers commit, abort and leave open transactions in three partitions. With read_committed, exactly the
    records of another client are returned, with all attributes; with read_uncommitted, all records.
    """
    broker.create_topic(topic_name, 3)
    rng = random.Random(seed)
    transactions = Transactions(broker, topic_name, 5)
    plain = broker.producer({"enable.idempotence": seed % 2 == 0})
    for step in range(60):
        number = rng.randrange(5)
        match rng.choice(("produce", "produce", "produce", "commit", "abort", "plain")):
            case "produce":
                transactions.produce(number, rng.randrange(3), rng.randint(1, 20))
            case "plain":
                plain.produce(topic_name, b"plain-%d" % step, None, rng.randrange(3))
                plain.flush(ADMIN_TIMEOUT_S)
            case how:
                transactions.end(number, how)
    assert min(transactions.counts.values()) > 2, "the history has commits and aborts"
    for level in ("read_committed", "read_uncommitted"):
        expected = read_to_end(broker, topic_name, 3, isolation_level=level)
        assert expected == read_all(reader(isolation_level=level), topic_name, 3)
    transactions.end_all()

    def settled() -> bool:
        """Returns whether the log contains all markers."""
        partitions = [TopicPartition(topic_name, p) for p in range(3)]
        return reader(**COMMITTED).end_offsets(partitions) == reader().end_offsets(partitions)

    wait_until(settled, 30, "markers of the last transactions")
    expected = read_to_end(broker, topic_name, 3)
    # Few records per poll and small fetches, so that transactions extend over many polls and fetches.
    small = reader(**COMMITTED, max_poll_records=7, max_partition_fetch_bytes=300, fetch_max_bytes=300)
    assert expected == read_all(small, topic_name, 3)


def test_an_aborted_tail(broker: Kafka, reader: New, topic_name: str) -> None:
    """If the remaining records are all aborted, poll returns early without records and the position is after them."""
    broker.create_topic(topic_name)
    broker.produce_transaction(topic_name, [b"never seen"] * 50, commit=False)
    tp = TopicPartition(topic_name, 0)
    consumer = reader(**COMMITTED)
    consumer.assign([tp])
    watch = Stopwatch()
    while consumer.position(tp) == 0:
        assert not consumer.poll(30)
    assert watch.seconds() < 10
    assert 51 == consumer.position(tp)
    broker.produce_transaction(topic_name, [b"seen"])
    records = consumer.poll(30)
    assert [(51, b"seen")] == [(record.offset, record.value) for record in records]


def test_an_open_transaction_is_the_end(broker: Kafka, reader: New, topic_name: str) -> None:
    """End offsets, seek_to_end(), resets and lag use the last stable offset; the records after it are returned when the
    transaction is committed.
    """
    broker.create_topic(topic_name)
    broker.produce(topic_name, [b"before"] * 3)
    transactions = Transactions(broker, topic_name, 1)
    transactions.produce(0, 0, 4)
    broker.produce(topic_name, [b"after"] * 2)
    tp = TopicPartition(topic_name, 0)
    committed, uncommitted = reader(isolation_level=IsolationLevel.READ_COMMITTED), reader()
    assert ({tp: 3}, {tp: 9}) == (committed.end_offsets([tp]), uncommitted.end_offsets([tp]))
    latest = reader(**COMMITTED, auto_offset_reset="latest")
    latest.assign([tp])
    assert 3 == latest.position(tp)
    for consumer, end in ((committed, 3), (uncommitted, 9)):
        consumer.assign([tp])
        consumer.seek_to_end(tp)
        assert end == consumer.position(tp)
    committed.seek(tp, 0)
    assert [b"before"] * 3 == [record.value for record in committed.poll(10)]
    assert (3, 0, 0) == (committed.position(tp), committed.current_lag(tp), committed.partition_states()[tp].lag)
    assert not committed.poll(1)
    transactions.end(0, "commit")
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < 6 and time.monotonic() < deadline:
        found += [record.value for record in committed.poll(1)]
    assert [b"0-0", b"0-1", b"0-2", b"0-3", b"after", b"after"] == found


@pytest.mark.classic_protocol
def test_a_group_commits_past_markers(broker: Kafka, reader: New, topic_name: str) -> None:
    """A member commits the offset after the marker, so that the next member has no records to read."""
    broker.create_topic(topic_name)
    broker.produce_transaction(topic_name, [b"a", b"b"])
    broker.produce_transaction(topic_name, [b"c"], commit=False)
    tp = TopicPartition(topic_name, 0)
    member = reader(**COMMITTED, group_id=topic_name, enable_auto_commit=False)
    member.subscribe([topic_name])
    seen: list[bytes] = []
    deadline = time.monotonic() + 30
    while not member.assignment() or member.position(tp) < 5:
        assert time.monotonic() < deadline
        records = member.poll(1)
        seen += [record.value for record in records]
        if records.next_offsets():
            member.commit(records)
    assert [b"a", b"b"] == seen
    assert {0: 5} == broker.committed(topic_name, topic_name)


def test_a_compacted_topic(broker: Kafka, reader: New, topic_name: str) -> None:
    """A compacted log with gaps, empty batches and markers without records is read as by another client, up to
    its end.
    """
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    broker.create_topic(topic_name, 1, config=config)
    written = 0
    rng = random.Random(0)
    for turn in range(6):
        keys = [b"key-%d" % rng.randrange(40) for _ in range(100)]
        values = [None if rng.random() < 0.1 else b"%d-%d" % (turn, i) for i in range(100)]
        written += broker.produce(topic_name, values, keys=keys, compression=rng.choice(("none", "lz4", "zstd")))
        transactions = Transactions(broker, topic_name, 2)
        transactions.produce(0, 0, 10)
        transactions.produce(1, 0, 10)
        transactions.end(0, "commit")
        transactions.end(1, "abort")
        time.sleep(0.15)  # a segment ends according to the timestamps of its records

    def read() -> dict[int, list[Row]]:
        return read_to_end(broker, topic_name, 1)

    wait_until(lambda: len(read()[0]) < written / 3, 60, "compaction")
    for _ in range(5):  # the log cleaner may run between two reads
        before, ours, after = read(), read_all(reader(**COMMITTED), topic_name, 1), read()
        if before == after:
            assert before == ours
            break
    else:
        pytest.fail("the cleaner never stood still")
    offsets = [row[0] for row in ours[0]]
    assert len(offsets) <= offsets[-1] - offsets[0], "there are gaps"
    middle = (offsets[0] + offsets[-1]) // 2
    consumer = reader(**COMMITTED)
    consumer.assign([TopicPartition(topic_name, 0)])
    consumer.seek(TopicPartition(topic_name, 0), middle)
    assert min(offset for offset in offsets if offset >= middle) == next(iter(consumer.poll(10))).offset


def test_dump_shows_what_is_in_a_segment(broker: Kafka, reader: New, topic_name: str, run_folder: Path) -> None:
    """`kconsumer dump` prints from the broker's log file every record that a consumer reads, and the markers."""
    broker.create_topic(topic_name)
    broker.produce_transaction(topic_name, [b"a", b"b"])
    broker.produce_transaction(topic_name, [b"c"], commit=False)
    broker.produce(topic_name, [b"d"] * 100, compression="zstd")
    (path,) = run_folder.glob(f"kafka-{broker.version}/node-1/data/{topic_name}-0/*.log")
    command = [sys.executable, "-m", "kconsumer", "dump", "--records", "-f", "json", str(path)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    markers = {row["base_offset"]: row["control"] for row in rows if row["type"] == "batch" and row["control"]}
    assert {2: ["commit"], 4: ["abort"]} == markers
    read = read_all(reader(), topic_name, 1)[0]
    dumped = [row for row in rows if row["type"] == "record" and row["offset"] not in markers]
    assert [(row[0], row[2], row[4]) for row in read] == [
        (row["offset"], row["timestamp"], row["value"].encode()) for row in dumped
    ]
    assert {topic_name} == {row["topic"] for row in dumped}


def test_a_topic_that_the_broker_compresses(broker: Kafka, reader: New, topic_name: str) -> None:
    """With compression.type=zstd, records sent with any codec are stored and read with zstd."""
    broker.create_topic(topic_name, 1, config={"compression.type": "zstd"})
    for codec in ("none", "gzip", "snappy", "lz4"):
        broker.produce(topic_name, [codec.encode() * 50] * 100, compression=codec)
    expected = read_to_end(broker, topic_name, 1)
    assert 400 == len(expected[0])
    assert expected == read_all(reader(**COMMITTED), topic_name, 1)
