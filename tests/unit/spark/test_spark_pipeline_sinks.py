"""Names of files, and how tables recognise a micro-batch that is repeated; Spark is replaced by a recorder of calls."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from kconsumer.spark.pipeline.batch_sink import Batch, PipelineError
from kconsumer.spark.pipeline.checks import outputs
from kconsumer.spark.pipeline.settings import METADATA, Sink, parse
from kconsumer.spark.pipeline.sinks import DeltaSink, IcebergSink, file_name, merge


class Recorder:
    """Any attribute is a method that records its call. It returns the entry of `results`, or else the recorder."""

    def __init__(self, **results: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.columns: list[str] = []
        self._results = results

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "catalog", "conf"):
            return self
        return lambda *args, **options: self._call(name, *args, *options.items())

    def _call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, *args))
        return self._results.get(name, self)


def sink(kind: str, **given: Any) -> Sink:
    """Returns a sink with default settings."""
    values = {"path": None, "table": None, "partition_by": (), "max_records_per_file": 0, "files": None, "options": {}}
    return Sink(kind, **{**values, **given})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("part-00003-1b.c000.snappy.parquet", "q-0000000042-00007.c000.snappy.parquet"),
        ("part-00003-1b-c000.parquet", "q-0000000042-00007.parquet"),
    ],
)
def test_files_are_named_after_their_batch(written: str, name: str) -> None:
    """The name has query, batch and number, so that the files of a batch can be found; the suffix is that
    of the codec.
    """
    assert name == file_name(Batch("q", 42), 7, written)


def test_delta_receives_the_transaction_of_the_batch() -> None:
    """A Delta table skips a transaction that it has; the application id is the query and the version is the batch."""
    frame = Recorder()
    writes = DeltaSink(sink("delta", path="/t", files=2))
    writes.write(frame, Batch("q", 5))
    assert [("coalesce", 2), ("option", "txnAppId", "q"), ("option", "txnVersion", 5), ("save", "/t")] == [
        call for call in frame.calls if call[0] in ("coalesce", "option") or call == ("save", "/t")
    ]


def test_the_plan_of_a_batch_that_delta_may_skip_is_run() -> None:
    """Spark needs the state that the plan of a micro-batch stores, although the rows are in the table already. Only the
    first micro-batch of a run can be there. Its rows are computed once.
    """
    frame = Recorder()
    writes = DeltaSink(sink("delta", path="/t"))
    for number in (5, 6):
        writes.write(frame, Batch("q", number))
    steps = [call for call in frame.calls if call[0] in ("persist", "format", "save", "unpersist")]
    first = [("persist",), ("format", "noop"), ("save",), ("format", "delta"), ("save", "/t"), ("unpersist",)]
    assert [*first, ("format", "delta"), ("save", "/t")] == steps


def test_an_upsert_into_a_table_that_lacks_a_column() -> None:
    """A column that the table does not have is an error, and is not left out of the rows, unless it is one that the
    pipeline adds.
    """
    table, rows = Recorder(), Recorder()
    rows.sparkSession, table.columns = table, ["id"]
    target = sink("iceberg", table="a.b", key=("id",), mode="upsert")
    rows.columns = ["id", "event_time", *METADATA, "kafka_headers"]
    merge(rows, target, "a.b", print)
    assert [call[1] for call in table.calls if "INSERT (`id`) VALUES (s.`id`)" in str(call[1:])]
    rows.columns += ["note"]
    with pytest.raises(PipelineError, match=r"a\.b has no column note;"):
        merge(rows, target, "a.b", print)
    with pytest.raises(PipelineError, match=r"has no column kafka_offset, note;"):
        merge(rows, sink("iceberg", table="a.b", key=("kafka_offset",), mode="upsert"), "a.b", print)


def test_an_empty_text_that_delta_stores_as_null() -> None:
    """A key is compared as Delta stores it: in a column of partitions, an empty text is null. Else the row of such a
    key would be inserted again, and never deleted. A table without files, because it has no rows, is not created.
    """
    table, rows = MagicMock(), MagicMock(columns=["k", "id"])
    rows.sparkSession, table.sql().columns = table, ["k", "id"]
    kinds = (("k", "string"), ("id", "int"))
    rows.schema = {name: Mock(**{"dataType.typeName.return_value": kind}) for name, kind in kinds}
    given = sink("delta", path="/t", key=("k", "id"), partition_by=("k", "id"), mode="upsert")
    merge(rows, given, "t", Mock(side_effect=KeyError))
    assert "ON t.`k` <=> nullif(s.`k`, '') AND t.`id` = s.`id` WHEN" in table.sql.call_args[0][0]


def test_a_checkpoint_at_the_root_of_a_bucket() -> None:
    """The checkpoint may be the root of a file system, but not a file; an output may be neither."""

    def found(checkpoint: str, rows: str) -> list[str]:
        spark = MagicMock()
        spark._jvm.org.apache.hadoop.fs.Path = FakePath
        given = {"source": {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, "run": {"checkpoint": checkpoint}}
        config = parse({**given, "decode": {"schema": "id int", "on_invalid": "drop"}, "sink": {"path": rows}})
        return [check.text.partition(" ")[0] for check in outputs(config, spark)]

    assert [] == found("s3a://checkpoints", "s3a://bucket/rows")
    assert ["run.checkpoint"] == found("s3a://bucket/file", "s3a://bucket/rows")
    assert ["sink.path"] == found("s3a://checkpoints", "s3a://bucket")


class FakePath(str):
    """Hadoop's path in a bucket, and its file system, in which only the paths that end in `file` are files."""

    def isRoot(self) -> bool:  # noqa: N802  Hadoop's name, as those below
        """Returns whether this is the bucket."""
        return self.count("/") == 2

    def getFileSystem(self, conf: object) -> Any:  # noqa: N802
        """Returns the file system."""
        return MagicMock(makeQualified=lambda path: path, isFile=lambda path: path.endswith("file"))


@pytest.mark.parametrize(("newest", "written"), [(4, [5, 6]), (5, [6]), (None, [5, 6])])
def test_iceberg_skips_a_batch_it_has(newest: int | None, written: list[int]) -> None:
    """The newest batch of the query is read from the snapshots once; later batches are new."""
    spark = Recorder(tableExists=True, first=[newest])
    frame = Recorder()
    writes = IcebergSink(spark, sink("iceberg", table="a.b"))
    for number in (5, 6):
        writes.write(frame, Batch("q", number))
    batches = [int(call[2]) for call in frame.calls if call[:2] == ("option", "snapshot-property.kconsumer.batch")]
    assert written == batches
    assert 1 == sum(call[0] == "sql" for call in spark.calls)
    assert len(written) == frame.calls.count(("append",))
    writes.write(frame, Batch("another", 9))
    assert 2 == sum(call[0] == "sql" for call in spark.calls)


@pytest.mark.parametrize(("columns", "rows", "written"), [(2, 1, []), (2, 0, [9]), (0, 0, None)])
def test_iceberg_looks_up_rows_if_snapshots_have_expired(columns: int, rows: int, written: list[int] | None) -> None:
    """If the snapshot of the batch before an interrupted one has expired, the rows of the interrupted one show whether
    it was written; without their places in the topic it is an error. Batches that were not interrupted are new.
    """
    spark = Recorder(tableExists=True, first=[7])
    frame = Recorder(count=rows)
    frame.columns = ["id", "kafka_partition", "kafka_offset"][: columns + 1]
    writes = IcebergSink(spark, sink("iceberg", table="a.b"))
    if written is None:
        with pytest.raises(PipelineError, match=r"micro-batch 9 was interrupted.*expired"):
            writes.write(frame, Batch("q", 9, repeated=True))
        return
    writes.write(frame, Batch("q", 9, repeated=True))
    assert written == [int(call[2]) for call in frame.calls if call[1:2] == ("snapshot-property.kconsumer.batch",)]
    writes.write(frame, Batch("r", 9))
    assert len(written) + 1 == frame.calls.count(("append",))
