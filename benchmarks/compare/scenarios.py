"""What is not throughput: the first record of a new group, many quiet partitions, several consumers in one process."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from dataclasses import dataclass

from benchmarks.compare.catalog import Reading, run
from benchmarks.data import PARTITIONS
from support.kafka import Kafka

PEERS = ("kconsumer", "confluent", "confluent-tuned", "aiokafka", "kafka-python")
FAST = ("kconsumer", "confluent-tuned", "aiokafka")

Readings = dict[str, list[Reading]]


@dataclass(frozen=True)
class Size:
    """How much of each scenario."""

    rounds: int
    partitions: int
    seconds: float
    records: int


FULL = Size(rounds=5, partitions=2_000, seconds=10.0, records=3_000_000)
QUICK = Size(rounds=1, partitions=100, seconds=2.0, records=200_000)

SCENARIOS = ("first", "four", "steady")


def measure(scenario: str, kafka: Kafka, topic: str, size: Size) -> Readings:
    """All readings of a scenario by client; `topic` is one that is filled. Clients that fail are left out, loudly."""
    if scenario == "steady":
        return steady(kafka, size)
    readings: Readings = {}
    names = PEERS if scenario == "first" else FAST
    if scenario == "first":  # the first group of a cluster waits for the topic of offsets to be made
        _take({}, scenario, names[-1], "scenario.py", scenario, names[-1], kafka.bootstrap_servers, topic, "warm-up")
    for turn in range(size.rounds if scenario == "first" else min(size.rounds, 2)):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rest = (f"first-{uuid.uuid4().hex}",) if scenario == "first" else (str(PARTITIONS), str(size.records))
            _take(readings, scenario, name, "scenario.py", scenario, name, kafka.bootstrap_servers, topic, *rest)
    return readings


def steady(kafka: Kafka, size: Size) -> Readings:
    """Every partition gets one record a second while the clients take turns."""
    topic = kafka.create_topic(f"bench-steady-{uuid.uuid4().hex[:6]}", size.partitions)
    readings: Readings = {}
    with Trickle(kafka, topic, size.partitions):
        rest = (kafka.bootstrap_servers, topic, str(size.partitions), str(size.seconds))
        for name in PEERS:
            _take(readings, "steady", name, "scenario.py", "steady", name, *rest)
        _take(readings, "steady", "Java", "java_tool.py", *rest, "steady")
    kafka.delete_topic(topic)
    return readings


def _take(readings: Readings, scenario: str, name: str, script: str, *arguments: str) -> None:
    try:
        found = run(script, *arguments)
    except RuntimeError as error:
        print(f"  {error}", file=sys.stderr, flush=True)
        return
    readings.setdefault(name, []).append(found)
    took, cpu = found["seconds"], found["cpu_seconds"]
    print(f"  {scenario}: {name} {took:.2f} s, CPU {cpu:.2f} s", file=sys.stderr, flush=True)


class Trickle:
    """One record a second for every partition, evenly over the second, until the block ends."""

    STEPS = 20

    def __init__(self, kafka: Kafka, topic: str, partitions: int) -> None:
        self.dropped = 0
        self._producer = kafka.producer({"linger.ms": 20, "acks": 1})
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        due = time.monotonic()
        step = 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            for partition in range(step, self._partitions, self.STEPS):
                try:
                    self._producer.produce(self._topic, b"x" * 100, partition=partition)
                except BufferError:  # the broker does not keep up; what is measured then is seen in records/s
                    self.dropped += 1
            self._producer.poll(0)
            step = (step + 1) % self.STEPS
            due += 1 / self.STEPS

    def __enter__(self) -> Trickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.dropped:
            print(f"  steady: the broker was too busy for {self.dropped} records", file=sys.stderr, flush=True)
        self._producer.purge()
        self._producer.flush(30)
