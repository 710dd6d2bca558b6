"""Drivers and Python workers are killed at any moment; every record ends in the files exactly once."""

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
KILLS = int(os.environ.get("KCONSUMER_SPARK_KILLS", "2"))  # the long form: 20
RECORDS = max(3000, 1200 * KILLS)  # some micro-batches for each run, and some left for the last


def commits(folder: Path) -> int:
    """How many micro-batches are done."""
    return len(list((folder / OURS / "checkpoint" / "commits").glob("[0-9]*")))


def start(kafka: Kafka, topic: str, folder: Path) -> subprocess.Popen[bytes]:
    """A driver that leads a session of its own."""
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
    """The Python workers of a driver: forked from Spark's daemon."""
    daemon = "pyspark.daemon"
    found = [pid for pid in processes.of_session(driver) if daemon in processes.command(pid)]
    return [pid for pid in found if daemon in processes.command(processes.parent(pid))]


def run_and_kill(kafka: Kafka, topic: str, folder: Path, worker_first: bool) -> None:
    """Let a driver do a micro-batch or more, kill a worker of it (whose task is tried again), then all of it."""
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
    """After each kill the stream goes on from its checkpoint; what was half written does not count."""
    kafka.create_topic(topic_name, 3)
    kafka.produce(topic_name, numbered(RECORDS), config={"partitioner": "random", "linger.ms": 0})
    for number in range(KILLS):
        run_and_kill(kafka, topic_name, tmp_path, worker_first=number % 2 == 1)
    assert commits(tmp_path) >= KILLS
    stream = Stream(spark, OURS, options(kafka.bootstrap_servers, topic_name), tmp_path)
    values = Counter(int(row[3][1]) for row in stream.run().outcome().rows)
    assert RECORDS == len(values)
    assert {1} == set(values.values())
