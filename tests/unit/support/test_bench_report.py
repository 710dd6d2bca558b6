"""Benchmark results as tables, and the documents that contain them; committed results can be published again."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def report() -> ModuleType:
    """Return the module, loaded by path because benchmarks is not an installed package."""
    spec = importlib.util.spec_from_file_location("bench_report", ROOT / "benchmarks" / "compare" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reading(seconds: float, records: int = 1_000_000) -> dict[str, Any]:
    """Return the output of one client."""
    return {
        "seconds": seconds,
        "cpu_seconds": seconds / 2,
        "records": records,
        "peak_rss_mb": 40.4,
        "version": "1",
    }


RESULTS = {
    "date": "2026-01-02",
    "rounds": 2,
    "machine": {"cpu": "Chip", "cores": 2, "kernel": "6.1.0-x", "python": "3.11.7"},
    "topics": {
        "100B": {
            "title": "1,000,000 records of 100 B",
            "value_bytes": 100,
            "readings": {"aiokafka": [reading(2.0), reading(1.5)], "kconsumer": [reading(0.2), reading(0.25)]},
        }
    },
    "scenarios": {
        "first": {"kconsumer": [reading(0.3, 1), reading(0.1, 1), reading(0.2, 1)]},
        "steady": {"Java": [reading(10.0, 20_000)], "kconsumer": [reading(10.0, 0)]},
        "four": {},
    },
}


def test_best_reading_of_each_client_fastest_first(report: ModuleType) -> None:
    """The best result of each client is a row, fastest first, with its ratio to the reference, throughput, CPU time and
    memory.
    """
    lines = report.topic_table(RESULTS["topics"]["100B"]).splitlines()
    assert "**1,000,000 records of 100 B**" == lines[0]
    assert [
        "| kconsumer | 200 | 1.00 | 500 | 100 | 40 | 1 |",
        "| aiokafka | 1500 | 7.50 | 67 | 750 | 40 | 1 |",
    ] == lines[4:]


def test_summary_has_the_best_of_each_row_in_bold(report: ModuleType) -> None:
    """The summary has a row for each kind of figure, a gap where a client was not measured, and the best in bold."""
    cells = [
        {"partitions": 1, "rate": 100, "readings": {"kconsumer": [reading(3e-5, 1)], "confluent": [reading(2e-5, 1)]}}
    ]
    latency = {"kconsumer": [{"us": [500, 600, 900]}], "confluent": [{"us": [400]}, {"us": [450, 460]}]}
    found = {
        "compare": RESULTS,
        "rates": {**RESULTS, "cells": cells},
        "latency": {**RESULTS, "readings": latency},
    }
    rows = report.summary(found).splitlines()[2:]
    assert [
        "| records of 100 B, ns each |  | **200** |  |  | 1,500 |  |  |",
        "| peak memory with 100 B, MB |  | **40** |  |  | **40** |  |  |",
        "| 100 records/s, µs of CPU each |  | 15 | **10** |  |  |  |  |",
        "| a single record, median µs after its producer's call |  | 600 | **450** |  |  |  |  |",
        "| first record of a new group, ms |  | **200** |  |  |  |  |  |",
        "",
        "2026-01-02, 2 cores (Chip), Linux 6.1.0, Python 3.11.7, Kafka 4.4.0 on the same machine.",
    ] == rows


def test_text_between_marks(report: ModuleType, tmp_path: Path) -> None:
    """The text between the marks is replaced, any number of times; a file without marks is refused."""
    page = tmp_path / "page.md"
    bench, rates = ("<!-- bench: begin -->", "<!-- bench: end -->"), ("<!-- rates: begin -->", "<!-- rates: end -->")
    page.write_text(f"before\n{bench[0]}\nold\n{bench[1]}\nbetween\n{rates[0]}\n{rates[1]}\nafter\n")
    for text in ("new", "newer"):
        report.put_between_marks(page, text)
        report.put_between_marks(page, f"{text} rates", "rates")
        assert page.read_text() == (
            f"before\n{bench[0]}\n{text}\n{bench[1]}\nbetween\n{rates[0]}\n{text} rates\n{rates[1]}\nafter\n"
        )
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place marked"):
        report.put_between_marks(page, "new")


def test_published_figures_are_those_of_the_results(report: ModuleType) -> None:
    """README and benchmarks/README.md have the figures of results/; `python benchmarks/publish.py` writes them."""
    paths = {path.stem: path for path in report.RESULTS.glob("*.json")}
    names = [name for name in ("compare", "rates", "latency") if name in paths]
    found = {name: json.loads(paths[name].read_text(encoding="utf-8")) for name in names}
    assert report.summary(found) in (ROOT / "README.md").read_text(encoding="utf-8")
    assert report.all_tables(found["compare"]) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
