"""`kconsumer fake-cluster`, run as a process."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "kconsumer", "fake-cluster"]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of kconsumer to its end."""
    return subprocess.run(
        [sys.executable, "-m", "kconsumer", *command], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_cluster_to_try() -> None:
    """The command prints a line by which another process reads the records. Ctrl-C ends it without a traceback."""
    arguments = ["--topic", "orders:3", "--topic", "other", "--records", "10", "--port", "0"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(5)]
        assert ["topic orders: 3 partitions, 10 records\n", "topic other: 1 partition, 10 records\n"] == lines[:2]
        found = re.fullmatch(r"try: kconsumer (consume orders -b 127.0.0.1:\d+ --from earliest)\n", lines[3])
        assert found is not None
        done = run(*found[1].split(), "--exit-at-end", "-f", "%k %s\\n")
        process.send_signal(signal.SIGINT)
        assert (130, "") == (process.wait(20), process.stderr.read())
    expected = [f'key-{i} {{"number": {i}, "text": "record {i}"}}' for i in range(10)]
    assert (0, sorted(expected)) == (done.returncode, sorted(done.stdout.splitlines()))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topic", ":3"],
        ["--topic", "t:0"],
        ["--topic", "t:x"],
        ["--topic", "a b", "--port", "0"],
        ["--topic", "twice", "--topic", "twice", "--port", "0"],
        ["--records", "-1"],
        ["--records", "7"],
        ["--brokers", "0"],
        ["--port", "65536"],
    ],
)
def test_wrong_arguments(arguments: list[str]) -> None:
    """A wrong argument ends the command with exit code 2 and a message that contains it."""
    done = run("fake-cluster", *arguments)
    assert 2 == done.returncode
    assert arguments[1] in done.stderr


def test_a_port_in_use() -> None:
    """A port in use ends the command with one line that contains the address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run("fake-cluster", "--port", address.partition(":")[2])
    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert f"cannot listen at {address}" in done.stderr
