"""Columns in the schema of Spark's Kafka source, with its names and types and the same rows as our schema."""

from __future__ import annotations

import os
import threading
import tracemalloc
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kconsumer import decode_batches
from kconsumer.arrow import SPARK_COLUMNS, SparkBatch, Table, choose_spark
from kconsumer.testing.batches import Rec, build_batch, build_message_set

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def batch_of(data: bytes, columns: list[str] | None = None) -> SparkBatch:
    """Returns these record batches in Spark's schema."""
    return SparkBatch(decode_batches(data, topic="t", partition=2).to_arrow(choose_spark(columns)))


def test_every_column() -> None:
    """Types, order and nullability are those of Spark; headers are null only for records without headers."""
    records = [
        Rec(b"a", b"k", [("h", b"x"), ("i", None)], 1_234),
        Rec(None, None, (), 5),
        Rec(b"c", b"", [("j", b"")], 6),
    ]
    batch = batch_of(build_batch(records, base_offset=7))
    rows = pa.record_batch(batch)
    rows.validate(full=True)
    assert SCHEMA == rows.schema
    assert all(field.nullable for field in rows.schema)
    assert SPARK_COLUMNS == batch.columns
    assert [1_234_000, 5_000, 6_000] == rows["timestamp"].cast(pa.int64()).to_pylist()
    assert [[{"key": "h", "value": b"x"}, {"key": "i", "value": None}], None, [{"key": "j", "value": b""}]] == rows[
        "headers"
    ].to_pylist()
    assert 1 == rows["headers"].null_count
    assert ([b"k", None, b""], [7, 8, 9], [0, 0, 0]) == tuple(
        rows[name].to_pylist() for name in ("key", "offset", "timestampType")
    )


def test_records_without_a_timestamp() -> None:
    """Records of format 0 have the timestamp -1 ms and the timestamp type -1."""
    rows = pa.record_batch(batch_of(build_message_set([b"v"], magic=0)))
    assert [-1_000] == rows["timestamp"].cast(pa.int64()).to_pylist()
    assert [-1] == rows["timestampType"].to_pylist()


@pytest.mark.parametrize("time", [(1 << 63) - 1, 9_223_372_036_854_776, -9_223_372_036_854_776, -(1 << 62)])
def test_times_beyond_microseconds(time: int) -> None:
    """A time that does not fit in 64 bits of microseconds becomes the nearest one that does."""
    rows = pa.record_batch(batch_of(build_batch([b"v"], timestamp=time), ["timestamp"]))
    assert [(1 << 63) - 1 if time > 0 else -(1 << 63)] == rows["timestamp"].cast(pa.int64()).to_pylist()


def test_chosen_columns() -> None:
    """Columns are chosen by Spark's names, in the caller's order; other names are refused."""
    batch = batch_of(build_batch([b"v"], timestamp=3), ["timestampType", "timestamp"])
    assert ["timestampType", "timestamp"] == pa.record_batch(batch).schema.names == pa.schema(batch).names
    for name in ("timestamp_type", "leader_epoch", "x"):
        with pytest.raises(ValueError, match=f"no column '{name}'"):
            choose_spark([name])
    with pytest.raises(TypeError, match="one string"):
        choose_spark("value")
    with pytest.raises(ValueError, match="no column 'leader_epoch'"):
        SparkBatch(decode_batches(build_batch([b"v"])).to_arrow())


def test_streams_and_other_libraries() -> None:
    """A stream, polars and SQL give the same rows; a table of our schema is refused."""
    batch = batch_of(build_batch([b"a", b"b"], timestamp=3), ["value", "timestamp"])
    assert pa.table(batch).schema == pa.record_batch(batch).schema
    assert [b"a", b"b"] == batch.to_polars()["value"].to_list()
    assert [(2,)] == duckdb.sql("SELECT count(*) FROM batch").fetchall()
    with pytest.raises(ValueError, match="columns"):
        pa.table(Table(["value", "timestamp"], [batch]))


def test_rows_outlive_the_batch_they_came_from() -> None:
    """Blocks that both schemas use are shared and freed with the last reference."""
    ours = decode_batches(build_batch([b"v" * 1000] * 100)).to_arrow(choose_spark(None))
    shared = pa.record_batch(ours)["value"].buffers()[2].address
    theirs = pa.record_batch(SparkBatch(ours))
    assert shared == theirs["value"].buffers()[2].address
    del ours
    assert [b"v" * 1000] * 100 == theirs["value"].to_pylist()


def test_no_rows() -> None:
    """A batch without records has the schema."""
    rows = pa.record_batch(batch_of(b""))
    rows.validate(full=True)
    assert (0, SCHEMA) == (rows.num_rows, rows.schema)


def resident_kib() -> int:
    """Returns the resident memory of this process (KiB)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer holds freed memory back")
def test_nothing_leaks() -> None:
    """Batches with unused capsules, imported batches and single columns leak no memory and no Python object."""
    records = decode_batches(build_batch([Rec(b"v" * 100, b"k", [("h", b"x")] * (n % 2), n) for n in range(500)]))

    def use(round_number: int) -> None:
        batch = SparkBatch(records.to_arrow(choose_spark(None)))
        batch.__arrow_c_array__()
        batch.__arrow_c_schema__()
        kept = pa.record_batch(batch)["headers"] if round_number % 2 else pa.record_batch(batch)
        assert 500 == len(kept)

    for i in range(50):
        use(i)
    tracemalloc.start()
    before, blocks = resident_kib(), tracemalloc.get_traced_memory()[0]
    for i in range(1500):
        use(i)
    grown = tracemalloc.get_traced_memory()[0] - blocks
    tracemalloc.stop()
    assert before + 20_000 > resident_kib(), "a batch is 90 KB; 1500 leaked ones would be 135 MB"
    assert grown < 100_000, "one leaked capsule per iteration would be more"


def test_released_in_another_thread() -> None:
    """The last release frees the memory, in any thread, with and without the GIL."""
    batches = [batch_of(build_batch([b"v" * 100] * 1000), ["value", "timestamp", "headers"]) for _ in range(8)]
    imported = [pa.record_batch(batch) for batch in batches]

    def let_go() -> None:
        while imported:
            rows = imported.pop()
            assert 1000 == pc.count(rows["value"]).as_py()

    threads = [threading.Thread(target=let_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    batches.clear()
    for thread in threads:
        thread.join()
    assert [] == imported
