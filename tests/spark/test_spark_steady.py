"""A long stream at a steady rate: the memory of its processes does not grow, and its lag stays small."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.brokers import processes
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.spark.spark_again import newest

ROOT = Path(__file__).parents[2]
SECONDS = int(os.environ.get("KCONSUMER_SPARK_SECONDS", "120"))  # the long form uses 1800
PER_SECOND = 2000  # records of 500 bytes
TICK_S = 0.1
MOST_BEHIND_S = 5  # seconds of records; a micro-batch starts every half second
MOST_GROWTH = 10 << 20  # bytes by which a Python process may grow after its first third
PARTITIONS = 3


def driver(kafka: Kafka, topic: str, folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start the query's processes in a session that ends with the block."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "assignors")]
    script = ROOT / "tests" / "support" / "spark" / "spark_steady.py"
    command = [sys.executable, str(script), kafka.bootstrap_servers, topic, str(folder / "checkpoint")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    return processes.running_session(command, environment, folder / "output")


class Watch:
    """Measurements of a query from outside while records are written."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self._folder = process, folder
        self.behind: list[int] = []
        self.memory: dict[int, list[int]] = defaultdict(list)  # bytes of each Python process

    def read(self) -> int:
        """Returns the number of records that the completed micro-batches have read."""
        assert self._process.poll() is None, (self._folder / "output").read_text()[-3000:]
        try:
            done = newest(self._folder / "checkpoint" / "commits").name
        except (ValueError, FileNotFoundError):
            return 0
        offsets = json.loads((self._folder / "checkpoint" / "offsets" / done).read_text().splitlines()[-1])
        return sum(offset for partitions in offsets.values() for offset in partitions.values())

    def look(self, written: int) -> None:
        """Record the present measurements."""
        self.behind.append(written - self.read())
        for pid in processes.of_session(self._process.pid):
            if "pyspark" in processes.command(pid) and "java" not in processes.command(pid).split(" ", 1)[0]:
                self.memory[pid].append(processes.anonymous_memory(pid))

    def growth(self, looks: int) -> dict[int, int]:
        """Returns by how many bytes each process that ran for the last two thirds grew from the second third to the
        last.
        """
        third = looks // 3
        lasting = [seen for seen in self.memory.values() if len(seen) >= looks - third]
        return {max(seen): max(seen[-third:]) - max(seen[-2 * third : -third]) for seen in lasting}


def write(kafka: Kafka, topic: str, watch: Watch) -> int:
    """Write at a steady rate and measure every second; records of a second in which this process stalled are not
    written later.
    """
    producer = kafka.producer()
    written = 0
    until = time.monotonic() + SECONDS
    while (now := time.monotonic()) < until:
        for number in range(int(PER_SECOND * TICK_S)):
            producer.produce(topic, b"x" * 500, partition=number % PARTITIONS)
        written += int(PER_SECOND * TICK_S)
        producer.poll(0)
        if written % PER_SECOND == 0:
            watch.look(written)
        time.sleep(max(0.0, now + TICK_S - time.monotonic()))
    assert 0 == producer.flush(30)
    return written


@pytest.mark.long
@pytest.mark.timeout(300 + 2 * SECONDS)
def test_memory_flat_and_lag_bounded(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """The size of Python processes does not grow, the stream keeps up, and the committed offsets follow its
    position.
    """
    kafka.create_topic(topic_name, PARTITIONS, config={"segment.bytes": "20000000", "retention.bytes": "200000000"})
    kafka.produce(topic_name, [b"first"], partition=0)
    with driver(kafka, topic_name, tmp_path) as process:
        watch = Watch(process, tmp_path)
        wait_until(lambda: watch.read() == 1, 120, "the first micro-batch")
        written = 1 + write(kafka, topic_name, watch)
        wait_until(lambda: watch.read() == written, 60, "the end of the topic")
    looks = len(watch.behind)
    behind = statistics.median(watch.behind[-(looks // 3) :])
    growth = watch.growth(looks)
    print(f"\n{written} records, {behind} behind (at most {max(watch.behind)}); size and growth of processes: {growth}")
    assert behind <= MOST_BEHIND_S * PER_SECOND
    assert len(growth) >= 3, "the source's process and two workers"
    assert {} == {size: grown for size, grown in growth.items() if grown > MOST_GROWTH}
    committed = sum(kafka.committed(topic_name, topic_name).values())
    assert written - MOST_BEHIND_S * PER_SECOND <= committed <= written
