"""Tests the broker runner: the brokers it starts work, and none of them outlives its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.brokers import kafka as brokers
from support.brokers import kafka_run
from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import java_hash, wait_until

TESTS = Path(__file__).parent.parent

OWNER = """
import sys
import tempfile
from support.brokers.kafka import KafkaCluster
cluster = KafkaCluster()
cluster.start()
print(cluster.nodes[0].pid, cluster.root, flush=True)
sys.stdin.read()
"""


def test_the_error_of_a_broker_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a port of a broker is in use, the error says so, and not only what the broker did after that."""
    free = brokers.free_ports
    with socket.create_server((brokers.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(brokers, "free_ports", lambda count: [port, *free(count - 1)])
        with pytest.raises(RuntimeError, match="Address already in use"), KafkaCluster():
            pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("group", 98629247), ("polygenelubricants", -(2**31)), ("Ünïcode-\U0001f600", -671387002)],
)
def test_java_hash(text: str, expected: int) -> None:
    """java_hash() equals Java's String.hashCode, also for surrogate pairs and when it overflows."""
    assert expected == java_hash(text)


def test_missing_java_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a JDK the runner raises an error that says what to install; tests are not skipped."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(RuntimeError, match="openjdk-17-jdk-headless"):
        KafkaCluster().start()


def process_state(pid: int) -> str:
    """Returns the kernel's state letter of a process, or an empty string if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid: int) -> bool:
    """Returns True if no process has this id or it is a zombie."""
    return process_state(pid) in ("", "Z")


def test_no_broker_outlives_a_killed_owner() -> None:
    """When the owning process gets SIGKILL, the JVM ends and its folder is removed."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, root = owner.stdout.readline().split(maxsplit=1)
        assert not gone(int(pid))
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: gone(int(pid)), 10, "end of the JVM")
    wait_until(lambda: not Path(root.strip()).exists(), 10, "removal of the folder")


def test_no_broker_outlives_a_killed_guard() -> None:
    """When the guard process is killed, the kernel ends the JVM."""
    with KafkaCluster() as cluster:
        node = cluster.nodes[0]
        assert node.guard_pid is not None
        pid = node.pid
        assert pid is not None
        os.kill(node.guard_pid, signal.SIGKILL)
        wait_until(lambda: gone(pid), 10, "end of the JVM")
        assert not node.alive


def test_abandoned_run_folders_are_swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A later run removes an old folder whose owner has ended. It keeps a folder that is in use or was made
    recently.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = {name: tmp_path / f"{kafka_run.PREFIX}{name}" for name in ("abandoned", "held", "fresh")}
    held = {}
    for name, folder in folders.items():
        folder.mkdir()
        held[name] = kafka_run.hold_lifeline(folder / "lifeline")
        if name != "fresh":
            os.utime(folder, (0, 0))
    os.close(held.pop("abandoned"))
    os.close(held.pop("fresh"))
    kafka_run.sweep()
    os.close(held.pop("held"))
    assert ["fresh", "held"] == [name for name in sorted(folders) if folders[name].exists()]
