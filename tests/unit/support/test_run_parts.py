"""`tools/run_parts.py`, which runs the parts of `make test`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "run_parts.py"
# The shell is that of the project's Makefile. dash ignores SIGINT while it starts a command by vfork.
MAKEFILE = """
SHELL := /bin/bash
.PHONY: one two broken long stray
one two:
	@echo "this is $@" && echo $@ >>done
broken:
	@echo "this is broken" && false
long:
	@echo $$$$ >pid && sleep 60 && echo $@ >>done
stray:
	@sleep 60 & echo $$! >pid && wait
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a Makefile."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def run_parts(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the tool. Returns its exit status and its output."""
    done = subprocess.run(
        [sys.executable, TOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=50
    )
    return done.returncode, done.stdout


def finished(folder: Path) -> list[str]:
    """Returns the goals that came to their end."""
    file = folder / "done"
    return sorted(file.read_text().split()) if file.exists() else []


def test_every_goal_runs_and_has_a_line(folder: Path) -> None:
    """All goals run, those in the background too, and a table at the end has the time of each and of all."""
    status, output = run_parts(folder, "one", "--background", "two")
    assert (0, ["one", "two"]) == (status, finished(folder))
    assert ["one", "two", "from"] == [line.split()[0] for line in output.splitlines()[-3:]]
    assert "this is two" in output


def test_goals_after_a_failed_one_do_not_run(folder: Path) -> None:
    """The first goal that fails is the last one that runs."""
    status, output = run_parts(folder, "one", "broken", "two")
    assert (1, ["one"]) == (status, finished(folder))
    assert output.endswith("FAILED: broken\n")


@pytest.mark.parametrize("arguments", [("long", "--background", "broken"), ("broken", "--background", "long")])
def test_a_failed_goal_stops_the_other_one(folder: Path, arguments: tuple[str, ...]) -> None:
    """A goal that fails ends the one that runs at the same time."""
    began = time.monotonic()
    status, output = run_parts(folder, *arguments)
    assert (1, []) == (status, finished(folder))
    assert time.monotonic() - began < 30
    assert output.endswith("FAILED: broken\n")
    assert "this is broken" in output


def long_pid(folder: Path) -> int:
    """Returns the pid that the goal wrote, or 0 if it has not written it yet."""
    file = folder / "pid"
    return int(file.read_text() or 0) if file.exists() else 0


def exists(pid: int) -> bool:
    """Returns whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, at most 30 s."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("goal", ["long", "stray"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_goals(folder: Path, number: signal.Signals, goal: str) -> None:
    """The tool that is interrupted or terminated leaves no goal running, nor a job of its shell that ignores SIGINT."""
    with subprocess.Popen([sys.executable, TOOL, goal], cwd=folder, stderr=subprocess.DEVNULL) as tool:
        wait_until(lambda: long_pid(folder))
        began = time.monotonic()
        tool.send_signal(number)
        assert tool.wait(30) == 130
        assert time.monotonic() - began < 10, "the interrupt is not enough"
    wait_until(lambda: not exists(long_pid(folder)))
    assert [] == finished(folder)
