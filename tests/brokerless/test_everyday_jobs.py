"""Everyday jobs of a consumer, each in the few lines that a user writes for it. The pages of docs/ explain them."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition, read_range, read_topic
from kconsumer.errors import RecordDeserializationError
from kconsumer.groups import GroupClient
from kconsumer.parallel import process
from kconsumer.testing import FakeCluster

RECORDS = 30
HALF = 1_700_000_000_000  # the time (ms) of the second half of the records
TP = TopicPartition("orders", 0)


@dataclass
class Order:
    """The value of a record."""

    n: int


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with 30 orders, the second half of them at a later time, and a topic with a damaged value."""
    with FakeCluster() as running:
        running.create_topic("orders")
        for half in range(2):
            values = [(f"k{n % 3}", json.dumps({"n": n})) for n in range(15 * half, 15 * half + 15)]
            running.produce("orders", values, timestamp=HALF - 3_600_000 * (1 - half))
        running.create_topic("poison")
        running.produce("poison", ['{"n": 0}', "{oops", '{"n": 2}'])
        running.configure_group("queue", share_auto_offset_reset="earliest")
        yield running


@pytest.fixture
def options(cluster: FakeCluster, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options that each job begins with. The loops end when the topic does."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": request.node.name,
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": 2_000,
        "fetch_max_wait_ms": 50,
    }


def take(consumer: Consumer[Any, Any], count: int = RECORDS) -> list[Any]:
    """Returns the values of the next records."""
    return [record.value for record, _ in zip(consumer, range(count), strict=False)]


def test_skip_a_damaged_value(options: dict[str, Any]) -> None:
    """JSON values, and the offset after the one that is none."""
    found: list[Any] = []
    with Consumer("poison", value_deserializer="json", **options) as consumer:
        while len(found) < 2:
            try:
                found += [record.value["n"] for record in consumer.poll()]
            except RecordDeserializationError as error:
                consumer.seek(error.topic_partition, error.offset + 1)
    assert [0, 2] == found


def test_commit_what_was_processed(options: dict[str, Any]) -> None:
    """A batch is committed after its last record; the group continues there."""
    with Consumer("orders", enable_auto_commit=False, max_poll_records=10, **options) as consumer:
        while not (records := consumer.poll()):
            pass
        consumer.commit(records)
    with Consumer("orders", **options) as consumer:
        assert [json.dumps({"n": 10}).encode()] == take(consumer, 1)


def test_threads_in_the_order_of_keys(options: dict[str, Any]) -> None:
    """Handlers run in threads; the records of a key are in order."""
    seen: dict[bytes | None, list[int]] = {}
    with Consumer("orders", enable_auto_commit=False, **options) as consumer:
        summary = process(consumer, lambda r: seen.setdefault(r.key, []).append(r.offset), workers=4, order="key")
    assert RECORDS == summary.processed
    assert all(offsets == sorted(offsets) for offsets in seen.values())


def test_dead_letters(options: dict[str, Any]) -> None:
    """A record that cannot be processed goes to a function of yours, and the run continues."""
    dead: list[int] = []

    def handle(record: Any) -> None:
        if record.offset == 7:
            raise ValueError("no")

    with Consumer("orders", enable_auto_commit=False, **options) as consumer:
        process(consumer, handle, retry=None, on_failure=lambda record, error: dead.append(record.offset))
    assert [7] == dead


def test_a_queue(options: dict[str, Any]) -> None:
    """Each record of a share group is accepted or rejected."""
    del options["auto_offset_reset"]
    seen = 0
    with ShareConsumer("orders", **{**options, "group_id": "queue"}, share_acknowledgement_mode="explicit") as queue:
        for record in queue:
            if record.offset % 2:
                record.ack()
            else:
                record.reject()
            seen += 1
            if seen == RECORDS:
                break
        queue.commit()
    assert RECORDS == seen


def test_exactly_once_in_a_database(options: dict[str, Any]) -> None:
    """Results and offsets are in one transaction of the database, which decides where the consumer begins."""
    database = sqlite3.connect(":memory:")
    database.execute("create table orders (n integer)")
    database.execute("create table offsets (at integer)")
    for _run in range(2):
        with Consumer(**{**options, "group_id": None}) as consumer:
            consumer.assign([TP])
            consumer.seek(TP, database.execute("select coalesce(max(at), 0) from offsets").fetchone()[0])
            for record in consumer:
                with database:
                    database.execute("insert into orders values (?)", [json.loads(record.value or b"")["n"]])
                    database.execute("insert into offsets values (?)", [record.offset + 1])
    assert [(RECORDS, RECORDS)] == database.execute("select count(n), count(distinct n) from orders").fetchall()


def test_values_as_dataclasses(options: dict[str, Any]) -> None:
    """A class is a deserializer."""
    with Consumer("orders", value_deserializer=Order, **options) as consumer:
        assert [Order(0), Order(1)] == take(consumer, 2)


def test_a_topic_as_columns(cluster: FakeCluster) -> None:
    """A whole topic, and a part of it by time and by offsets, as tables."""
    at = cluster.bootstrap_servers
    assert RECORDS == read_topic("orders", bootstrap_servers=at).to_polars().height
    later = read_topic("orders", bootstrap_servers=at, start=datetime.fromtimestamp(HALF / 1000, UTC))
    assert RECORDS // 2 == later.num_rows
    with read_range(TP, 5, 9, bootstrap_servers=at) as reader:
        assert 4 == sum(batch.num_rows for batch in reader)


def test_lag_of_a_group(options: dict[str, Any]) -> None:
    """The lag that an alert compares with a limit."""
    with Consumer("orders", enable_auto_commit=False, **options) as consumer:
        consumer.poll(5.0)
        consumer.commit({TP: 12})
    with GroupClient(options["bootstrap_servers"]) as groups:
        offsets = groups.offsets(groups.describe(options["group_id"]))
    assert RECORDS - 12 == sum(found.lag or 0 for found in offsets.values())


def test_seek_to_a_time_and_to_the_last_records(options: dict[str, Any]) -> None:
    """The records since a time, and the last five."""
    with Consumer(**options) as consumer:
        consumer.assign([TP])
        consumer.seek_to_time(datetime.fromtimestamp(HALF / 1000, UTC))
        assert RECORDS // 2 == consumer.position(TP)
        consumer.seek(TP, consumer.end_offsets([TP])[TP] - 5)
        assert 5 == len(take(consumer))


def test_pause_a_partition(options: dict[str, Any]) -> None:
    """No record of a paused partition is returned, until it is resumed."""
    with Consumer(**options) as consumer:
        consumer.assign([TP])
        consumer.pause(TP)
        assert not consumer.poll(0.2)
        consumer.resume(TP)
        assert RECORDS == len(take(consumer))


def test_metrics_and_state(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """One metric by its name, the state of the group for a probe, and log lines with fields."""
    with caplog.at_level(logging.INFO, "kconsumer"), Consumer("orders", **options) as consumer:
        assert RECORDS == len(take(consumer))
        assert float(RECORDS) == consumer.metrics()["records-consumed-total"]
        assert 0 == consumer.current_lag(TP)
        assert "orders-0" in str(consumer.status())
    assert caplog.records
