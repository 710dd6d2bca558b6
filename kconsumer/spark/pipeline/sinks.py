"""How a micro-batch is written so that it is there once, however often it is tried.

Spark runs a micro-batch again, with the same records, until it has noted it as done; a sink must therefore know a batch
again. Files carry the query's id and the batch's number in their names: a batch tried again first takes its files away.
They are written beside the output and renamed into it, so that no reader sees half a file, nor the files of a task that
was lost. (Spark's own file sink leaves such files lying and lists the good ones in a log that only Spark reads.)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kconsumer.spark.pipeline.settings import Sink

__all__ = ["BatchSink", "ConsoleSink", "DeltaSink", "FileSink", "Folder", "IcebergSink", "file_name", "make"]


@dataclass(frozen=True)
class Batch:
    """A micro-batch by what stays the same when it is tried again."""

    query: str  # the id that the checkpoint keeps
    number: int

    def __str__(self) -> str:
        return f"{self.query}-{self.number:010d}"


class BatchSink(Protocol):
    """Writes the rows of a micro-batch; written again they are still there once.

    `runs_all`: each write runs the whole plan in one action that Spark observes. Tables do not: they skip a batch that
    they have, and Delta runs the plan where Spark does not look, so that what is observed of it never comes.
    """

    runs_all: bool

    def write(self, frame: Any, batch: Batch) -> None: ...


def file_name(batch: Batch, index: int, written: str) -> str:
    """What the file of a batch is called; `written` is the name Spark gave it, of which the ending stays."""
    _, dot, ending = written.partition(".c")
    return f"{batch}-{index:05d}" + (f".c{ending}" if dot else ".parquet")


class Folder:
    """Folders of any file system that Spark knows, through its JVM."""

    def __init__(self, spark: Any, path: str) -> None:
        self._jvm = spark._jvm
        self.root = self.at(path)
        self._files = self.root.getFileSystem(spark._jsc.hadoopConfiguration())
        self.root = self._files.makeQualified(self.root)

    def at(self, path: str) -> Any:
        """A Hadoop path."""
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._files.exists(self.root))

    def files(self) -> list[str]:
        """The files below it that are data, relative to it, in order."""
        if not self.exists():
            return []
        base, found, listed = self.root.toUri(), [], self._files.listFiles(self.root, True)
        while listed.hasNext():
            found.append(str(base.relativize(listed.next().getPath().toUri()).getPath()))
        return sorted(name for name in found if not any(part[0] in "._" for part in name.split("/")))

    def matching(self, pattern: str) -> list[Any]:
        """Paths below it that fit a glob."""
        return [status.getPath() for status in self._files.globStatus(self.at(f"{self.root}/{pattern}")) or ()]

    def move(self, source: Any, to: str) -> None:
        """Rename a file to a place below it."""
        target = self.at(f"{self.root}/{to}")
        self._files.mkdirs(target.getParent())
        if not self._files.rename(source, target):
            raise OSError(f"{source} could not be renamed to {target}")

    def delete(self, path: Any = None) -> None:
        """Delete a path below it, or all of it."""
        self._files.delete(self.root if path is None else path, True)


class FileSink:
    """Parquet files in folders named after columns."""

    runs_all = True

    def __init__(self, spark: Any, sink: Sink) -> None:
        assert sink.path is not None
        self._spark, self._sink = spark, sink
        self._folder = Folder(spark, sink.path)
        self._tried: set[Batch] = set()
        self._began = False

    def write(self, frame: Any, batch: Batch) -> None:
        """Stage, take away what an earlier try left, publish."""
        staging = Folder(self._spark, f"{str(self._folder.root).rstrip('/')}.staging/{batch}-{uuid.uuid4().hex[:8]}")
        if not self._began:
            self._sweep(batch)
        try:
            writer = cut(frame, self._sink).write.partitionBy(*self._sink.partition_by).mode("overwrite")
            writer.options(**self._sink.options).parquet(str(staging.root))
            if not self._began or batch in self._tried:
                self._forget(batch)
            self._tried = {batch}
            for index, name in enumerate(staging.files()):
                folder, slash, file = name.rpartition("/")
                self._folder.move(staging.at(f"{staging.root}/{name}"), folder + slash + file_name(batch, index, file))
            self._began = True
        finally:
            staging.delete()

    def _forget(self, batch: Batch) -> None:
        """Only the first batch of a run can have been tried by an earlier one, and a later one only by this."""
        for path in self._folder.matching("*/" * len(self._sink.partition_by) + f"{batch}-*"):
            self._folder.delete(path)

    def _sweep(self, batch: Batch) -> None:
        """What earlier runs of the query left unfinished."""
        staging = Folder(self._spark, f"{str(self._folder.root).rstrip('/')}.staging")
        for path in staging.matching(f"{batch.query}-*"):
            staging.delete(path)


class DeltaSink:
    """A Delta table, which skips a batch whose number it has seen from this query."""

    runs_all = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, frame: Any, batch: Batch) -> None:
        """Append."""
        writer = cut(frame, self._sink).write.format("delta").mode("append").partitionBy(*self._sink.partition_by)
        writer = writer.option("txnAppId", batch.query).option("txnVersion", batch.number)
        writer.options(**self._sink.options).save(self._sink.path)


class IcebergSink:
    """An Iceberg table; a snapshot's summary says which batch made it."""

    runs_all = False

    QUERY, BATCH = "kconsumer.query", "kconsumer.batch"

    def __init__(self, spark: Any, sink: Sink) -> None:
        self._spark, self._sink = spark, sink
        self._done: dict[str, int] = {}

    def write(self, frame: Any, batch: Batch) -> None:
        """Append, unless a snapshot of this batch is there."""
        if batch.query not in self._done:
            self._done[batch.query] = self._newest(batch.query)
        if batch.number <= self._done[batch.query]:
            return
        writer = cut(frame, self._sink).writeTo(self._sink.table).options(**self._sink.options)
        writer = writer.option(f"snapshot-property.{self.QUERY}", batch.query)
        writer = writer.option(f"snapshot-property.{self.BATCH}", str(batch.number))
        if self._spark.catalog.tableExists(self._sink.table):
            writer.append()
        else:
            from pyspark.sql import functions as F  # noqa: N812  as everyone writes it

            parts = [F.col(name) for name in self._sink.partition_by]
            (writer.using("iceberg").partitionedBy(*parts) if parts else writer.using("iceberg")).create()
        self._done[batch.query] = batch.number

    def _newest(self, query: str) -> int:
        """The newest batch of this query in the table."""
        if not self._spark.catalog.tableExists(self._sink.table):
            return -1
        summary = f"summary['{self.QUERY}'] = '{query}'"
        newest = f"max(cast(summary['{self.BATCH}'] as bigint))"
        found = self._spark.sql(f"SELECT {newest} FROM {self._sink.table}.snapshots WHERE {summary}").first()[0]
        return -1 if found is None else int(found)


class ConsoleSink:
    """Shows the first rows of each batch; for a look, nothing is kept."""

    runs_all = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, frame: Any, batch: Batch) -> None:
        """Print."""
        frame.show(int(self._sink.options.get("numRows", 20)), truncate=False)


def cut(frame: Any, sink: Sink) -> Any:
    """At most so many tasks; how many rows a file may have is a setting of the writer (`make`)."""
    return frame if sink.files is None else frame.coalesce(sink.files)


def make(spark: Any, sink: Sink) -> BatchSink:
    """The sink for a section of the file."""
    if sink.max_records_per_file and "maxRecordsPerFile" not in sink.options:
        limit = {"maxRecordsPerFile": str(sink.max_records_per_file)}
        sink = Sink(**{**sink.__dict__, "options": {**sink.options, **limit}})
    makers: dict[str, Callable[[], BatchSink]] = {
        "parquet": lambda: FileSink(spark, sink),
        "delta": lambda: DeltaSink(sink),
        "iceberg": lambda: IcebergSink(spark, sink),
        "console": lambda: ConsoleSink(sink),
    }
    return makers[sink.format]()
