"""Millions of hostile inputs against every decoder, and a table of how they ended.

    python tests/fuzz/run.py --inputs 10_000_000 --workers 2
    python tests/fuzz/run.py --only "arrow columns:17"      one chunk again, saying which input comes next

Inputs are the same ones in every run; `--skip` leaves out as many of each target's chunks, to go on where another run
ended. Each worker is a process of its own, so that a crash is told with the chunk in which it happened. Fails if an
input ended in anything but records or an error that is allowed, if a worker died, or if one used more memory than
`--most-mb`.
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
    """Do as a worker, or start workers and add up what they say."""
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
    """One chunk, in this process."""
    target, _, chunk = only.rpartition(":")
    print(run_chunk(target, int(chunk), before=lambda index: print(index, end=" ", flush=True)))
    return 0


def work(args: argparse.Namespace) -> int:
    """This worker's share of the chunks; a line of JSON before and after each."""
    for target, chunk, count in chunks(args.inputs)[args.worker :: args.workers]:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        print(json.dumps({"begins": f"{target}:{args.skip + chunk}"}), flush=True)
        report = run_chunk(target, args.skip + chunk, count)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"target": target, "peak_mb": peak, **vars(report)}), flush=True)
    return 0


def supervise(args: argparse.Namespace) -> int:
    """Start the workers, listen to them, print the table."""
    started = time.monotonic()
    with ThreadPoolExecutor(args.workers) as pool:
        heard = list(pool.map(partial(listen, args), range(args.workers)))
    totals = {target: Report() for target in TARGETS}
    for found in heard:
        for target, report in found.reports:
            totals[target].add(report)
    show(totals, time.monotonic() - started, [found.peak_mb for found in heard])
    trouble = [found.trouble for found in heard if found.trouble]
    trouble += [f"a worker used {found.peak_mb} MB" for found in heard if 0 < args.most_mb < found.peak_mb]
    for line in trouble:
        print(f"FAILED: {line}")
    return int(bool(trouble))


@dataclass
class Heard:
    """What a worker said."""

    reports: list[tuple[str, Report]] = field(default_factory=list)
    peak_mb: int = 0
    trouble: str = ""


def listen(args: argparse.Namespace, number: int) -> Heard:
    """Run a worker to its end, whatever that is."""
    command = [sys.executable, __file__, "--inputs", str(args.inputs), "--skip", str(args.skip)]
    command += ["--workers", str(args.workers), "--worker", str(number)]
    heard, last = Heard(), "its beginning"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        for line in worker.stdout or ():
            said = json.loads(line)
            last = said.get("begins", last)
            if "target" in said:
                heard.peak_mb = said.pop("peak_mb")
                target, ends = said.pop("target"), Counter(said.pop("ends"))
                heard.reports.append((target, Report(ends=ends, **said)))
    if worker.returncode:
        heard.trouble = f"a worker ended with {worker.returncode} in {last}; run.py --only '{last}' tries it again"
    return heard


def show(totals: dict[str, Report], seconds: float, peaks: Sequence[int]) -> None:
    """A row for each target."""
    print(f"{'target':22}{'inputs':>12}{'µs each':>9}{'slowest ms':>12}  ended in")
    for target, report in totals.items():
        each = 1e6 * report.seconds / max(report.inputs, 1)
        ends = ", ".join(f"{end} {count:,}" for end, count in report.ends.most_common())
        print(f"{target:22}{report.inputs:12,}{each:9.1f}{report.slowest_ms:12.1f}  {ends}")
    total = sum(report.inputs for report in totals.values())
    print(f"{'all':22}{total:12,} in {seconds:.0f} s, peak memory {' and '.join(map(str, peaks))} MB")


if __name__ == "__main__":
    sys.exit(main())
