"""Tests the broker runner: the brokers it starts work, and none of them outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.brokers.kafka_admin import wait_until

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
