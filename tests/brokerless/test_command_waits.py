"""The command, run as a process, reports what it waits for long before it gives up."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

GIVE_UP_MS = 4_000
SAID_BEFORE_S = 1.5  # it must report after 1.5 s, and gives up after 4
COMMANDS = {
    "consume": ("consume", "orders"),
    "topics": ("topics", "list"),
    "groups": ("groups", "list"),
}


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that accepts connections and never sends a byte."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def lines_of(command: tuple[str, ...], servers: str) -> tuple[list[tuple[float, str]], int]:
    """Returns the lines on stderr with the time (s) of each, and the exit code."""
    arguments = [*command, "-b", servers, "-X", f"default.api.timeout.ms={GIVE_UP_MS}"]
    found = []
    with subprocess.Popen(
        [sys.executable, "-m", "kconsumer", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            found.append((time.monotonic(), line))
    return found, process.returncode


@pytest.mark.parametrize("command", COMMANDS)
def test_no_listener(command: str) -> None:
    """Without a listener at the address, the command prints the reason early, and ends with one last line and exit code
    1.
    """
    lines, code = lines_of(COMMANDS[command], "127.0.0.1:1")
    assert 1 == code
    said, first = lines[0]
    assert first.startswith("kconsumer: waiting for a response from 127.0.0.1:1: ")
    assert "connection refused" in first
    ended, last = lines[-1]
    assert "127.0.0.1:1" in last
    assert ended - said > SAID_BEFORE_S


def test_silent_listener(silent: str) -> None:
    """While no reason is known yet, the command prints from which broker it waits for a response."""
    lines, code = lines_of(COMMANDS["topics"], silent)
    assert (1, f"kconsumer: waiting for a response from {silent}\n") == (code, lines[0][1])
    assert lines[-1][0] - lines[0][0] > SAID_BEFORE_S
