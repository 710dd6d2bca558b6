"""Runs the same query through Spark's own Kafka source and through ours, for tests that compare the two.

An outcome is plain data: rows, tasks and offsets, or the text of the error. The tests decide what must be equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

THEIRS, OURS = "kafka", "kconsumer"
Options = Mapping[str, str]


@dataclass
class Outcome:
    """The outcome of a query."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    tasks: int = 0
    batches: list[tuple[Any, ...]] = field(default_factory=list)  # (start offsets, end offsets, rows) of each
    schema: str = ""


def read_batch(spark: Any, source: str, options: Options) -> Outcome:
    """Returns all rows of a batch query."""
    frame = spark.read.format(source).options(**options).load()
    rows = sorted(map(plain, frame.collect()))
    return Outcome(rows, frame.rdd.getNumPartitions(), schema=frame._jdf.schema().treeString())


def plain(row: Any) -> tuple[Any, ...]:
    """Returns a row without None, so that rows can be sorted."""
    return tuple(("", ()) if value is None else ("x", value) for value in row)


def failure(run: Callable[[], object]) -> str:
    """Returns the text of the error with which a query fails. Raises AssertionError if it succeeds."""
    try:
        run()
    except Exception as error:
        return chain(error)
    raise AssertionError("the query did not fail")


def chain(error: BaseException) -> str:
    """Returns the messages of an error and of its causes in the JVM."""
    parts = [str(error)]
    cause = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while cause is not None:
        parts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(parts)


class Stream:
    """A streaming query into Parquet files that can be run again from its checkpoint."""

    def __init__(self, spark: Any, source: str, options: Options, folder: Path) -> None:
        self.spark, self.source, self.options = spark, source, dict(options)
        self.folder = folder / source
        self.batches: list[tuple[Any, ...]] = []

    def start(self, **trigger: Any) -> Any:
        """Start the query."""
        frame = self.spark.readStream.format(self.source).options(**self.options).load()
        columns = frame.select("partition", "offset", "topic", "value", "key")
        writer = columns.writeStream.format("parquet").option("path", str(self.folder / "out"))
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start()

    def run(self, **trigger: Any) -> Stream:
        """Run to the end, with AvailableNow unless another trigger is given."""
        query = self.start(**(trigger or {"availableNow": True}))
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        self.batches += progress(query)
        return self

    def outcome(self) -> Outcome:
        """Returns the rows that the stream wrote and its micro-batches."""
        out = self.folder / "out"
        rows = sorted(map(plain, self.spark.read.parquet(str(out)).collect())) if any(out.rglob("*.parquet")) else []
        return Outcome(rows, batches=self.batches)


def progress(query: Any) -> list[tuple[Any, ...]]:
    """Returns the offsets and rows of each micro-batch that had any."""
    found = []
    for report in query.recentProgress:
        (source,) = report["sources"]
        start, end = offsets(source["startOffset"]), offsets(source["endOffset"])
        if start != end:
            found.append((start, end, report["numInputRows"]))
    return found


def offsets(value: Any) -> dict[str, dict[str, int]] | None:
    """Returns the offsets of a progress report as a dict; the report has them as JSON text or parsed."""
    found: dict[str, dict[str, int]] | None = json.loads(value) if isinstance(value, str) else value
    return found


def has_words(text: str, pattern: str) -> bool:
    """Returns whether an error contains these words, on any number of lines."""
    return re.search(pattern, text, re.DOTALL | re.IGNORECASE) is not None
