"""Scenarios beyond throughput: the first record of a new group, many quiet partitions, several consumers."""

from __future__ import annotations

import subprocess
import sys
import uuid
from dataclasses import dataclass

from benchmarks.compare.catalog import SCRIPTS, Reading, run
from benchmarks.data import PARTITIONS, java_command
from support.brokers.kafka import Kafka

OURS = ("kconsumer", "kconsumer-threaded", "kconsumer-consumer-protocol")
PEERS = (*OURS, "confluent", "confluent-tuned", "aiokafka", "kafka-python")

# An index file of the default size (10 MB, sparse) costs the kernel milliseconds when its first entry is written. All
# partitions write it in the same second: 24 s after the start the broker did nothing else for half a minute.
SMALL_INDEXES = {"segment.index.bytes": "16384"}

TRICKLE = str(SCRIPTS / "Trickle.java")
FAST = ("kconsumer", "kconsumer-threaded", "confluent-tuned", "aiokafka")
ASSIGNED = tuple(name for name in PEERS if name != "kconsumer-consumer-protocol")  # the protocol needs a group

Readings = dict[str, list[Reading]]


@dataclass(frozen=True)
class Size:
    """The size of the scenarios."""

    rounds: int
    partitions: int
    seconds: float
    records: int


FULL = Size(rounds=5, partitions=2_000, seconds=10.0, records=3_000_000)
QUICK = Size(rounds=1, partitions=100, seconds=2.0, records=200_000)

SCENARIOS = ("first", "four", "steady")


def measure(scenario: str, kafka: Kafka, topic: str, size: Size) -> Readings:
    """Return all readings of a scenario by client. `topic` has records. Clients that fail are reported and omitted."""
    if scenario == "steady":
        return steady(kafka, size)
    readings: Readings = {}
    names = PEERS if scenario == "first" else FAST
    if scenario == "first":  # the first group of a cluster waits until __consumer_offsets is created
        _take({}, scenario, names[-1], "scenario.py", scenario, names[-1], kafka.bootstrap_servers, topic, "warm-up")
    for turn in range(size.rounds if scenario == "first" else min(size.rounds, 2)):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rest = (f"first-{uuid.uuid4().hex}",) if scenario == "first" else (str(PARTITIONS), str(size.records))
            _take(readings, scenario, name, "scenario.py", scenario, name, kafka.bootstrap_servers, topic, *rest)
    return readings


def steady(kafka: Kafka, size: Size) -> Readings:
    """Measure each client while every partition gets one record per second. Readings contain the number of records."""
    topic = kafka.create_topic(f"bench-steady-{uuid.uuid4().hex[:6]}", size.partitions, config=SMALL_INDEXES)
    readings: Readings = {}
    with Trickle(kafka, topic, size.partitions) as trickle:
        rest = (kafka.bootstrap_servers, topic, str(size.partitions), str(size.seconds))
        for name in (*ASSIGNED, "Java"):
            trickle.counts()
            if name == "Java":
                _take(readings, "steady", name, "java_tool.py", *rest, "steady")
            else:
                _take(readings, "steady", name, "scenario.py", "steady", name, *rest)
            sent, dropped = trickle.counts()
            for reading in readings.get(name, []):
                reading |= {"partitions": size.partitions, "written": sent, "dropped": dropped}
            if dropped:
                print(f"  steady: {name}: {sent} records written, {dropped} dropped", file=sys.stderr, flush=True)
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
    """Writes one record per second to every partition, evenly over the second, during a `with` block (Trickle.java)."""

    def __init__(self, kafka: Kafka, topic: str, partitions: int) -> None:
        self._command = java_command(TRICKLE, kafka.bootstrap_servers, topic, str(partitions), heap="128m")

    def counts(self) -> tuple[int, int]:
        """Return the records written and dropped since the last call. Waits until each partition has a record.

        Raises RuntimeError if the producer ended.
        """
        self._stdin.write("\n")
        self._stdin.flush()
        line = self._stdout.readline().split()
        if len(line) != 2:
            raise RuntimeError("the producer of the steady load ended")
        return int(line[0]), int(line[1])

    def __enter__(self) -> Trickle:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, which ends it, and waits for it
            pass
