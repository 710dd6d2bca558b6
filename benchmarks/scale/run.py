"""Simulates groups and consumers of growing size: `python benchmarks/scale/run.py [--only TEXT] [--largest] [--list]`.

Whole consumers run against the cluster model in one thread and in virtual time (`tests/support/simulation`). Each case
runs in a process of its own. The results of the cases that were run replace those in `results/scale.json`, from which
`report.py` then draws the plot and prints the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "assignors")]
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"

import assignment
import consumer
import group

from support.simulation.simulation import off_main_thread

Case = Callable[[], dict[str, Any]]
CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")
KINDS = (*(("classic", name) for name in CLASSIC), ("consumer", "uniform"), ("consumer", "range"))
MAIN = (("classic", "range"), ("consumer", "uniform"))  # the kinds that are measured at all sizes
FIXED_PARTITIONS, FIXED_MEMBERS = 1_000, 10


def groups(largest: bool) -> Iterator[group.Shape]:
    """Yield groups that grow in members, and groups that grow in partitions."""
    for protocol, assignor in KINDS:
        for members in (10, 100, 1_000):
            rolling = members <= 100
            yield group.Shape(protocol, assignor, members, FIXED_PARTITIONS, rolling=rolling)
    for protocol, assignor in MAIN:
        for partitions in (100, 10_000, 50_000):
            yield group.Shape(protocol, assignor, FIXED_MEMBERS, partitions, rolling=False)
        if largest:
            yield group.Shape(protocol, assignor, FIXED_MEMBERS, 200_000, brief=True)
            yield group.Shape(protocol, assignor, 5_000, FIXED_PARTITIONS, brief=True)


def loads() -> Iterator[consumer.Load]:
    """Yield single consumers with more and more partitions, alternately for CPU time and for memory."""
    for partitions in (1_000, 10_000, 100_000):
        yield consumer.Load(partitions, brokers=100)
        yield consumer.Load(partitions, brokers=100, traced=True)
    yield consumer.Load(10_000, brokers=10)
    yield consumer.Load(100_000, brokers=100, group=True)
    yield consumer.Load(10_000, brokers=100, engine="threaded")


def assignments() -> Iterator[assignment.Assignment]:
    """Yield assignments of growing size."""
    for name in CLASSIC:
        for members, partitions in ((10, 1_000), (100, 10_000), (1_000, 100_000), (5_000, 200_000)):
            yield assignment.Assignment(name, members, partitions)


def cases(largest: bool) -> dict[str, Case]:
    """Return all cases by name."""
    found: dict[str, Case] = {}
    for job in assignments():
        name = f"assign {job.assignor} {job.members} x {job.partitions}"
        found[name] = lambda job=job: assignment.measure(job)
    for load in loads():
        options = " traced" * load.traced + " group" * load.group + " threaded" * (load.engine == "threaded")
        name = f"consumer {load.partitions} on {load.brokers}{options}"
        found[name] = lambda load=load: off_main_thread(lambda: consumer.measure(load))
    for shape in groups(largest):
        name = f"group {shape.protocol} {shape.assignor} {shape.members} x {shape.partitions}"
        found[name] = lambda shape=shape: off_main_thread(lambda: group.measure(shape))
    return found


def run(name: str) -> dict[str, Any]:
    """Run one case in a new process. Return its results."""
    command = [sys.executable, __file__, "--case", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def save(name: str, found: dict[str, Any]) -> None:
    """Put the results of a case into the file."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    results["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.release()}
    results["cases"][name] = found | {"date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[0], 1)}
    RESULTS.write_text(json.dumps(rounded(results), indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Return a copy with numbers of five digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> int:
    """Run the cases, or one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="run cases that contain this text; may be given more than once")
    parser.add_argument("--exact", action="append", help="run the case of this name; may be given more than once")
    parser.add_argument("--largest", action="store_true", help="also groups of 5,000 members and of 200,000 partitions")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(cases(largest=True)[args.case]()))
        return 0
    for name in cases(args.largest):
        if args.only and not any(text in name for text in args.only):
            continue
        if args.exact and name not in args.exact:
            continue
        if args.list:
            print(name)
            continue
        began = time.monotonic()
        save(name, run(name))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
