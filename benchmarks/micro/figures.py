"""The common part of the micro benchmarks: measuring, arguments, and the file of figures.

Times are CPU time of the thread, the minimum of many short rounds in which the compared passes alternate. So other work
on the machine hardly counts.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Pass = Callable[[], int]  # does its work once and returns the number of records


def fastest(passes: Mapping[str, Pass], rounds: int) -> dict[str, float]:
    """Return ns per record of each pass."""
    found = dict.fromkeys(passes, float("inf"))
    for _ in range(rounds):
        for name, work in passes.items():
            began = time.thread_time_ns()
            count = work()
            found[name] = min(found[name], (time.thread_time_ns() - began) / count)
    return found


def arguments(description: str | None, records: int, rounds: int) -> argparse.Namespace:
    """Parse the arguments `records`, `rounds` and `json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=int, default=records, help="records in each corpus (%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="number of rounds, of which the fastest counts (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def write(path: Path | None, options: argparse.Namespace, figures: Mapping[str, Any]) -> None:
    """Write figures in ns per record, by corpus and pass, if a file is given."""
    if path is None:
        return
    result = {
        "unit": "ns per record",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "records": options.records,
        "rounds": options.rounds,
        "figures": {
            corpus: {name: None if ns is None else round(ns, 1) for name, ns in row.items()}
            for corpus, row in figures.items()
        },
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
