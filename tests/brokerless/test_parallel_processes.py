"""The worker processes of `kconsumer.parallel` end when their parent is killed, even while handlers run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kconsumer.testing import FakeCluster
from support.brokers.processes import kill, of_session

DEADLINE_S = 60
SCRIPT = """
import os, pathlib, sys, time
from kconsumer import Consumer
from kconsumer.parallel import process

def handler(record):
    pathlib.Path(__file__).with_name(f"{os.getpid()}.started").touch()
    time.sleep(1000)

if __name__ == "__main__":
    options = dict(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    with Consumer("t", bootstrap_servers=sys.argv[1], **options) as consumer:
        process(consumer, handler, workers=2, order="none", executor="processes")
"""


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true of other processes."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_worker_processes_end_with_their_parent(tmp_path: Path) -> None:
    """After SIGKILL of the process that polls, no process of its session remains."""
    file = tmp_path / "program.py"
    file.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"a", b"b"])
        command = [sys.executable, str(file), cluster.bootstrap_servers]
        with subprocess.Popen(command, env=environment, start_new_session=True) as program:
            try:
                until(lambda: len(list(tmp_path.glob("*.started"))) == 2)
                program.send_signal(signal.SIGKILL)
                program.wait()
                until(lambda: not of_session(program.pid))
            finally:
                kill(of_session(program.pid))
