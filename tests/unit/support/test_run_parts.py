"""`tools/run_parts.py`, which runs the parts of `make test`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "run_parts.py"
MAKEFILE = """
.PHONY: one two broken long
one two:
	@echo "this is $@" && echo $@ >>done
broken:
	@echo "this is broken" && false
long:
	@echo $$$$ >pid && exec sleep 60
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


def sleeps(folder: Path) -> bool:
    """Returns whether the goal `long` sleeps. A signal before that may reach its shell while that starts the sleep."""
    file = folder / "pid"
    pid = file.read_text().strip() if file.exists() else ""
    return bool(pid) and Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_goals(folder: Path, number: signal.Signals) -> None:
    """The tool that is interrupted or terminated leaves no goal running."""
    with subprocess.Popen([sys.executable, TOOL, "long"], cwd=folder, stderr=subprocess.DEVNULL) as tool:
        deadline = time.monotonic() + 30
        while not sleeps(folder):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        tool.send_signal(number)
        assert tool.wait(30)
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)
