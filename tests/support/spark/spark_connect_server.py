"""A Spark Connect server of the pyspark distribution, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from support.brokers import processes
from support.brokers.kafka import HOST, free_ports
from support.brokers.kafka_admin import wait_until
from support.spark.python_path import python_path
from support.spark.spark_jars import pyspark_folder

START_S = 120


def environment() -> dict[str, str]:
    """Returns the environment of servers and of applications."""
    return {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}


def submit(master: str, settings: Mapping[str, str], *program: str) -> list[str]:
    """Returns the command that submits a program to a cluster."""
    given = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    return [str(pyspark_folder() / "bin" / "spark-submit"), "--master", master, *given, *program]


@contextmanager
def connect_server(folder: Path, master: str, settings: Mapping[str, str]) -> Iterator[str]:
    """Run a server whose output is in FOLDER/server.log. Yields its address."""
    (port,) = free_ports(1)
    log = folder / "server.log"
    main = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
    command = submit(master, {**settings, "spark.connect.grpc.binding.port": str(port)}, *main)
    with processes.running_session(command, environment(), log, folder) as server:

        def ready() -> bool:
            assert server.poll() is None, log.read_text()[-3000:]
            with suppress(OSError), socket.create_connection((HOST, port), 1):
                return True
            return False

        wait_until(ready, START_S, "start of the Connect server")
        yield f"sc://{HOST}:{port}"


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start an application as leader of a session. Its errors are in FOLDER/application.log."""
    with (folder / "application.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env=environment(),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
