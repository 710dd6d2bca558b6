"""poll_arrow against a broker: rows, bounds, positions, commits."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kconsumer import Consumer
from kconsumer.arrow import COLUMNS, RecordBatch
from kconsumer.errors import StateError, WakeupError
from support.brokers.kafka import Kafka
from support.harnesses.polling import later, numbered, read, tps

New = Callable[..., Consumer]


def read_arrow(consumer: Consumer, count: int, **poll: Any) -> list[RecordBatch]:
    """Poll until `count` rows were returned. Fails if there are more."""
    batches: list[RecordBatch] = []
    deadline = time.monotonic() + 20
    while sum(map(len, batches)) < count:
        assert time.monotonic() < deadline, f"{sum(map(len, batches))} of {count} rows; {consumer.partition_states()}"
        batches.append(consumer.poll_arrow(0.5, **poll))
    assert count == sum(map(len, batches))
    return [batch for batch in batches if batch]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_same_rows_as_poll(kafka: Kafka, topic_name: str, new_consumer: New, compression: str) -> None:
    """Two consumers, one with records and one with columns, read the same from three partitions."""
    kafka.create_topic(topic_name, 3)
    headers = [("a", b"1"), ("ü", None)]
    for partition in range(3):
        kafka.produce(
            topic_name,
            [b"%d" % n if n % 7 else None for n in range(700)],
            keys=[b"k%d" % n if n % 2 else None for n in range(700)],
            headers=headers,
            timestamps=[1_700_000_000_000 + n for n in range(700)],
            partition=partition,
            compression=compression,
        )
    partitions = tps(topic_name, 0, 1, 2)
    by_record, by_column = new_consumer(), new_consumer()
    by_record.assign(partitions)
    by_column.assign(partitions)
    expected = sorted(
        [
            {**{name: getattr(r, name) for name in COLUMNS}, "headers": list(r.headers)}
            for r in read(by_record, 2100, max_records=900)
        ],
        key=lambda row: (row["partition"], row["offset"]),
    )
    table = pa.Table.from_batches([batch.to_pyarrow() for batch in read_arrow(by_column, 2100, max_rows=900)])
    table.validate(full=True)
    table = table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64()))
    rows = [
        {**row, "headers": [(header["key"], header["value"]) for header in row["headers"]]}
        for row in table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    ]
    assert expected == rows
    assert dict.fromkeys(partitions, 700) == {tp: by_column.position(tp) for tp in partitions}


def test_positions_commits_and_mixing_with_poll(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """poll() and poll_arrow() share one position; the next_offsets() of a batch can be committed."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(30))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(group_id=topic_name, enable_auto_commit=False, value_deserializer=int)
    consumer.assign([tp])
    first = read_arrow(consumer, 10, max_rows=10)[-1]
    assert list(range(10, 20)) == [record.value for record in read(consumer, 10, max_records=10)]
    for record in consumer:
        assert 20 == record.value
        break
    assert list(range(21, 25)) == [
        offset for batch in read_arrow(consumer, 4, max_rows=4) for offset in batch.to_pyarrow()["offset"].to_pylist()
    ]
    consumer.commit(first.next_offsets())
    assert first.next_offsets() == consumer.committed([tp])
    assert 10 == first.next_offsets()[tp].offset
    assert 25 == consumer.position(tp)


def test_columns_of_a_group(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A group member joins, reads and commits automatically if it calls only poll_arrow()."""
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, numbered(40))
    with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap_servers, group_id=topic_name, auto_offset_reset="earliest"
    ) as consumer:
        rows = [value for batch in read_arrow(consumer, 40) for value in batch.to_pyarrow()["value"].to_pylist()]
    assert sorted(numbered(40)) == sorted(rows)
    assert 40 == sum(kafka.committed(topic_name, topic_name).values())


def test_arguments_and_endings(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Invalid arguments raise before any record is read. An empty poll returns the schema without rows. wakeup() ends a
    waiting poll.
    """
    kafka.create_topic(topic_name)
    consumer = new_consumer()
    with pytest.raises(StateError, match="nothing to read from"):
        consumer.poll_arrow()
    consumer.assign(tps(topic_name, 0))
    for bad in ({"max_rows": 0}, {"max_bytes": 0}, {"timeout": -1}, {"columns": ["nothing"]}):
        with pytest.raises(ValueError, match=r"max_rows|max_bytes|timeout|no column"):
            consumer.poll_arrow(**bad)
    empty = consumer.poll_arrow(0.1)
    assert (0, COLUMNS, {}) == (len(empty), empty.columns, empty.next_offsets())
    later(0.2, consumer.wakeup)
    with pytest.raises(WakeupError):
        consumer.poll_arrow(30)


def test_rows_outlive_their_consumer(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Rows remain readable in every library after the consumer is closed and collected; the memory is freed when the
    rows are.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(1000), compression="zstd")
    consumer = new_consumer()
    consumer.assign(tps(topic_name, 0))
    batches = read_arrow(consumer, 1000, max_rows=100)
    frames = [batch.to_polars()["value"] for batch in batches]
    tables = [pa.record_batch(batch)["value"] for batch in batches]
    pending = batches[0].__arrow_c_stream__()
    consumer.close()
    del batches, consumer
    gc.collect()
    assert numbered(1000) == [value for frame in frames for value in frame.to_list()]
    assert numbered(1000) == [value for table in tables for value in table.to_pylist()]
    rows = pa.RecordBatchReader._import_from_c_capsule(pending).read_all()
    count, last = duckdb.sql('SELECT count(*), max("offset") FROM rows').fetchall()[0]
    assert (count - 1, 100) == (last, count)
    assert numbered(100) == rows["value"].to_pandas().to_list()
