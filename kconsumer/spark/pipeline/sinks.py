"""Writes a micro-batch exactly once, even if Spark runs it several times.

Spark may repeat a micro-batch, with the same records, until it is marked as done in the checkpoint. So a sink must
recognize a batch that it has written. The name of each file contains the id of the query and the number of the batch.
If a batch is repeated, the files of the earlier attempt are deleted. Files are written to a staging folder and then
renamed into the output, so a reader never finds an incomplete file or a file of a lost task. (Spark's own file sink
leaves such files in the folder, and lists the valid ones in a log that only Spark reads.)
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline.batch_sink import Batch, BatchSink, PipelineError
from kconsumer.spark.pipeline.jdbc_sink import JdbcSink, run_plan
from kconsumer.spark.pipeline.reporting import first_line
from kconsumer.spark.pipeline.settings import DELETED, EVENT_TIME, HEADERS, METADATA, Sink, comparable, quoted

__all__ = [
    "ConsoleSink",
    "DeltaSink",
    "FileSink",
    "Folder",
    "IcebergSink",
    "delta_table",
    "existing",
    "file_name",
    "make",
]


def file_name(batch: Batch, index: int, written: str) -> str:
    """Returns the final name of file number `index` of a batch.

    `written` is the name that Spark has given the file. The final name has the same suffix.
    """
    _, dot, ending = written.partition(".c")
    return f"{batch}-{index:05d}" + (f".c{ending}" if dot else ".parquet")


class Folder:
    """A folder in any file system that Spark supports. All operations are calls to Hadoop in Spark's JVM."""

    def __init__(self, spark: Any, path: str) -> None:
        self._jvm = spark._jvm
        try:
            self._files = self.at(path).getFileSystem(spark._jsc.hadoopConfiguration())
            self.root = self._files.makeQualified(self.at(path))
        except OSError:  # the JVM has ended
            raise
        except Exception as error:  # of Hadoop
            raise ConfigError(f"{path!r} cannot be a folder of a pipeline: {first_line(error)}") from None

    def at(self, path: str) -> Any:
        """Convert a path to Hadoop's Path."""
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def is_file(self, *, or_root: bool = True) -> bool:
        """Returns True if the path is a file, or the root of a file system, next to which no folder can be made."""
        return bool((or_root and self.root.isRoot()) or self._files.isFile(self.root))

    def files(self) -> list[str]:
        """Returns the data files in the folder and its subfolders, as sorted relative paths."""
        if not self._files.exists(self.root):
            return []
        base, found, listed = self.root.toUri(), [], self._files.listFiles(self.root, True)
        while listed.hasNext():
            found.append(str(base.relativize(listed.next().getPath().toUri()).getPath()))
        return sorted(name for name in found if not any(map(_hidden, name.split("/"))))

    def times(self, folder: str) -> dict[str, int]:
        """Returns the names of the entries of a subfolder, with the times (ms since 1970) of their last change."""
        path = self.at(f"{self.root}/{folder}")
        if not self._files.exists(path):
            return {}
        return {each.getPath().getName(): each.getModificationTime() for each in self._files.listStatus(path)}

    def text(self, path: str) -> str | None:
        """Returns the text of a file, or None if it does not exist."""
        file = self.at(f"{self.root}/{path}")
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a file, in place of one with the same name."""
        stream = self._files.create(self.at(f"{self.root}/{path}"), True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def move(self, source: Any, to: str) -> None:
        """Rename the file `source` to the relative path `to` in the folder. Raises OSError if that fails."""
        target = self.at(f"{self.root}/{to}")
        self._files.mkdirs(target.getParent())
        if not self._files.rename(source, target):
            raise OSError(f"{source} could not be renamed to {target}")

    def beginning(self, prefix: str) -> list[Any]:
        """Returns the paths of the files whose names begin with `prefix`, in the folder and its folders of partitions.

        The JVM selects them: to get all names of a large table would take minutes.
        """
        found, folders = list[Any](), literal(str(self.root))
        while self._files.globStatus(self.at(folders)):
            found += [status.getPath() for status in self._files.globStatus(self.at(f"{folders}/{prefix}*"))]
            folders += "/*=*"
        return found

    def delete(self, path: Any = None) -> None:
        """Delete a path in the folder, or the whole folder."""
        self._files.delete(self.root if path is None else path, True)


def literal(path: str) -> str:
    """Returns the pattern that matches only this path, where a path is taken for a pattern."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)


def _hidden(part: str) -> bool:
    """Returns whether Spark ignores a file or folder with this name. It does not ignore `_column=value`."""
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


class FileSink:
    """Writes Parquet files to subfolders for the values of the partition columns, such as `date=2024-05-01`."""

    runs_all = True

    def __init__(self, spark: Any, sink: Sink) -> None:
        assert sink.path is not None
        self._spark, self._sink = spark, sink
        self._folder = Folder(spark, sink.path)
        self._staging = f"{self._folder.root}.staging"
        self._tried: set[Batch] = set()  # the last batch whose files this object began to rename
        self._began = False  # True: this object has written a batch completely

    def write(self, frame: Any, batch: Batch) -> None:
        """Write to a staging folder, delete files of an earlier attempt, then rename the new files into the output."""
        staging = Folder(self._spark, f"{self._staging}/{batch}-{uuid.uuid4().hex[:8]}")
        self._sweep(batch)
        try:
            writer = limit_tasks(frame, self._sink).write.partitionBy(*self._sink.partition_by).mode("overwrite")
            writer.options(**self._sink.options).parquet(str(staging.root))
            self._delete_files(batch)
            self._tried = {batch}
            for index, name in enumerate(staging.files()):
                folder, slash, file = name.rpartition("/")
                self._folder.move(staging.at(f"{staging.root}/{name}"), folder + slash + file_name(batch, index, file))
            self._began = True
        finally:
            staging.delete()

    def write_nothing(self, batch: Batch) -> None:
        """Write a batch that has no rows: delete the files of an earlier attempt in which it had some."""
        self._sweep(batch)
        self._delete_files(batch)
        self._began = True

    def _delete_files(self, batch: Batch) -> None:
        """Delete the files of earlier attempts to write a batch, in whatever folders they are.

        There may be such files for the first batch of this run, which an earlier run may have attempted, and for a
        batch in `_tried`, which this run has attempted.
        """
        if self._began and batch not in self._tried:
            return
        for path in self._folder.beginning(f"{batch}-"):
            self._folder.delete(path)

    def _sweep(self, batch: Batch) -> None:
        """Delete the staging folders that earlier runs of the query left, before the first batch of this run."""
        staging = Folder(self._spark, self._staging)
        for path in [] if self._began else staging.beginning(f"{batch.query}-"):
            staging.delete(path)


CONF = "spark.databricks.delta.write"  # settings with which Delta skips a MERGE that it has done already


class DeltaSink:
    """Appends to a Delta table. Delta skips a batch of a query that is in the table already."""

    runs_all = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._began = False  # only the first batch of a run may be in the table already

    def write(self, frame: Any, batch: Batch) -> None:
        """Append the rows.

        Delta does not run the plan of a batch that it skips, but Spark needs the state of aggregates, which the plan
        stores. So the plan of the first batch of a run is run before, and its rows are kept for the append. (Whether
        Delta has skipped a batch cannot be seen from the version of the table, which other writers change, too.)
        """
        if self._began:
            self._append(frame, batch)
            return
        kept = frame.persist()
        try:
            run_plan(kept)
            self._append(kept, batch)
        finally:
            kept.unpersist()
        self._began = True

    def _append(self, frame: Any, batch: Batch) -> None:
        if self._sink.mode == "upsert":
            conf = {f"{CONF}.txnAppId": batch.query, f"{CONF}.txnVersion": str(batch.number)}
            table = delta_table(frame.sparkSession, self._sink)
            merge(frame, self._sink, table, lambda rows: self._writer(rows).save(self._sink.path), conf)
            return
        writer = self._writer(frame).option("txnAppId", batch.query).option("txnVersion", batch.number)
        writer.save(self._sink.path)

    def _writer(self, frame: Any) -> Any:
        writer = limit_tasks(frame, self._sink).write.format("delta").mode("append")
        return writer.partitionBy(*self._sink.partition_by).options(**self._sink.options)


class IcebergSink:
    """Appends to an Iceberg table. The summary of each snapshot contains the query and the number of its batch."""

    runs_all = False

    QUERY, BATCH = "kconsumer.query", "kconsumer.batch"

    def __init__(self, spark: Any, sink: Sink) -> None:
        self._spark, self._sink = spark, sink
        self._done: dict[str, int] = {}  # id of a query -> number of its newest batch in the table

    def write(self, frame: Any, batch: Batch) -> None:
        """Append the rows, unless the table has a snapshot of this batch, or merge them."""
        if self._sink.mode == "upsert":
            merge(frame, self._sink, str(self._sink.table), lambda rows: self._create(rows.writeTo(self._sink.table)))
            return
        if batch.query not in self._done:
            self._done[batch.query] = self._newest(batch.query)
            if batch.repeated and self._is_unknown(batch) and self._holds(frame, batch):
                self._done[batch.query] = batch.number
        if batch.number <= self._done[batch.query]:
            run_plan(frame)
            return
        writer = limit_tasks(frame, self._sink).writeTo(self._sink.table).options(**self._sink.options)
        writer = writer.option(f"snapshot-property.{self.QUERY}", batch.query)
        writer = writer.option(f"snapshot-property.{self.BATCH}", str(batch.number))
        if self._spark.catalog.tableExists(self._sink.table):
            writer.append()
        else:
            self._create(writer)
        self._done[batch.query] = batch.number

    def _create(self, writer: Any) -> None:
        from pyspark.sql.functions import col

        parts = [col(quoted(name)) for name in self._sink.partition_by]
        (writer.using("iceberg").partitionedBy(*parts) if parts else writer.using("iceberg")).create()

    def _newest(self, query: str) -> int:
        """Returns the number of the newest batch of this query in the table, or -1 if there is none."""
        if not self._spark.catalog.tableExists(self._sink.table):
            return -1
        summary = f"summary['{self.QUERY}'] = '{query}'"
        newest = f"max(cast(summary['{self.BATCH}'] as bigint))"
        found = self._spark.sql(f"SELECT {newest} FROM {self._sink.table}.snapshots WHERE {summary}").first()[0]
        return -1 if found is None else int(found)

    def _is_unknown(self, batch: Batch) -> bool:
        """Returns whether the snapshot of a batch that was interrupted may have expired.

        The oldest snapshots expire first. So it has not if that of the batch before is there, or, for the first batch,
        the first snapshot of the table.
        """
        newest = self._done[batch.query]
        if batch.number or newest >= 0 or not self._spark.catalog.tableExists(self._sink.table):
            return newest < batch.number - 1
        counts = "count(*) > 0 AND count_if(parent_id IS NULL) = 0"
        return bool(self._spark.sql(f"SELECT {counts} FROM {self._sink.table}.snapshots").first()[0])

    def _holds(self, frame: Any, batch: Batch) -> bool:
        """Returns whether the table has rows of a batch that was interrupted.

        Raises PipelineError if they cannot be distinguished from other rows.
        """
        place = [name for name in METADATA[:3] if name in frame.columns]
        if place[-2:] == list(METADATA[1:3]):
            table = self._spark.table(self._sink.table).select(*place)
            return bool(frame.join(table, place, "left_semi").limit(1).count())
        raise PipelineError(
            f"micro-batch {batch.number} was interrupted, and the snapshots of {self._sink.table} that show whether it"
            f" was written have expired; without {' and '.join(METADATA[1:3])} in decode.metadata its rows cannot be"
            " recognized. Restore a snapshot of before, or write to another table with another checkpoint"
        )


class ConsoleSink:
    """Prints the first rows of each batch and stores nothing. It is for trying a pipeline out."""

    runs_all = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, frame: Any, batch: Batch) -> None:
        """Print the first rows: 20, or as many as the option `numRows` sets."""
        frame.show(int(self._sink.options.get("numRows", 20)), truncate=False)


def delta_table(spark: Any, sink: Sink) -> str:
    """Returns the name of a Delta table in SQL, in which its path must be absolute."""
    return f"delta.{quoted(str(Folder(spark, str(sink.path)).root))}"


def merge(
    frame: Any, sink: Sink, table: str, create: Callable[[Any], object], conf: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write the rows of an upsert to a table, and delete those that have 1 in the column DELETED.

    If the batch is repeated, the table stays the same, because it has no newer rows. `create` is called with an empty
    DataFrame if there is no table yet. `conf`: settings of the session for the statement.
    """
    spark = frame.sparkSession
    if existing(spark, sink) is None:
        create(frame.limit(0).drop(DELETED))
    view, fold = f"kconsumer_{uuid.uuid4().hex}", comparable(spark)
    written = {fold(name): f"s.{quoted(name)}" for name in frame.columns if name != DELETED}
    present = spark.sql(f"SELECT * FROM {table}").columns
    own = {*METADATA, HEADERS, EVENT_TIME} - {*sink.key}  # a table need not have these
    if lacking := written.keys() - set(map(fold, (*present, *own))):
        raise PipelineError(f"{sink.place} has no column {', '.join(sorted(lacking))}; add it to the table")
    columns = {quoted(name): written.get(fold(name), "NULL") for name in present}
    updates = ", ".join(f"{name} = {value}" for name, value in columns.items() if value != "NULL")
    same = [f"t.{quoted(name)} {_equals(sink, frame, name)}" for name in sink.key]
    frame.createOrReplaceTempView(view)
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        spark.sql(
            f"MERGE INTO {table} AS t USING {view} AS s"
            f" ON {' AND '.join(same)}"
            f" WHEN MATCHED AND s.{DELETED} = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET {updates}"
            f" WHEN NOT MATCHED AND s.{DELETED} = 0 THEN INSERT ({', '.join(columns)})"
            f" VALUES ({', '.join(columns.values())})"
        )
    finally:
        spark.catalog.dropTempView(view)
        for name in conf:
            spark.conf.unset(name)


def _equals(sink: Sink, frame: Any, name: str) -> str:
    """Returns the condition of a column of the key. Delta stores an empty text in a column of partitions as null."""
    if sink.format == "delta" and name in sink.partition_by and frame.schema[name].dataType.typeName() == "string":
        return f"<=> nullif(s.{quoted(name)}, '')"
    return f"= s.{quoted(name)}"


def limit_tasks(frame: Any, sink: Sink) -> Any:
    """Returns the frame with at most `sink.files` tasks, if that is set. Each task writes its own files."""
    return frame if sink.files is None else frame.coalesce(sink.files)


def make(spark: Any, sink: Sink) -> BatchSink:
    """Create the sink that the settings describe."""
    if sink.format != "jdbc" and sink.max_records_per_file and "maxRecordsPerFile" not in sink.options:
        limit = {"maxRecordsPerFile": str(sink.max_records_per_file)}
        sink = Sink(**{**sink.__dict__, "options": {**sink.options, **limit}})
    makers: dict[str, Callable[[], BatchSink]] = {
        "parquet": lambda: FileSink(spark, sink),
        "delta": lambda: DeltaSink(sink),
        "iceberg": lambda: IcebergSink(spark, sink),
        "jdbc": lambda: JdbcSink(spark, sink),
        "console": lambda: ConsoleSink(sink),
    }
    return makers[sink.format]()


def existing(spark: Any, sink: Sink) -> Any:
    """Returns what a sink has written as a DataFrame, or None if there is nothing yet."""
    if sink.format == "iceberg":
        return spark.table(sink.table) if spark.catalog.tableExists(sink.table) else None
    if sink.format == "jdbc":
        database = JdbcSink(spark, sink)
        return database.read() if database.exists() else None
    folder = Folder(spark, str(sink.path))
    if sink.format == "delta":  # which has no files as long as it has no rows
        found = spark._jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, str(folder.root))
        return spark.read.format("delta").load(sink.path) if found else None
    return spark.read.parquet(literal(str(sink.path))) if folder.files() else None
