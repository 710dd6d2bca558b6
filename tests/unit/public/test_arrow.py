"""Arrow columns of records: how other libraries read them, and when their memory is freed."""

from __future__ import annotations

import datetime
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest

from kconsumer import ConsumerRecords, TopicPartition, decode_batches
from kconsumer._core.arrow import build, stream_capsule
from kconsumer._core.decode import PartitionFetch, RecordRun
from kconsumer.arrow import COLUMNS, RecordBatch, Table
from kconsumer.errors import CorruptRecordError
from kconsumer.testing.batches import CODECS, Rec, build_batch, build_message_set

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.int8()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("leader_epoch", pa.int32()),
    ]
)
TP = TopicPartition("orders", 3)


def some_records() -> ConsumerRecords:
    """Returns records with nulls, empty strings, headers of all kinds, a gap in the offsets, and batches with and
    without an epoch.
    """
    first = build_batch(
        [
            Rec(b"one", b"k", [("h", b"x"), ("ü", None), (b"\xff\xfe", b"")], 1_000),
            Rec(None, b"", (), 2_000),
            Rec(b"", None, [("h", b"y")], 3_000),
        ],
        base_offset=10,
        leader_epoch=4,
        codec="gzip",
    )
    second = build_batch([b"four"], base_offset=20, log_append_time=True, max_timestamp=9_000)
    return decode_batches(first + second, topic="orders", partition=3)


EXPECTED = [
    (b"k", b"one", 10, 1_000, 0, [("h", b"x"), ("ü", None), ("��", b"")], 4),
    (b"", None, 11, 2_000, 0, [], 4),
    (None, b"", 12, 3_000, 0, [("h", b"y")], 4),
    (None, b"four", 20, 9_000, 1, [], None),
]


def rows_of(table: pa.Table | pa.RecordBatch) -> list[tuple[object, ...]]:
    """Returns the rows as Python values, without topic and partition."""
    columns = table.set_column(5, "timestamp", table.column("timestamp").cast(pa.int64())).to_pydict()
    columns["headers"] = [[(header["key"], header["value"]) for header in row] for row in columns["headers"]]
    return list(zip(*(columns[name] for name in COLUMNS if name not in ("topic", "partition")), strict=True))


def filled(count: int, value: bytes = b"v" * 100, topic: str = "t") -> tuple[RecordRun, ...]:
    """Returns a run of equal records."""
    data = b"".join(build_batch([(b"key", value)] * 100, base_offset=base) for base in range(0, count, 100))
    return (PartitionFetch(TopicPartition(topic, 0), data, 0).take(count),)


# --- contents


def test_pyarrow_reads_every_column() -> None:
    """The schema is the documented one and the rows are the records, as an array and as a stream."""
    batch = some_records().to_arrow().to_pyarrow()
    batch.validate(full=True)
    assert SCHEMA == batch.schema
    assert EXPECTED == rows_of(batch)
    assert [("orders", 3)] * 4 == list(zip(batch["topic"].to_pylist(), batch["partition"].to_pylist(), strict=True))
    table = pa.table(some_records())
    table.validate(full=True)
    assert (SCHEMA, EXPECTED) == (table.schema, rows_of(table))
    assert [0, 0, 1] == [batch[name].null_count for name in ("offset", "timestamp", "leader_epoch")]


def test_polars_reads_every_column() -> None:
    """polars sees the same values, whether it is handed the records or a batch."""
    for frame in (some_records().to_polars(), some_records().to_arrow().to_polars(), polars.DataFrame(some_records())):
        assert list(COLUMNS) == frame.columns
        assert [b"k", b"", None, None] == frame["key"].to_list()
        assert [4, 4, 4, None] == frame["leader_epoch"].to_list()
        assert [{"key": "h", "value": b"y"}] == frame["headers"].to_list()[2]
        assert datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC) == frame["timestamp"][0]


def test_pandas_reads_every_column() -> None:
    """pandas sees the same values; only chosen columns are built."""
    for frame in (some_records().to_pandas(), some_records().to_arrow().to_pandas()):
        assert [10, 11, 12, 20] == frame["offset"].tolist()
        assert [b"one", None, b"", b"four"] == frame["value"].tolist()
    assert ["offset", "key"] == some_records().to_pandas(["offset", "key"]).columns.tolist()


def test_duckdb_queries_records() -> None:
    """SQL reads records and a batch by the name of the variable that refers to them."""
    records = some_records()
    batch = records.to_arrow(["offset", "value"])
    connection = duckdb.connect()
    assert records
    assert batch
    assert [(4, 53)] == connection.sql('select count(*), sum("offset") from records').fetchall()
    assert [(b"four",)] == connection.sql('select value from batch where "offset" > 12').fetchall()


@pytest.mark.parametrize("columns", [["offset"], ["value", "key"], ["headers"], ["leader_epoch", "topic", "offset"]])
def test_chosen_columns(columns: list[str]) -> None:
    """Only the chosen columns are built, in the caller's order."""
    whole = some_records().to_arrow().to_pyarrow()
    chosen = some_records().to_arrow(columns)
    assert tuple(columns) == chosen.columns
    assert whole.select(columns) == chosen.to_pyarrow()


def test_choices_that_make_no_sense() -> None:
    """Unknown names, a bare string and no columns at all are refused; a repeated name counts once."""
    records = some_records()
    with pytest.raises(ValueError, match="no column 'valu'; there are key, value"):
        records.to_arrow(["valu"])
    with pytest.raises(TypeError, match=r"columns=\['value'\]"):
        records.to_arrow("value")
    with pytest.raises(ValueError, match="no columns"):
        records.to_arrow([])
    assert ("key",) == records.to_arrow(["key", "key"]).columns
    with pytest.raises(ValueError, match="twice"):
        build((), ("key", "key"))


def test_no_records() -> None:
    """An empty result has the schema and no rows, in every library."""
    empty = ConsumerRecords.EMPTY
    batch = empty.to_arrow()
    assert (0, False, COLUMNS) == (len(batch), bool(batch), batch.columns)
    assert (SCHEMA, 0) == (batch.to_pyarrow().schema, batch.to_pyarrow().num_rows)
    assert (0, 9) == empty.to_polars().shape == empty.to_pandas().shape == Table(None, []).to_polars().shape
    assert (SCHEMA, 0) == (Table(None, []).to_pyarrow().schema, Table(None, []).num_rows)
    assert [(0,)] == duckdb.connect().sql("select count(*) from empty").fetchall()


def test_bytes_of_records_whose_deserializers_ran() -> None:
    """Columns contain the bytes of the record, not the results of deserializers."""
    run = PartitionFetch(TP, build_batch([(b"1", b"2")]), 0).take(9)
    run.deserialize(lambda topic, headers, data: int(data or b""), None)
    records = ConsumerRecords.from_runs([run])
    assert (1, b"1") == (next(iter(records)).key, records.to_arrow().to_pyarrow()["key"][0].as_py())


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_the_oldest_formats(magic: int) -> None:
    """Records of message formats 0 and 1 have no headers and no epoch, and in format 0 no timestamp."""
    data = build_message_set([b"a", (b"k", None)], magic=magic, base_offset=5, codec="gzip", timestamp=7)
    times = (-1, -1) if magic == 0 else (7, 0)
    assert [(None, b"a", 5, *times, [], None), (b"k", None, 6, *times, [], None)] == rows_of(
        pa.table(decode_batches(data))
    )


def test_records_below_the_position() -> None:
    """A batch that begins before the position gives the rows from the position on."""
    run = PartitionFetch(TP, build_batch([b"0", b"1", b"2", b"3"]), 2).take(9)
    assert [2, 3] == RecordBatch.of([run]).to_pyarrow()["offset"].to_pylist()


def test_rows_beyond_the_end_are_omitted() -> None:
    """Records at or beyond the given end of their partition are not built; other partitions are complete."""
    runs = [PartitionFetch(tp, build_batch([b"x"] * 5), 0).take(9) for tp in (TP, TopicPartition("t", 0))]
    batch = RecordBatch.of(runs, ["partition", "offset"], ends={TP: 2}).to_pyarrow()
    assert [(3, 0), (3, 1), *((0, offset) for offset in range(5))] == [tuple(row.values()) for row in batch.to_pylist()]
    assert 0 == RecordBatch.of(runs[:1], ends={TP: 0}).num_rows


def test_gaps_between_rows() -> None:
    """Offsets without a row are reported, before the first row and between two rows."""
    batch = some_records().to_arrow(["value"])
    assert [(7, 10), (13, 20)] == batch.gaps(7)
    assert [(13, 20)] == batch.gaps(10, 21)
    assert [(13, 20), (21, 30)] == batch.gaps(10, 30)


def test_bytes_changed_after_the_check() -> None:
    """If bytes were changed after the check, CorruptRecordError is raised and nothing is read beyond the buffer."""
    data = bytearray(build_batch([Rec(b"v", b"k", [("h", b"x")])] * 3))
    records = decode_batches(data)
    data[61:] = b"\xff" * len(data[61:])
    with pytest.raises(CorruptRecordError):
        records.to_arrow()


# --- size


@pytest.mark.parametrize("codec", CODECS)
def test_many_records_without_the_gil(codec: str) -> None:
    """Columns built without the GIL equal those built with it."""
    data = b"".join(
        build_batch(
            [Rec(b"%d" % (base + i) * 9, b"k" if i % 2 else None, [(f"ü{i}", b"x")] * (i % 3)) for i in range(500)],
            base_offset=base,
            codec=codec,
        )
        for base in range(0, 5000, 500)
    )
    table = pa.table(decode_batches(data))
    table.validate(full=True)
    assert [(r.key, r.value, r.offset, list(r.headers)) for r in decode_batches(data)] == [
        (row[0], row[1], row[2], row[5]) for row in rows_of(table)
    ]


def test_columns_past_their_limit_become_several_batches() -> None:
    """Rows beyond the limit of a column are put into further batches, in order; a single array for all is refused."""
    for names in (("value", "offset"), ("topic", "offset"), COLUMNS):
        parts = build(filled(1000, topic="t" * 90), names, max_bytes=25_000)
        assert len(parts) > 3
        table = Table(names, parts).to_pyarrow()
        table.validate(full=True)
        assert list(range(1000)) == table["offset"].to_pylist()
        assert all(25_000 >= batch[0].nbytes - 8 * len(batch) for batch in table.to_batches())
    headers = build_batch([Rec(b"v", headers=[("name", b"x" * 50)])] * 300)
    parts = build((PartitionFetch(TP, headers, 0).take(300),), COLUMNS, max_bytes=4000)
    assert [("name", b"x" * 50)] * 300 == [row[5][0] for row in rows_of(Table(COLUMNS, parts).to_pyarrow())]


def test_record_larger_than_a_column() -> None:
    """A single value beyond the limit raises OverflowError."""
    for columns in (COLUMNS, ("value",), ("topic",)):
        with pytest.raises(OverflowError, match="does not fit"):
            build(filled(100, topic="t" * 200), columns, max_bytes=99)


def test_to_arrow_of_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """If several batches would be needed, the error of to_arrow names the alternative."""
    monkeypatch.setattr("kconsumer.arrow.build", lambda *args: build(*args, max_bytes=5000))
    records = ConsumerRecords.from_runs(filled(100))
    with pytest.raises(OverflowError, match="__arrow_c_stream__"):
        records.to_arrow()
    assert 100 == pa.table(records).num_rows


# --- memory


def test_rows_outlive_everything_else() -> None:
    """Arrays can be read after records, batch and received bytes were freed; so can a single column."""
    records = some_records()
    batch = records.to_arrow()
    first, second = batch.to_pyarrow(), batch.to_pyarrow()
    value = first["value"]
    del records, batch, first
    gc.collect()
    assert [b"one", None, b"", b"four"] == value.to_pylist()
    assert EXPECTED == rows_of(second)


def test_exports_share_memory() -> None:
    """Two exports of a batch share their memory."""
    batch = some_records().to_arrow()
    first, second = (batch.to_pyarrow()["value"].buffers()[2] for _ in range(2))
    assert first.address == second.address


def resident_kib() -> int:
    """Returns the resident memory of this process (KiB)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer holds freed memory back")
def test_nothing_leaks() -> None:
    """Unused capsules, imported arrays, single columns and partly read streams leak no memory."""
    runs = filled(2000)

    def use(round_number: int) -> None:
        batch = RecordBatch.of(runs)
        batch.__arrow_c_array__()
        batch.__arrow_c_schema__()
        batch.__arrow_c_stream__()
        kept = batch.to_pyarrow()["value"] if round_number % 2 else batch.to_polars()
        parts = build(runs, COLUMNS, max_bytes=50_000)
        pa.RecordBatchReader.from_stream(Table(COLUMNS, parts)).read_next_batch()
        assert 2000 == len(kept)

    for i in range(20):
        use(i)
    before = resident_kib()
    for i in range(300):
        use(i)
    assert before + 20_000 > resident_kib(), "one batch is 300 KB; 300 leaked ones would be 90 MB"


def test_released_from_other_threads() -> None:
    """Exports of one batch can be read and released in several threads at once."""
    failures: list[BaseException] = []

    def work(batch: RecordBatch) -> None:
        try:
            for _ in range(50):
                array = batch.to_pyarrow()
                assert 5000 == len(array["value"])
                batch.__arrow_c_array__()
        except BaseException as error:
            failures.append(error)

    batch = RecordBatch.of(filled(5000))
    threads = [threading.Thread(target=work, args=[batch]) for _ in range(4)]
    for thread in threads:
        thread.start()
    del batch
    for thread in threads:
        thread.join()
    assert [] == failures


def test_a_capsule_is_consumed_once() -> None:
    """A capsule can be imported once; a second import is refused and the first one stays valid."""
    schema, array = some_records().to_arrow().__arrow_c_array__()
    taken = pa.RecordBatch._import_from_c_capsule(schema, array)
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        pa.RecordBatch._import_from_c_capsule(schema, array)
    del schema, array
    assert EXPECTED == rows_of(taken)


def test_parts_of_one_stream_have_its_columns() -> None:
    """A stream refuses batches whose columns differ from its schema."""
    with pytest.raises(ValueError, match="a part has columns"):
        stream_capsule(build((), ("key",)), ("value",))


# --- imports


def test_importing_kconsumer_imports_no_arrow_library() -> None:
    """pyarrow, polars, pandas, duckdb and numpy are not imported until a method needs them."""
    code = "import sys, kconsumer; print(sorted({'pyarrow','polars','pandas','duckdb','numpy'} & set(sys.modules)))"
    assert "[]\n" == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the library and the command to install it."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        some_records().to_polars()


def test_memory_used_again_changes_no_batch_that_is_held() -> None:
    """Large blocks are reused for later columns, except for those of a batch in use; earlier contents of a block are
    never visible.
    """
    held = RecordBatch.of(filled(20_000)).to_pyarrow()
    expected = held.to_pydict()
    for value in (b"w" * 90, b"", b"x" * 130):
        other = RecordBatch.of(filled(20_000, value)).to_pyarrow()
        other.validate(full=True)
        assert {value} == set(other["value"].to_pylist())
        assert [[]] * 20_000 == other["headers"].to_pylist()
        del other
    assert expected == held.to_pydict()
