"""A stream on a standalone master with two workers, whose executors are released when they are idle, and killed."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from kconsumer.testing import FakeCluster
from support.brokers import processes
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.spark import spark_executors
from support.spark.python_path import python_path
from support.spark.spark_connect_server import connect_server, environment, start, submit
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
    "spark.log.level": "ERROR",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
}
PIPELINE = """
[source]
kafka.bootstrap.servers = "{servers}"
subscribe = "t"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 100

[decode]
schema = "id long"

[dead_letters]
path = "{folder}/dead"

[sink]
path = "{folder}/rows"

[run]
checkpoint = "{folder}/checkpoint"

[spark]
master = "{master}"
"""


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
            with connect_server(tmp_path, cluster.url, SETTINGS | DYNAMIC) as remote:
                command = [sys.executable, script, remote, *arguments]
                found = run_with_kills(kafka, topic_name, tmp_path, cluster, command)
        else:
            command = submit(cluster.url, SETTINGS | DYNAMIC, script, "", *arguments)
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_pipeline_that_a_file_describes(tmp_path: Path) -> None:
    """The command writes each row and each dead letter once on a cluster with two workers, though the process of an
    executor is killed between the first micro-batch and the last one.
    """
    script, output = tmp_path / "pipeline.toml", tmp_path / "output"

    def commits() -> int:
        return len(list((tmp_path / "checkpoint" / "rows" / "commits").glob("[0-9]*")))

    with FakeCluster() as kafka, standalone(tmp_path, 2) as cluster:
        kafka.create_topic("t", PARTITIONS)
        for partition in range(PARTITIONS):
            kafka.produce("t", numbers(0)[partition::PARTITIONS], partition=partition)
        text = PIPELINE.format(servers=kafka.bootstrap_servers, folder=tmp_path, master=cluster.url)
        script.write_text(text + "\n".join(f'"{name}" = "{value}"' for name, value in SETTINGS.items()))
        command = [sys.executable, "-m", "kconsumer.spark.pipeline", str(script)]
        with processes.running_session(command, environment(), output, tmp_path) as process:
            wait_until(lambda: commits() or process.poll() is not None, 180, "the first micro-batch")
            executors = cluster.executors()
            processes.kill(executors[:1])
            before = commits()
            assert 0 == process.wait(300), output.read_text()[-3000:]
    assert 2 == len(executors)
    assert 0 < before < commits() == RECORDS // 100

    def rows(folder: str) -> list[Any]:
        files = (tmp_path / folder).rglob("*.parquet")
        return [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]

    sent = [(number, (number % PARTITIONS, number // PARTITIONS)) for number in range(RECORDS)]
    written = [(row["id"], (row["kafka_partition"], row["kafka_offset"])) for row in rows("rows")]
    assert [each for each in sent if each[0] % 50] == sorted(written)
    letters = [(row["partition"], row["offset"]) for row in rows("dead")]
    assert sorted(place for number, place in sent if number % 50 == 0) == sorted(letters)
