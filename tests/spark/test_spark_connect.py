"""The source through a Spark Connect server: the session of the application is a client without a JVM."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.brokers import processes
from support.brokers.kafka import HOST, Kafka, free_ports
from support.brokers.kafka_admin import wait_until
from support.spark.spark_jars import pyspark_folder

ROOT = Path(__file__).parents[2]
START_S = 120
SETTINGS = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=1",
    "spark.driver.host=127.0.0.1",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)


def environment() -> dict[str, str]:
    """Returns the environment of the server and of the client."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "assignors")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST}  # fmt: skip


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A Connect server of the pyspark distribution, in a process of its own. Gives its address."""
    port = free_ports(1)[0]
    submit = [str(pyspark_folder() / "bin" / "spark-submit"), "--master", "local[2]"]
    for setting in (*SETTINGS, f"spark.connect.grpc.binding.port={port}"):
        submit += ["--conf", setting]
    submit += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            submit,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=tmp_path,
            start_new_session=True,
        )

    def ready() -> bool:
        assert server.poll() is None, log.read_text()[-3000:]
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return True
        return False

    try:
        wait_until(ready, START_S, "start of the Connect server")
        yield f"sc://{HOST}:{port}"
    finally:
        processes.kill(processes.of_session(server.pid))
        server.wait(30)


def test_batches_streams_and_lag(remote: str, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A client of a server reads a topic with push-down, streams it, and commits its offsets by a listener."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, [b"value"] * 10, partition=partition)
    script = ROOT / "tests" / "support" / "spark" / "spark_connect.py"
    command = [sys.executable, str(script), remote, kafka.bootstrap_servers, topic_name, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200, check=False)
    assert 0 == done.returncode, done.stderr[-4000:] + (tmp_path / "server.log").read_text()[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert (20, [5, 6, 7, 8, 9], 20) == (found["count"], found["filtered"], found["streamed"])
    assert [[topic_name, 0, 10], [topic_name, 1, 10]] == found["committed"]
    assert [{topic_name: {"0": 10, "1": 10}}] == [
        json.loads(ends) if isinstance(ends, str) else ends for ends in found["progress"]
    ]
    assert "a pipeline needs a classic Spark session" in found["pipeline"]
