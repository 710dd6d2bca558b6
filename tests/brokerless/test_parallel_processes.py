"""The worker processes of `kconsumer.parallel` end with the run, and when their parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import active_children
from pathlib import Path

from kconsumer import Consumer
from kconsumer.parallel import Processor
from kconsumer.parallel.handover import EXIT_TIMEOUT_S
from kconsumer.testing import FakeCluster, MockConsumer
from support.brokers.processes import kill, of_session
from support.harnesses.parallel_handlers import SlowToLoad, handle_nothing
from support.harnesses.parallel_runs import options, until

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
                until(lambda: len(list(tmp_path.glob("*.started"))) == 2, DEADLINE_S)
                program.send_signal(signal.SIGKILL)
                program.wait()
                until(lambda: not of_session(program.pid), DEADLINE_S)
            finally:
                kill(of_session(program.pid))


def test_a_run_polls_while_its_processes_start(tmp_path: Path) -> None:
    """It becomes a member of its group, and reads nothing that other members could process meanwhile."""
    marker = tmp_path / "marker"
    with FakeCluster(group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"a", b"b"])
        with Consumer("t", **options(cluster, consumer_timeout_ms=500)) as consumer:
            processor = Processor(consumer, SlowToLoad(marker), workers=2, executor="processes")
            thread = threading.Thread(target=lambda: (until(consumer.assignment), marker.touch()))
            thread.start()
            assert ("idle", 2) == (processor.run().reason, processor.summary().processed)
            thread.join()


def test_a_run_ends_while_its_processes_start(tmp_path: Path) -> None:
    """It does not wait for them, and none remains."""
    with MockConsumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([("t", 0)])
        processor = Processor(consumer, SlowToLoad(tmp_path / "marker"), workers=2, executor="processes")
        threading.Timer(0.5, processor.stop).start()
        began = time.monotonic()
        assert "stop" == processor.run().reason
    assert time.monotonic() < began + EXIT_TIMEOUT_S
    assert [] == active_children()


def test_a_run_releases_its_processes() -> None:
    """At the end of a run, its processes have ended, and their descriptors are closed."""
    with MockConsumer(group_id="g", enable_auto_commit=False, consumer_timeout_ms=10) as consumer:
        consumer.assign([("t", 0)])
        runs, descriptors = [], []
        for _ in range(3):
            runs.append(Processor(consumer, handle_nothing, workers=2, executor="processes"))
            runs[-1].run()
            assert [] == active_children()
            descriptors.append(len(os.listdir("/proc/self/fd")))
    assert descriptors[1:] == descriptors[:1] * 2
