"""The reports of a pipeline on its micro-batches, from progress reports of Spark."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kconsumer._core.lock import Clock
from kconsumer.spark.pipeline.reporting import Reporter
from kconsumer.spark.stream_lag import lag_of, together
from support.harnesses.interruptions import interrupted


class Noon(Clock):
    """A clock that always shows the same time."""

    def wall_ms(self) -> int:
        """Returns the fixed time."""
        return 43_200_000


def progress(batch: int, rows: int, name: str = "p rows") -> dict[str, Any]:
    """Returns the report of a batch of half a second over a topic of two partitions."""
    ends = {"t": {"0": 90, "1": 50}}
    return {
        "name": name, "batchId": batch, "numInputRows": rows, "batchDuration": 500,
        "sources": [{"endOffset": ends, "latestOffset": {"t": {"0": 100, "1": 55}}}],
    }  # fmt: skip


def test_lag_by_topic() -> None:
    """The lag is the sum of the remaining offsets of all partitions; a source that is not ours, or has no offsets yet,
    has none.
    """
    assert [{"t": 15}] == [lag.by_topic() for lag in lag_of(progress(0, 1))]
    assert [] == lag_of({"sources": [{"endOffset": 7, "latestOffset": 9}, {"endOffset": None, "latestOffset": None}]})
    first = {"endOffset": {"t": {"0": 1}}, "latestOffset": None}
    assert [{}] == [lag.by_topic() for lag in lag_of({"sources": [first]})]


def test_all_sources_of_a_query() -> None:
    """The lag of a query is that of all its sources; of a partition that two read, the smaller offset is committed."""
    both = progress(0, 1)
    both["sources"].append(
        {"endOffset": {"t": {"0": 80}, "u": {"0": 1}}, "latestOffset": {"t": {"0": 97}, "u": {"0": 3}}}
    )
    lag = together(lag_of(both))
    assert ({"t": 32, "u": 2}, 34) == (lag.by_topic(), lag.total)
    assert {("t", 0): 80, ("t", 1): 50, ("u", 0): 1} == lag.read
    both["sources"][1]["latestOffset"] = None
    assert together(lag_of(both)).total is None, "the lag of one source is unknown"


def test_a_log_has_an_object_a_line(tmp_path: Path) -> None:
    """Batches with records are logged, with the sink's counts in place of Spark's; empty batches are only counted."""
    said: list[str] = []
    log = tmp_path / "folder" / "progress.jsonl"
    reporter = Reporter(said.append, str(log), Noon())
    reporter.counted("p rows", 0, 100, 4)
    reporter.progress(progress(0, 200))
    reporter.progress(progress(1, 0))
    reporter.progress(progress(0, 30, "p windows"))
    first, second = map(json.loads, log.read_text().splitlines())
    assert {
        "time_ms": 43_200_000, "query": "p rows", "batch": 0, "rows": 100, "invalid": 4, "seconds": 0.5,
        "rows_per_second": 200.0, "lag": {"t": 15},
    } == first  # fmt: skip
    assert ("p windows", 30) == (second["query"], second["rows"])
    assert ({"p rows": 2, "p windows": 1}, {"p rows": 100, "p windows": 30}) == (reporter.done, reporter.rows)
    assert (2, 4) == (len(said), reporter.invalid)


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: Any) -> None:
    """A log that cannot be written is reported once per batch, and the terminal gets its lines."""
    said: list[str] = []
    reporter = Reporter(said.append, str(tmp_path), Noon())
    reporter.progress(progress(0, 5))
    assert 1 == len(said)
    assert "cannot write to" in caplog.text


def test_waiting_for_the_last_report() -> None:
    """A wait ends when the report arrives or at its timeout."""
    reporter = Reporter(str, None, Noon())
    reporter.terminated("run-1")
    assert reporter.wait(lambda reported: "run-1" in reported.ended, 0)
    assert not reporter.wait(lambda reported: "run-2" in reported.ended, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="the signals are those of POSIX")
def test_reports_after_an_interrupted_wait() -> None:
    """A signal handler that raises at any point of `wait` leaves the reporter usable for Spark's listener thread."""
    reporter, points = Reporter(print, None, Noon()), 0
    while interrupted(lambda: reporter.wait(lambda _: True, 0), points + 1):
        points += 1
        listener = threading.Thread(target=reporter.terminated, args=[str(points)], daemon=True)
        listener.start()
        listener.join(20)
        assert not listener.is_alive(), f"interrupted at point {points}"
    assert points > 2
    assert points == len(reporter.ended)
