"""ConsumerRecords that a user creates from ConsumerRecord objects."""

from __future__ import annotations

import re
from typing import Any

import pyarrow
import pytest

from kconsumer import ConsumerRecord, ConsumerRecords, OffsetAndMetadata, TopicPartition
from kconsumer.deserializers import adapt
from kconsumer.engine.iteration import Iteration
from kconsumer.testing.batches import build_batch
from kconsumer.types import TimestampType

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def record(tp: TopicPartition, offset: int, value: object = b"v", **fields: Any) -> ConsumerRecord:
    """Returns a record of a partition."""
    return ConsumerRecord(tp.topic, tp.partition, offset, value=value, **fields)


MIXED = [record(A, 5, leader_epoch=2), record(B, 0), record(A, 6), record(A, 9, leader_epoch=3)]


def test_a_batch_of_objects_has_all_methods() -> None:
    """The order is kept, records are grouped by partition, and next_offsets() follows the last record of each."""
    batch = ConsumerRecords(iter(MIXED))
    assert MIXED == list(batch) == list(batch)
    assert [id(r) for r in MIXED] == [id(r) for r in batch]
    assert (4, 4, True) == (len(batch), batch.count, bool(batch))
    assert {A, B} == batch.partitions()
    assert [5, 6, 9] == [r.offset for r in batch.records(A)]
    assert [0] == [r.offset for r in batch.records(("b", 3))]
    assert {A: [MIXED[0], *MIXED[2:]], B: [MIXED[1]]} == batch.by_partition()
    assert {A: OffsetAndMetadata(10, "", 3), B: OffsetAndMetadata(1, "", None)} == batch.next_offsets()
    assert {} == batch.skipped()
    assert "<ConsumerRecords: 4 records of 2 partitions>" == repr(batch)


def test_a_batch_of_no_objects_is_empty() -> None:
    """Without records, the batch equals the result of a poll that found none."""
    for batch in (ConsumerRecords(), ConsumerRecords([])):
        assert not batch
        assert [] == list(batch)
        assert {} == batch.next_offsets()
        assert 0 == batch.to_arrow().num_rows


def test_records_of_one_batch_make_another() -> None:
    """The records of a decoded batch can be filtered into a new batch, which creates the same Arrow columns."""
    from kconsumer import decode_batches

    data = build_batch([b"0", None, b"2"], base_offset=7, leader_epoch=4)
    decoded = decode_batches(data, topic="a")
    copy = ConsumerRecords(decoded)
    assert list(decoded) == list(copy)
    assert decoded.to_arrow().to_pyarrow() == copy.to_arrow().to_pyarrow()
    assert [7, 9] == [r.offset for r in ConsumerRecords(r for r in decoded if r.value)]
    assert decoded.next_offsets() == copy.next_offsets()


@pytest.mark.parametrize("count", [0, 1, 63, 64, 8191, 8192, 1_100_000])
def test_arrow_columns_contain_the_fields_of_the_objects(count: int) -> None:
    """Keys, values and headers of every length become the values of Arrow columns, with all other fields."""
    data = b"x" * count
    given = ConsumerRecord(
        "a",
        0,
        2**40,
        timestamp=123,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        key=None,
        value=data,
        headers=[("häder", data), ("", None)],
        leader_epoch=5,
    )
    other = record(B, 1, bytearray(b"w"), key=memoryview(b"k"))
    table = pyarrow.table(ConsumerRecords([given, other]))
    first, second = table.to_pylist()
    assert (None, data, "a", 0, 2**40) == tuple(first[c] for c in ("key", "value", "topic", "partition", "offset"))
    assert [{"key": "häder", "value": data}, {"key": "", "value": None}] == first["headers"]
    assert (123, 1, 5) == (int(first["timestamp"].timestamp() * 1000), first["timestamp_type"], first["leader_epoch"])
    assert (b"k", b"w", "b", 3) == tuple(second[c] for c in ("key", "value", "topic", "partition"))
    assert (-1, None, []) == (second["timestamp_type"], second["leader_epoch"], second["headers"])
    assert [2**40] == ConsumerRecords([given, other]).to_arrow(["offset"], ends={B: 1}).to_pyarrow()[
        "offset"
    ].to_pylist()


def test_objects_that_are_not_bytes_have_no_arrow_columns() -> None:
    """The error names the field, the record and the type; iteration returns the object."""
    batch = ConsumerRecords([record(A, 3, {"deserialized": 1})])
    assert [{"deserialized": 1}] == [r.value for r in batch]
    with pytest.raises(TypeError, match="the value of the record of a-0 at offset 3 is dict: create the record with"):
        batch.to_arrow()


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (MIXED[0], "for one record write ConsumerRecords([record])"),
        ({A: MIXED}, "not a mapping"),
        ([MIXED[0], b"bytes"], "takes ConsumerRecord objects, not bytes: b'bytes'"),
        ([[MIXED[0]]], "takes ConsumerRecord objects, not list"),
        (3, "not iterable"),
    ],
)
def test_other_objects_are_refused(records: Any, message: str) -> None:
    """Anything but an iterable of ConsumerRecord raises TypeError, and the message says what to write."""
    with pytest.raises(TypeError, match=re.escape(message)):
        ConsumerRecords(records)


def test_iteration_in_a_consumer_continues_with_objects() -> None:
    """The iterator that a consumer restarts with each batch changes between fetched records and objects."""
    from kconsumer import decode_batches

    fetched = decode_batches(build_batch([b"0", b"1"]), topic="a")
    iteration = Iteration()
    seen = []
    for batch in (ConsumerRecords(MIXED), fetched, ConsumerRecords(MIXED[:1])):
        iteration.start(batch)
        for item in iteration:
            seen.append(item)
            if item == MIXED[1]:
                assert {A: 6} == iteration.unseen()
                break
    assert [*MIXED[:2], *fetched, MIXED[0]] == seen
    assert not iteration.active


def test_a_run_of_objects_cannot_be_deserialized() -> None:
    """Deserializers run on fetched bytes only."""
    run = ConsumerRecords(MIXED)._runs[0]
    with pytest.raises(TypeError, match="cannot be deserialized"):
        run.deserialize(adapt(bytes.decode, "value"), None)
