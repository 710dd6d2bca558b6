"""Spark's standalone master and workers on this machine: what their start scripts start, in the foreground."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.brokers import processes
from support.brokers.kafka import free_ports
from support.brokers.kafka_admin import wait_until
from support.spark.spark_jars import pyspark_folder

HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"
NO_WEB = ("--webui-port", "0")


class Standalone(NamedTuple):
    """A running cluster: the master's URL, and the processes of the master and the workers."""

    url: str
    started: list[subprocess.Popen[bytes]]

    def executors(self) -> list[int]:
        """Returns the ids of the processes of executors, which the workers start."""
        pids = [pid for process in self.started for pid in processes.of_session(process.pid)]
        return [pid for pid in pids if "CoarseGrainedExecutorBackend" in processes.command(pid)]


def start(folder: Path, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start one process in a session of its own, whose output is in FOLDER/NAME.log."""
    environment = {**os.environ, "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": HOST}
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [str(pyspark_folder() / "bin" / "spark-class"), f"{DEPLOY}.{main}", *arguments],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def listens(port: int) -> bool:
    """Returns whether a server accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """Run a master and workers of one core each, with folders FOLDER/worker-N."""
    (port,) = free_ports(1)
    url = f"spark://{HOST}:{port}"
    started = [start(folder, "master", "master.Master", "--host", HOST, "--port", str(port), *NO_WEB)]
    try:
        wait_until(lambda: listens(port), 60, "the master")
        for number in range(workers):
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"worker-{number}"))
            started.append(start(folder, f"worker-{number}", "worker.Worker", "--host", HOST, *size, *NO_WEB, url))
        yield Standalone(url, started)
    finally:
        for process in started:
            processes.kill(processes.of_session(process.pid))
            process.wait(30)
