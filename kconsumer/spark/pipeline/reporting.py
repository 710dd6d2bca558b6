"""Reports the progress of a pipeline: a line and a JSON object for each micro-batch, made from Spark's own reports.

Spark sends a report to the listener in `runner.py` after each micro-batch, and the listener passes it to `Reporter`.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer._core.lock import Clock
from kconsumer.spark.stream_lag import lag_of

__all__ = ["BatchReport", "Reporter", "first_line"]

log = logging.getLogger(__name__)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, without that of Py4J, or of its `repr` if it has no text."""
    text = re.sub(r"^An error occurred while calling [^\n]*\n: ", "", str(error).strip())
    return (text or repr(error)).partition("\n")[0]


@dataclass(frozen=True)
class BatchReport:
    """A finished micro-batch of one query."""

    query: str  # name of the query
    batch: int  # number of the micro-batch
    rows: int  # including invalid ones
    seconds: float
    invalid: int = 0  # invalid rows
    lag: Mapping[str, int] = field(default_factory=dict)  # topic -> lag in offsets

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        parts = [
            f"{self.query}  batch {self.batch}  {self.rows:,} rows in {self.seconds:.1f} s  {self.rate:,.0f} rows/s"
        ]
        if self.invalid:
            parts.append(f"{self.invalid:,} invalid")
        parts += [f"lag {topic} {count:,}" for topic, count in sorted(self.lag.items())]
        return "  ".join(parts)

    def document(self, wall_ms: int) -> dict[str, Any]:
        """Returns the report as an object for the progress log. `wall_ms` is the time in ms since 1970."""
        return {
            "time_ms": wall_ms, "query": self.query, "batch": self.batch, "rows": self.rows, "invalid": self.invalid,
            "seconds": round(self.seconds, 3), "rows_per_second": round(self.rate, 1), "lag": dict(self.lag),
        }  # fmt: skip


class Reporter:
    """Reports finished micro-batches: a line for the terminal, and a JSON document in the progress log.

    `measure` is called with the report of each micro-batch. Combines the reports that Spark's listener thread passes to
    `progress` with the counts of the sinks.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        progress_log: str | None,
        clock: Clock,
        measure: Callable[[BatchReport], object] = lambda report: None,
    ) -> None:
        self._write, self._clock, self._measure = write, clock, measure
        self._log = None if progress_log is None else Path(progress_log)
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}
        self._lock = SignalSafeLock()
        self._changed = threading.Condition(self._lock)
        self.done: dict[str, int] = {}  # query -> number of finished micro-batches
        self.rows: dict[str, int] = {}  # query -> number of rows
        self.invalid = 0
        self.ended: set[str] = set()  # run ids of terminated queries

    def counted(self, query: str, batch: int, records: int, invalid: int) -> None:
        """Store the counts of records and invalid records of a micro-batch, until Spark reports the micro-batch.

        `progress` then uses them in place of Spark's count, which includes records twice if the plan reads them twice.
        """
        with self._lock:
            self._counts[query, batch] = records, invalid

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Report a finished micro-batch, which Spark's report `progress` describes.

        A micro-batch without rows is counted in `done` and measured, but has no line.
        """
        name, batch = str(progress.get("name") or progress.get("id")), int(progress["batchId"])
        lag: Counter[str] = Counter()
        for source in lag_of(progress):
            lag.update(source.by_topic())
        with self._lock:
            rows, invalid = self._counts.pop((name, batch), (int(progress["numInputRows"]), 0))
            report = BatchReport(name, batch, rows, int(progress.get("batchDuration", 0)) / 1000, invalid, lag)
            self.done[name] = self.done.get(name, 0) + 1
            self.rows[name] = self.rows.get(name, 0) + report.rows
            self.invalid += invalid
            self._measure(report)
            self._changed.notify_all()
        if report.rows:
            self._write(report.line() + "\n")
            self._note(report)

    def _note(self, report: BatchReport) -> None:
        """Append a report to the progress log. A failure is logged and does not end the pipeline."""
        if self._log is None:
            return
        try:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(report.document(self._clock.wall_ms())) + "\n")
        except OSError as error:
            log.warning("cannot write to %s: %s", self._log, error)

    def terminated(self, run_id: str) -> None:
        """Store that a run of a query has ended, so that Spark sends no more reports of it."""
        with self._lock:
            self.ended.add(run_id)
            self._changed.notify_all()

    def wait(self, holds: Callable[[Reporter], bool], seconds: float) -> bool:
        """Wait until `holds(self)` is true. Returns True, or False if it is still false after `seconds`."""
        with self._lock:
            return self._changed.wait_for(lambda: holds(self), seconds)
