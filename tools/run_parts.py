"""Runs goals of the Makefile, stops at the first that fails, and prints how long each of them took. First prints the
versions of Python and of the packages of pyproject.toml that are installed.

    run_parts.py lint unit                            one after the other
    run_parts.py integration --background simulate    simulate at the same time, with the processor time that is left

Goals of `--background` also run one after the other, with low priority. They are meant for tests that compute, and that
no clock can make fail, while the others wait for brokers and timeouts. What they print appears when they end.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import IO, Self

LOW_PRIORITY = 10  # nice
STOP_TIMEOUT_S = 10
INTERRUPTED = 130  # the exit status, as of a shell
INTERVAL_S = 0.05
PROJECT = Path(__file__).parent.parent / "pyproject.toml"


class Lane:
    """Goals that run one after the other. `priority` is that of nice. A goal prints to `output`, if that is given, and
    what it printed is shown at its end.
    """

    def __init__(self, goals: Sequence[str], priority: int = 0, output: IO[bytes] | None = None) -> None:
        self.timings: list[tuple[str, float]] = []  # goals that have succeeded, and their seconds
        self.failed: str | None = None
        self._waiting = list(goals)
        self._priority, self._output = priority, output
        self._goal = ""
        self._began = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._show_output()

    @property
    def done(self) -> bool:
        """Returns True if no goal runs or waits."""
        return self._process is None and not self._waiting

    def step(self) -> None:
        """Start the next goal if none runs, and note the end of the one that runs."""
        if self._process is None and self._waiting:
            self._start(self._waiting.pop(0))
        elif self._process is not None and self._process.poll() is not None:
            self._end(self._process.returncode)

    def _start(self, goal: str) -> None:
        self._goal, self._began = goal, time.monotonic()
        # A process group of its own can be stopped as a whole. A session of its own would have its own share of the
        # processors on Linux, whatever its priority.
        self._process = subprocess.Popen(
            ["nice", "-n", str(self._priority), "make", "--no-print-directory", goal],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output and subprocess.STDOUT,
            process_group=0,
        )

    def _end(self, status: int) -> None:
        self._process = None
        self._show_output()
        seconds = time.monotonic() - self._began
        if status:
            self.failed = self._goal
            print(f"{self._goal} failed after {minutes(seconds)}", flush=True)
        else:
            self.timings.append((self._goal, seconds))
            print(f"{self._goal} took {minutes(seconds)}", flush=True)

    def _show_output(self) -> None:
        if self._output is None:
            return
        self._output.seek(0)
        if text := self._output.read().decode(errors="replace"):
            print(f"\noutput of {self._goal}:\n{text}", flush=True)
        self._output.seek(0)
        self._output.truncate()

    def _stop(self) -> None:
        """Interrupt the goal that runs, as Ctrl-C does, so that tests stop their brokers.

        Terminate, then kill, what does not end. A process may miss the interrupt: dash ignores SIGINT while it starts a
        command by `vfork`, and so does the command until then; make delays it while it starts a shell, to which it does
        not pass it on, and then waits for this shell. SIGTERM ends both, and make passes it on.
        """
        if self._process is None:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            os.killpg(self._process.pid, number)
            if self._ended_within(STOP_TIMEOUT_S):
                break
        os.killpg(self._process.pid, signal.SIGKILL)  # what make has left running
        self._process.wait()
        self._process = None

    def _ended_within(self, seconds: float) -> bool:
        """Returns True if make ends in this time. It is not reaped, so that its process group still exists."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(INTERVAL_S)
        return True


def versions() -> str:
    """Returns the versions of Python and of each installed package that pyproject.toml names."""
    tables = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    groups = [*tables["project"]["optional-dependencies"].values(), *tables["dependency-groups"].values()]
    named = sum(groups, tables["build-system"]["requires"] + tables["project"]["dependencies"])
    names = {re.split(r"[^\w.-]", each)[0].lower() for each in named if isinstance(each, str)}
    found = sorted(f"{each.name} {each.version}" for each in distributions() if each.name.lower() in names)
    return textwrap.fill(f"Python {platform.python_version()}; {', '.join(found)}", 120)


def minutes(seconds: float) -> str:
    """Returns a duration as minutes and seconds, for example "2:05"."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


def run(goals: Sequence[str], background: Sequence[str], signals: Sequence[int]) -> int:
    """Run all goals and print a line for each, until `signals` is no longer empty.

    Returns 1 if a goal failed, and INTERRUPTED after a signal.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as output, Lane(goals) as front, Lane(background, LOW_PRIORITY, output) as back:
        lanes = (front, back)
        while not all(lane.done for lane in lanes) and not any(lane.failed for lane in lanes):
            if signals:
                return INTERRUPTED
            for lane in lanes:
                lane.step()
            time.sleep(INTERVAL_S)
    print()
    for lane, remark in zip(lanes, ("", "  in the background"), strict=True):
        for goal, seconds in lane.timings:
            print(f"{goal:20}{minutes(seconds):>6}{remark}")
    print(f"{'from begin to end':20}{minutes(time.monotonic() - began):>6}")
    failed = [lane.failed for lane in lanes if lane.failed]
    for goal in failed:
        print(f"FAILED: {goal}")
    return int(bool(failed))


def main() -> int:
    """Read the command line and run the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goals", nargs="+", metavar="GOAL")
    parser.add_argument("--background", nargs="+", default=[], metavar="GOAL")
    options = parser.parse_args()
    print(versions(), flush=True)
    # Goals have process groups of their own, so these signals reach this process only. The handler also replaces the
    # ignored SIGINT of jobs in the background of a shell. It raises no exception, because one that is raised inside
    # `subprocess` leaves the lock of a process locked, and nothing could wait for that process any more.
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signals.append(number))
    return run(options.goals, options.background, signals)


if __name__ == "__main__":
    sys.exit(main())
