"""What the micro benchmarks share: how they measure, their arguments, and the file of figures they write.

Times are the CPU time of the thread, the least of many short rounds in which the things compared take turns: what else
the machine does then counts little.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Pass = Callable[[], int]
"""Does its work once and says how many records that was."""


def least(passes: Mapping[str, Pass], rounds: int) -> dict[str, float]:
    """ns per record of each pass."""
    found = dict.fromkeys(passes, float("inf"))
    for _ in range(rounds):
        for name, work in passes.items():
            began = time.thread_time_ns()
            count = work()
            found[name] = min(found[name], (time.thread_time_ns() - began) / count)
    return found


def arguments(description: str | None, records: int, rounds: int) -> argparse.Namespace:
    """`records`, `rounds` and `json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=int, default=records, help="records in each corpus (%(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="of which the fastest counts (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    return parser.parse_args()


def write(path: Path | None, options: argparse.Namespace, figures: Mapping[str, Any]) -> None:
    """Write figures in ns per record by corpus and what was measured, if a file is wanted."""
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
