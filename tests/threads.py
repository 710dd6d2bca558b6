"""Runs the tests of the engine with a network thread repeatedly, with very short and very long switch intervals.

`python tests/threads.py --times 50 --switch 1e-6 1 [-- arguments of pytest]`. Each run is a pytest process with its own
brokers. Prints a line per run, the end of the output of failed runs, and how many runs passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SWITCH_INTERVALS = ["1e-6", "1"]  # s; Python's own is 0.005
LAST_LINES = 120


def run_once(switch_interval: str, selection: list[str]) -> tuple[bool, str]:
    """Run the tests once. Returns whether all passed, and the output of pytest."""
    pytest = Path(sysconfig.get_path("scripts"), "pytest")  # not `-m pytest`, which imports from the current folder
    done = subprocess.run(
        [pytest, "-q", "-m", "network_thread", *selection],
        cwd=ROOT,
        env={**os.environ, "KCONSUMER_SWITCH_INTERVAL": switch_interval},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout


def main() -> int:
    """Run the tests as often as requested with each interval, in turn. Returns 1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="runs per switch interval")
    parser.add_argument("--switch", nargs="+", default=SWITCH_INTERVALS, metavar="S", help="switch intervals")
    parser.add_argument("selection", nargs="*", help="for pytest; everything by default")
    options = parser.parse_args()
    # Background jobs of a shell ignore SIGINT, and so would the processes started here, which include tests of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    clean = dict.fromkeys(options.switch, 0)
    for number in range(1, options.times + 1):
        for interval in options.switch:
            began = time.monotonic()
            passed, output = run_once(interval, options.selection)
            clean[interval] += passed
            lines = output.splitlines()
            took = time.monotonic() - began
            print(f"run {number}, switching after {interval} s: {lines[-1] if lines else 'no output'} ({took:.0f} s)")
            if not passed:
                print("\n".join(lines[-LAST_LINES:]))
            sys.stdout.flush()
    print("; ".join(f"{count} of {options.times} runs clean at {interval} s" for interval, count in clean.items()))
    return int(any(count < options.times for count in clean.values()))


if __name__ == "__main__":
    sys.exit(main())
