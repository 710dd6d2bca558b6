"""Runs the same query through Spark's own Kafka source and through ours, for tests that compare the two.

An outcome is plain data: rows, tasks and offsets, or the words of the failure. What must be equal is said by the tests.
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
    """What a query gave."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    tasks: int = 0
    batches: list[tuple[Any, ...]] = field(default_factory=list)  # (start offsets, end offsets, rows) of each
    schema: str = ""


def read_batch(spark: Any, source: str, options: Options) -> Outcome:
    """All rows of a batch."""
    frame = spark.read.format(source).options(**options).load()
    rows = sorted(map(plain, frame.collect()))
    return Outcome(rows, frame.rdd.getNumPartitions(), schema=frame._jdf.schema().treeString())


def plain(row: Any) -> tuple[Any, ...]:
    """A row in a form that sorts: nothing is None."""
    return tuple(("", ()) if value is None else ("x", value) for value in row)


def failure(run: Callable[[], object]) -> str:
    """The words a query fails with; AssertionError if it does not."""
    try:
        run()
    except Exception as error:
        return chain(error)
    raise AssertionError("the query did not fail")


def chain(error: BaseException) -> str:
    """The messages of an error and of what caused it in the JVM."""
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
        """The query, running."""
        frame = self.spark.readStream.format(self.source).options(**self.options).load()
        columns = frame.select("partition", "offset", "topic", "value", "key")
        writer = columns.writeStream.format("parquet").option("path", str(self.folder / "out"))
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start()

    def run(self, **trigger: Any) -> Stream:
        """Run to its end, with AvailableNow unless another trigger is given."""
        query = self.start(**(trigger or {"availableNow": True}))
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        self.batches += progress(query)
        return self

    def outcome(self) -> Outcome:
        """What it wrote and in which steps."""
        out = self.folder / "out"
        rows = sorted(map(plain, self.spark.read.parquet(str(out)).collect())) if any(out.rglob("*.parquet")) else []
        return Outcome(rows, batches=self.batches)


def progress(query: Any) -> list[tuple[Any, ...]]:
    """The offsets and rows of each micro-batch that had any."""
    found = []
    for report in query.recentProgress:
        (source,) = report["sources"]
        start, end = offsets(source["startOffset"]), offsets(source["endOffset"])
        if start != end:
            found.append((start, end, report["numInputRows"]))
    return found


def offsets(value: Any) -> dict[str, dict[str, int]] | None:
    """Offsets as progress reports have them, as text or as what the text says."""
    found: dict[str, dict[str, int]] | None = json.loads(value) if isinstance(value, str) else value
    return found


def has_words(text: str, pattern: str) -> bool:
    """Whether an error says this, on however many lines."""
    return re.search(pattern, text, re.DOTALL | re.IGNORECASE) is not None
