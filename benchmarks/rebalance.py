"""Measures how long a partition returns no records when a member joins a group, and when one leaves.

One broker, one topic that gets a record per partition every 10 ms (`compare/clients/pulse.py`), two members of the same
client. The first reads everything; the second joins, and leaves again, several times. For each partition it measures
the longest pause between two records that either member's `poll` returned, from the order to join (or leave) on.
Partitions that stay with the first member and those that move are listed separately. All members send heartbeats every
500 ms, whose responses announce a rebalance. Prints a table in Markdown.

    python benchmarks/rebalance.py [--quick] [--turns 4] [--only 'Java range'] [--output FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.compare import report
from benchmarks.compare.catalog import SCRIPTS
from benchmarks.compare.run import machine
from benchmarks.data import compile_sources, java_command
from benchmarks.latency import Pulse
from support.brokers.kafka import JVM_FULL, Kafka, KafkaCluster
from support.brokers.kafka_jars import TOOLS_VERSION

PARTITIONS, RATE = 6, 100
HEARTBEAT_MS, SESSION_MS = 500, 6000
BROKER = {
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.assignors": "uniform",  # the default, which is sticky
}
SETTLE_S = 2.0
JOIN_TIMEOUT_S = 30.0

RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@dataclass(frozen=True)
class Client:
    """The name of a client in `peers.PEERS`, or Java, and the options of its members."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


def kconsumer(**options: Any) -> Client:
    """Return kconsumer with the classic protocol."""
    return Client("kconsumer", {"heartbeat_interval_ms": HEARTBEAT_MS, "session_timeout_ms": SESSION_MS, **options})


def confluent(assignor: str) -> Client:
    """Return librdkafka with the classic protocol."""
    timing = {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
    return Client("confluent", {"partition.assignment.strategy": assignor, **timing})


def java(assignor: str) -> Client:
    """Return the Java client with the classic protocol."""
    timing = {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
    return Client("Java", {"partition.assignment.strategy": assignor, **timing})


CLIENTS: dict[str, Client] = {
    "kconsumer range": kconsumer(assignors=["range"]),
    "kconsumer range, threaded": kconsumer(assignors=["range"], engine="threaded"),
    "kconsumer cooperative-sticky": kconsumer(assignors=["cooperative-sticky"]),
    "kconsumer cooperative-sticky, threaded": kconsumer(assignors=["cooperative-sticky"], engine="threaded"),
    "kconsumer consumer protocol": Client("kconsumer-consumer-protocol"),
    "Java range": java(RANGE),
    "Java cooperative-sticky": java(COOPERATIVE),
    "Java consumer protocol": Client("Java", {"group.protocol": "consumer"}),
    "confluent range": confluent("range"),
    "confluent cooperative-sticky": confluent("cooperative-sticky"),
    "confluent consumer protocol": Client("confluent-consumer-protocol"),
}


class Seen(NamedTuple):
    """A record that a member returned, with the time of CLOCK_MONOTONIC (ns)."""

    at: int
    partition: int
    offset: int
    member: int


class Pause(NamedTuple):
    """The longest time (ms) without a record of one partition after one event."""

    event: str
    moved: bool
    ms: float


class Member:
    """A process of `member.py` or Member.java."""

    def __init__(self, client: Client, kafka: Kafka, topic: str, group: str) -> None:
        common = (kafka.bootstrap_servers, topic, group)
        if client.name == "Java":
            options = [f"{key}={value}" for key, value in client.options.items()]
            command = java_command(str(SCRIPTS / "Member.java"), *common, *options, heap="256m")
        else:
            command = [sys.executable, str(SCRIPTS / "member.py"), client.name, json.dumps(client.options), *common]
        folders = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "assignors")))
        environment = {**os.environ, "PYTHONPATH": folders}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.version = TOOLS_VERSION

    def order(self) -> int:
        """Order the member to join, or to leave. Returns the time of the order (ns)."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return time.monotonic_ns()

    def join(self) -> int:
        """Order the member to join and wait until it reads. Returns the time of the order (ns). Raises RuntimeError."""
        moment = self.order()
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], JOIN_TIMEOUT_S)[0] or not self._process.stdout.readline():
            self._process.kill()
            raise RuntimeError(f"a member did not read within {JOIN_TIMEOUT_S} s")
        return moment

    def end(self, number: int) -> list[Seen]:
        """End the member. Returns all records that it returned. Raises RuntimeError if it failed."""
        output, _errors = self._process.communicate(timeout=60)
        if self._process.returncode:
            raise RuntimeError("a member failed")
        found = json.loads(output.splitlines()[-1])
        self.version = found.get("version", self.version)
        return [Seen(at, partition, offset, number) for partition, offset, at in found["seen"]]


def reading(client: Client, kafka: Kafka, topic: str, turns: int) -> tuple[list[Pause], str]:
    """Return the pauses of all partitions in this many joins and leaves, and the version of the client."""
    group = f"rebalance-{uuid.uuid4().hex[:8]}"
    first, second = members = [Member(client, kafka, topic, group) for _ in range(2)]
    first.join()
    time.sleep(SETTLE_S)
    events = []
    for _ in range(turns):
        events.append(("joins", second.join()))
        time.sleep(SETTLE_S)
        events.append(("leaves", second.order()))
        time.sleep(SETTLE_S)
    end = time.monotonic_ns()
    seen = sorted(record for number, member in enumerate(members) for record in member.end(number))
    ends = [moment for _, moment in events[1:]] + [end]
    pauses = []
    for (event, began), ended in zip(events, ends, strict=True):
        pauses += pauses_after(event, began, ended, seen)
    return pauses, members[0].version


def warm_up(kafka: Kafka, topic: str) -> None:
    """Create __consumer_offsets, for which the first group of a cluster waits."""
    member = Member(CLIENTS["kconsumer range"], kafka, topic, "warm-up")
    member.join()
    member.end(0)


def pauses_after(event: str, began: int, ended: int, seen: Iterable[Seen]) -> list[Pause]:
    """Return the longest pause of each partition in a span of time. Records that a member returned before do not count
    again. Raises RuntimeError if a partition returned no record, or if the event moved no partition."""
    found = []
    for partition in range(PARTITIONS):
        fresh, newest = list[Seen](), -1
        for record in seen:
            if record.partition == partition and record.offset > newest:
                newest = record.offset
                fresh.append(record)
        before = [record for record in fresh if record.at <= began]
        after = [record for record in fresh if began < record.at < ended]
        if not before or not after:
            raise RuntimeError(f"no record of partition {partition} came when a member {event}")
        moments = [before[-1].at, *(record.at for record in after)]
        longest = max(later - earlier for earlier, later in pairwise(moments))
        found.append(Pause(event, before[-1].member != after[-1].member, longest / 1e6))
    if not any(pause.moved for pause in found):
        raise RuntimeError(f"no partition moved when a member {event}")
    return found


def measure(clients: list[str], turns: int) -> dict[str, dict[str, Any]]:
    """Return the pauses of every client. A client that fails is reported on stderr and omitted."""
    found: dict[str, dict[str, Any]] = {}
    with KafkaCluster(jvm=JVM_FULL, properties=BROKER) as kafka:
        topic = kafka.create_topic("rebalance", PARTITIONS)
        with Pulse(kafka, topic, PARTITIONS, RATE):
            warm_up(kafka, topic)
            for client in clients:
                try:
                    pauses, version = reading(CLIENTS[client], kafka, topic, turns)
                except RuntimeError as error:
                    print(f"  {client}: {error}", file=sys.stderr, flush=True)
                    continue
                found[client] = {"pauses": [pause._asdict() for pause in pauses], "version": version}
                longest = max(pause.ms for pause in pauses)
                print(f"  {client}: {longest:.0f} ms at most", file=sys.stderr, flush=True)
    return found


TITLE = "{turns} joins and leaves; longest pause of a partition in ms, median / worst"
KINDS = (("joins", False), ("joins", True), ("leaves", False), ("leaves", True))


def table(readings: dict[str, dict[str, Any]]) -> str:
    """Return a table of the median and longest pause (ms) of each client."""
    rows = []
    for client, found in readings.items():
        cells = []
        for event, moved in KINDS:
            values = [p["ms"] for p in found["pauses"] if p["event"] == event and p["moved"] is moved]
            cells.append(f"{statistics.median(values):.0f} / {max(values):.0f}" if values else "")
        rows.append([client, *cells, found["version"]])
    heads = [f"{event[:-1]}: {'moving' if moved else 'staying'}" for event, moved in KINDS]
    return report.table(["client", *heads, "version"], rows)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="make one join and one leave, only to show that it runs")
    parser.add_argument("--turns", type=int, help="how often a member joins and leaves (default 3, 1 when quick)")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="measure only this client (repeatable)")
    parser.add_argument("--output", type=Path, help="also write all figures to this file as JSON")
    return parser.parse_args()


def main() -> None:
    """Measure all clients and print the table."""
    options = arguments()
    turns = options.turns or (1 if options.quick else 3)
    results = report.new_results(machine(), turns)
    compile_sources()
    results["readings"] = measure(options.only or list(CLIENTS), turns)
    report.publish_table(results, f"{TITLE.format(turns=turns)}:", table(results["readings"]), options.output)


if __name__ == "__main__":
    main()
