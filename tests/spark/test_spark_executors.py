"""A stream on a standalone master with two workers, whose executors are released when they are idle, and killed."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.brokers import processes
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.spark import spark_executors
from support.spark.python_path import python_path
from support.spark.spark_connect_server import connect_server, start, submit
from support.spark.spark_standalone import Standalone, standalone

KILLS = 3
RECORDS = 1200  # before each kill
PARTITIONS = 4
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executorEnv.PYTHONPATH": python_path(),
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    "spark.log.level": "ERROR",
}


def numbers(first: int) -> list[bytes]:
    """Returns values, of which every 50th is not JSON."""
    return [b'{"id": %d}' % number if number % 50 else b"bad" for number in range(first, first + RECORDS)]


def run_with_kills(kafka: Kafka, topic: str, folder: Path, cluster: Standalone, command: list[str]) -> Any:
    """Write records again and again while a query runs, and kill an executor each time. Returns what it prints."""

    def commits() -> int:
        assert query.poll() is None, (folder / "application.log").read_text()[-3000:]
        return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))

    with start(command, folder) as query:
        try:
            for number in range(KILLS):
                wait_until(lambda: not cluster.executors(), 120, "the release of idle executors")
                done = commits()
                for partition in range(PARTITIONS):
                    values = numbers(number * RECORDS)[partition::PARTITIONS]
                    kafka.produce(topic, values, partition=partition)
                wait_until(lambda done=done: commits() > done, 120, "the first micro-batch")
                time.sleep(random.uniform(0, 0.5))  # so that kills hit different moments of the micro-batches
                executors = cluster.executors()
                processes.kill([random.choice(executors)])
            (folder / "stop").touch()
            output, _ = query.communicate(timeout=300)
        finally:
            processes.kill(processes.of_session(query.pid))
    assert 0 == query.returncode, (folder / "application.log").read_text()[-3000:]
    return json.loads(output.splitlines()[-1])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("session", ["spark-submit", "Connect"])
def test_every_row_is_there_once(kafka: Kafka, topic_name: str, tmp_path: Path, session: str) -> None:
    """Rows and dead letters are exactly those of the topic, though idle executors are released, and an executor is
    killed in the middle of each batch of records; in a classic session and in one of a Connect server.
    """
    kafka.create_topic(topic_name, PARTITIONS)
    script = str(spark_executors.__file__)
    arguments = [kafka.bootstrap_servers, topic_name, str(tmp_path)]
    with standalone(tmp_path, 2) as cluster:
        if session == "Connect":
            with connect_server(tmp_path, cluster.url, SETTINGS) as remote:
                command = [sys.executable, script, remote, *arguments]
                found = run_with_kills(kafka, topic_name, tmp_path, cluster, command)
        else:
            command = submit(cluster.url, SETTINGS, script, "", *arguments)
            found = run_with_kills(kafka, topic_name, tmp_path, cluster, command)
    assert found["session"].startswith("pyspark.sql.connect") == (session == "Connect")
    sent = {
        (number % PARTITIONS, number // PARTITIONS): number if number % 50 else None
        for number in range(KILLS * RECORDS)
    }
    rows = [((partition, offset), number) for partition, offset, number in found["rows"]]
    assert sorted((place, number) for place, number in sent.items() if number is not None) == sorted(rows)
    lines = [line for file in (tmp_path / "dead").rglob("*.jsonl") for line in file.read_text().splitlines()]
    letters = [(letter["partition"], letter["start"]) for letter in map(json.loads, lines)]
    assert sorted(place for place, number in sent.items() if number is None) == sorted(letters)
