"""The programs of examples/migration: a program with another client, and its form with kconsumer, print the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import kafka_jars, program

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "migration"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
PARTITIONS, RECORDS = 3, 40  # records of each partition
DEADLINE_S = 60


@contextmanager
def running(file: str, *arguments: str) -> Iterator[list[str]]:
    """Run a program, and yield the lines that it has printed, a list that grows. At the end, press Ctrl-C."""
    if file.endswith(".java"):
        jars = os.pathsep.join(map(str, kafka_jars()))
        command = [program("java"), "-cp", jars, str(PROGRAMS / file), *arguments]
    else:
        command = [sys.executable, str(PROGRAMS / file), *arguments]
    lines: list[str] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT) as process:
        try:
            reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
            reader.start()
            yield lines
            process.send_signal(signal.SIGINT)
            reader.join(DEADLINE_S)
            assert process.wait(DEADLINE_S) in (0, 130), lines
        finally:
            process.kill()


def committed_all(kafka: Kafka, group: str, topic: str) -> bool:
    """Returns whether the group has committed all records of the topic."""
    return kafka.committed(group, topic) == dict.fromkeys(range(PARTITIONS), RECORDS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("confluent_before.py", "confluent_after.py"),
        ("confluent_worker_before.py", "confluent_worker_after.py"),
        ("kafka_python_before.py", "kafka_python_after.py"),
        ("aiokafka_before.py", "aiokafka_after.py"),
        ("java_before.java", "java_after.py"),
    ],
)
def test_both_print_the_same(kafka: Kafka, topic_name: str, before: str, after: str) -> None:
    """Both programs print all records in the order of each partition, commit them, and end on Ctrl-C."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [b'{"amount": %d}' % number for number in range(RECORDS)]
        keys = [b"k%d" % partition] * RECORDS
        kafka.produce(topic_name, values, partition=partition, keys=keys, headers=[("source", b"web")])
    groups = {file: f"{topic_name}-{Path(file).stem}" for file in (before, after)}
    with ExitStack() as stack:
        started = [running(file, kafka.bootstrap_servers, group, topic_name) for file, group in groups.items()]
        printed = [stack.enter_context(program) for program in started]
        for group in groups.values():
            wait_until(partial(committed_all, kafka, group, topic_name), DEADLINE_S, f"commits of {group}")
    theirs, ours = ([line for line in lines if line[0].isdigit()] for lines in printed)
    for partition in range(PARTITIONS):
        own = [[line for line in lines if line.startswith(f"{partition} ")] for lines in (theirs, ours)]
        assert own[0] == own[1]
        assert RECORDS == len(own[0])
    others = [sorted(line for line in lines if not line[0].isdigit()) for lines in printed]
    assert others[0] == others[1]
    assert others[0]
