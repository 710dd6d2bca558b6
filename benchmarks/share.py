"""Measures share consumers: `python benchmarks/share.py [--records 1000000] [--rounds 5] [--only poll,arrow]`.

One Kafka serves a topic with six partitions and records of 100 bytes. In each round, each client reads the topic once
as the only member of a new share group, in implicit mode. Each round begins with another client, because a broker's
first minutes are slower. Prints the medians of the rounds: records per second, and CPU seconds of the client and of the
broker per million records.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "assignors")]

CLIENTS = Path(__file__).parent / "compare" / "clients"
WAYS = ("bare", "bare-ahead", "arrow", "poll", "confluent", "java")
NAMES = {
    "bare": "bare exchange of the requests",
    "bare-ahead": "the same, two in flight",
    "arrow": "kconsumer poll_arrow",
    "poll": "kconsumer poll",
    "confluent": "confluent-kafka",
    "java": "Java",
}


def broker_cpu(pid: int) -> float:
    """Returns the CPU time (s) of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read(kafka: Any, way: str, topic: str, number: int, records: int) -> dict[str, float]:
    """Let one client read the topic in a new process. Returns what it printed, and the CPU time of the broker."""
    from support.brokers.kafka_jars import kafka_jars, program
    from support.members.share_groups import configure_group

    groups = [f"share-{way}-{number}-{part}" for part in range(2)]
    for group in groups:
        configure_group(kafka.bootstrap_servers, group, {"share.auto.offset.reset": "earliest"})
    if way == "java":
        class_path = os.pathsep.join(map(str, kafka_jars(kafka.version)))
        command = [program("java"), "-Xmx1g", "-Xms1g", "-cp", class_path, str(CLIENTS / "ShareLoop.java")]
        command += [kafka.bootstrap_servers, topic, *groups, str(records)]
    else:
        command = [sys.executable, str(CLIENTS / "share_read.py"), way, kafka.bootstrap_servers, topic, groups[0]]
        command.append(str(records))
    before = broker_cpu(kafka.nodes[0].pid)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["broker"] = (broker_cpu(kafka.nodes[0].pid) - before) / (2 if way == "java" else 1)
    return found


def table(readings: dict[str, list[dict[str, float]]]) -> str:
    """Return a table of the medians of each client."""
    lines = ["| client | records/s | CPU s per million | broker's CPU s per million |", "| --- | ---: | ---: | ---: |"]
    for client, rows in readings.items():
        rate = statistics.median(row["records"] / row["seconds"] for row in rows)
        cpu = statistics.median(1e6 * row["cpu"] / row["records"] for row in rows)
        broker = statistics.median(1e6 * row["broker"] / row["records"] for row in rows)
        lines.append(f"| {client} | {rate:,.0f} | {cpu:.2f} | {broker:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Start a broker, and measure each client in each round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(WAYS), help="the clients, with commas")
    parser.add_argument("--output", type=Path, help="also write all figures to this file as JSON")
    arguments = parser.parse_args()
    from benchmarks.compare import report
    from benchmarks.compare.run import machine
    from benchmarks.data import Corpus, load
    from support.brokers.kafka import JVM_FULL, KafkaCluster

    results = report.new_results(machine(), arguments.rounds)
    ways = arguments.only.split(",")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        topic = load(kafka, Corpus("100B", arguments.records, 100))
        for number in range(arguments.rounds):
            first = number % len(ways)
            for way in ways[first:] + ways[:first]:
                result = read(kafka, way, topic, number, arguments.records)
                found[way].append(result)
                rate = result["records"] / result["seconds"]
                print(f"round {number}: {NAMES[way]:30} {rate:12,.0f} records/s", flush=True)
    results["readings"] = {NAMES[way]: rows for way, rows in found.items()}
    report.publish_table(results, f"{arguments.rounds} rounds, medians", table(results["readings"]), arguments.output)


if __name__ == "__main__":
    main()
