"""Drivers and Python workers are killed at any moment; the files contain every record exactly once."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.brokers import processes
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered
from support.spark.spark_driver import options
from support.spark.spark_parity import OURS, Stream

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("KCONSUMER_SPARK_KILLS", "1"))  # of a driver, after one of its workers; the long form: 20
RECORDS = max(3000, 1200 * KILLS)  # some micro-batches for each run, and some for the last


def commits(folder: Path) -> int:
    """Returns the number of completed micro-batches."""
    return len(list((folder / OURS / "checkpoint" / "commits").glob("[0-9]*")))


def start(kafka: Kafka, topic: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a driver as leader of its own session."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "assignors")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    script = ROOT / "tests" / "support" / "spark" / "spark_driver.py"
    return subprocess.Popen(
        [sys.executable, str(script), kafka.bootstrap_servers, topic, str(folder)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def workers(driver: int) -> list[int]:
    """Returns the Python workers of a driver, which Spark's daemon forks."""
    daemon = "pyspark.daemon"
    found = [pid for pid in processes.of_session(driver) if daemon in processes.command(pid)]
    return [pid for pid in found if daemon in processes.command(processes.parent(pid))]


def run_and_kill(kafka: Kafka, topic: str, folder: Path, worker_first: bool) -> None:
    """Let a driver complete at least one micro-batch and kill all its processes. With `worker_first`, kill one of its
    workers earlier; Spark retries the worker's task.
    """
    before = commits(folder)
    driver = start(kafka, topic, folder)

    def done(more: int) -> bool:
        return commits(folder) >= before + more or driver.poll() is not None

    try:
        wait_until(lambda: done(1), 120, "a micro-batch")
        if worker_first:
            processes.kill(wait_until(lambda: workers(driver.pid), 30, "a worker")[:1])
            wait_until(lambda: done(2), 60, "another micro-batch")
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(random.uniform(0.0, 0.5))
    finally:
        processes.kill(processes.of_session(driver.pid))
        driver.wait(30)


@pytest.mark.kills
@pytest.mark.timeout(300 + 120 * KILLS)
def test_every_record_once_whatever_is_killed(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """After each kill the stream continues from its checkpoint, and partly written files are ignored."""
    kafka.create_topic(topic_name, 3)
    kafka.produce(topic_name, numbered(RECORDS), config={"partitioner": "random", "linger.ms": 0})
    for number in range(KILLS):
        run_and_kill(kafka, topic_name, tmp_path, worker_first=number % 2 == 0)
    assert commits(tmp_path) >= KILLS
    stream = Stream(spark, OURS, options(kafka.bootstrap_servers, topic_name), tmp_path)
    values = Counter(int(row[3][1]) for row in stream.run().outcome().rows)
    assert RECORDS == len(values)
    assert {1} == set(values.values())
