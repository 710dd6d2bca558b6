"""Millions of hostile inputs for every decoder, and a table of their outcomes.

    python tests/fuzz/run.py --inputs 10_000_000 --workers 2
    python tests/fuzz/run.py --only "arrow columns:17"      repeats one chunk and prints the number of each input

Inputs are the same in every run; `--skip` leaves out this many chunks of each target, to continue after an earlier run.
Each worker is a process, so that the report of a crash contains its chunk. Fails if an input ended in anything but
records or an allowed error, if a worker died, or if a worker used more memory than `--most-mb`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.oracles.hostile_targets import TARGETS, Report, chunks, run_chunk

HANG_SECONDS = 300  # a chunk takes about 50 ms


def main() -> int:
    """Run as a worker, or start workers and add up their reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get("KCONSUMER_FUZZ_INPUTS", 10_000_000)))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--skip", type=int, default=0, metavar="CHUNKS")
    parser.add_argument("--most-mb", type=int, default=0)
    parser.add_argument("--only", metavar="TARGET:CHUNK")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        return again(args.only)
    if args.worker is not None:
        return work(args)
    return supervise(args)


def again(only: str) -> int:
    """Run one chunk in this process."""
    target, _, chunk = only.rpartition(":")
    print(run_chunk(target, int(chunk), before=lambda index: print(index, end=" ", flush=True)))
    return 0


def work(args: argparse.Namespace) -> int:
    """Run this worker's chunks; print a line of JSON before and after each."""
    for target, chunk, count in chunks(args.inputs)[args.worker :: args.workers]:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        print(json.dumps({"begins": f"{target}:{args.skip + chunk}"}), flush=True)
        report = run_chunk(target, args.skip + chunk, count)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"target": target, "peak_mb": peak, **vars(report)}), flush=True)
    return 0


def supervise(args: argparse.Namespace) -> int:
    """Start the workers, read their reports, print the table."""
    started = time.monotonic()
    with ThreadPoolExecutor(args.workers) as pool:
        results = list(pool.map(partial(listen, args), range(args.workers)))
    totals = {target: Report() for target in TARGETS}
    for found in results:
        for target, report in found.reports:
            totals[target].add(report)
    show(totals, time.monotonic() - started, [found.peak_mb for found in results])
    failures = [found.failure for found in results if found.failure]
    failures += [f"a worker used {found.peak_mb} MB" for found in results if 0 < args.most_mb < found.peak_mb]
    for line in failures:
        print(f"FAILED: {line}")
    return int(bool(failures))


@dataclass
class WorkerResult:
    """The reports of a worker."""

    reports: list[tuple[str, Report]] = field(default_factory=list)
    peak_mb: int = 0
    failure: str = ""


def listen(args: argparse.Namespace, number: int) -> WorkerResult:
    """Read a worker's reports until it ends or crashes."""
    command = [sys.executable, __file__, "--inputs", str(args.inputs), "--skip", str(args.skip)]
    command += ["--workers", str(args.workers), "--worker", str(number)]
    result, last = WorkerResult(), "its beginning"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        for line in worker.stdout or ():
            message = json.loads(line)
            last = message.get("begins", last)
            if "target" in message:
                result.peak_mb = message.pop("peak_mb")
                target, ends = message.pop("target"), Counter(message.pop("ends"))
                result.reports.append((target, Report(ends=ends, **message)))
    if worker.returncode:
        result.failure = f"a worker ended with {worker.returncode} in {last}; run.py --only '{last}' tries it again"
    return result


def show(totals: dict[str, Report], seconds: float, peaks: Sequence[int]) -> None:
    """Print a row for each target."""
    print(f"{'target':22}{'inputs':>12}{'µs each':>9}{'slowest ms':>12}  ended in")
    for target, report in totals.items():
        each = 1e6 * report.seconds / max(report.inputs, 1)
        ends = ", ".join(f"{end} {count:,}" for end, count in report.ends.most_common())
        print(f"{target:22}{report.inputs:12,}{each:9.1f}{report.slowest_ms:12.1f}  {ends}")
    total = sum(report.inputs for report in totals.values())
    print(f"{'all':22}{total:12,} in {seconds:.0f} s, peak memory {' and '.join(map(str, peaks))} MB")


if __name__ == "__main__":
    sys.exit(main())
