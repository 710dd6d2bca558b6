"""Measures a consumer that has nothing to read: `python benchmarks/idle.py [--seconds 30] [--only classic]`.

For each engine, and for confluent-kafka, three processes are members of a group and own a partition each. They
idle in `poll(1.0)`; then each calls `poll(0)` many times. It measures CPU time: of the whole process while it idles,
of the calling thread and of the whole process during `poll(0)`. The percentiles of single calls are wall time and
include other work on the machine. Exits with 1 if a member of kconsumer used more than 1 % of a core or more than 30 us
per call.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "assignors")]

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}
CLIENTS = (*ENGINES, "confluent")
Figures = dict[str, dict[str, float]]
MEMBERS = 3
WARM_CALLS, CALLS = 2_000, 30_000
MAX_PERCENT, MAX_US = 1.0, 30.0


def ours(engine: str, servers: str, topic: str) -> tuple[Callable[[float], object], Callable[[], int]]:
    """Return the poll function of kconsumer, and a function that counts the owned partitions."""
    from kconsumer import Consumer

    consumer = Consumer(topic, bootstrap_servers=servers, group_id=topic, **ENGINES[engine])
    return consumer.poll, lambda: len(consumer.assignment())


def confluent(servers: str, topic: str) -> tuple[Callable[[float], object], Callable[[], int]]:
    """Return the same functions of confluent-kafka."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic})
    consumer.subscribe([topic])
    return consumer.poll, lambda: len(consumer.assignment())


def member(client: str, servers: str, topic: str, seconds: float) -> None:
    """Run one member in this process, and print its figures as JSON."""
    poll, owned = confluent(servers, topic) if client == "confluent" else ours(client, servers, topic)
    while owned() != 1:
        poll(0.1)
    settled = time.monotonic() + 5
    while time.monotonic() < settled or owned() != 1:
        poll(0.5)
    print(json.dumps({"idle": idle(poll, seconds), "calls": calls(poll)}), flush=True)
    while sys.stdin.read(1):  # if a member left now, the others would rebalance
        pass
    os._exit(0)


def idle(poll: Callable[[float], object], seconds: float) -> dict[str, float]:
    """Measure CPU time and context switches per second while no records arrive."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    while time.monotonic() - began < seconds:
        poll(1.0)
    after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"percent": 100 * cpu / took, "switches": (after.ru_nvcsw - before.ru_nvcsw) / took}


def calls(poll: Callable[[float], object]) -> dict[str, float]:
    """Measure poll(0) in microseconds: CPU time of this thread and of the process, and percentiles of wall time."""
    for _ in range(WARM_CALLS):
        poll(0)
    thread, process = time.thread_time_ns(), time.process_time_ns()
    for _ in range(CALLS):
        poll(0)
    thread, process = time.thread_time_ns() - thread, time.process_time_ns() - process
    walls = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        poll(0)
        walls.append(time.perf_counter_ns() - began)
    walls.sort()
    return {
        "thread": thread / CALLS / 1000,
        "process": process / CALLS / 1000,
        "p50": walls[CALLS // 2] / 1000,
        "p99": walls[CALLS * 99 // 100] / 1000,
    }


def measure(client: str, servers: str, topic: str, seconds: float) -> list[Figures]:
    """Run three members at once. Returns their figures."""
    command = [sys.executable, __file__, "--member", client, "--servers", servers, "--topic", topic]
    processes = [
        subprocess.Popen(
            [*command, "--seconds", str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(MEMBERS)
    ]
    try:
        return [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def worst(found: list[Figures]) -> dict[str, float]:
    """Return the figures of the worst member in each column."""
    return {key: max(one[part][key] for one in found) for part in ("idle", "calls") for key in found[0][part]}


def table(members: dict[str, list[Figures]]) -> str:
    """Return a table of the worst member of each client."""
    rows = [[client, *(f"{figure:.2f}" for figure in worst(found).values()), ""] for client, found in members.items()]
    heads = ["client", "idle, % of a core", "switches/s", "`poll(0)`, thread us", "process us", "p50 us", "p99 us"]
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells[: len(heads)]) + " |" for cells in [heads, rule, *rows]) + "\n"


def is_within_limits(client: str, found: list[Figures]) -> bool:
    """Return whether the members of kconsumer kept their limits; there are none for other clients."""
    figures = worst(found)
    return client == "confluent" or (figures["percent"] < MAX_PERCENT and figures["process"] < MAX_US)


def main() -> int:
    """Start a broker and measure each client."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--only", choices=CLIENTS, action="append", help="may be given more than once")
    parser.add_argument("--output", type=Path, help="also write all figures to this file as JSON")
    parser.add_argument("--member", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member is not None:
        member(args.member, args.servers, args.topic, args.seconds)
    from benchmarks.compare import report
    from benchmarks.compare.run import machine
    from benchmarks.data import DEFAULT_HEARTBEATS
    from support.brokers.kafka import KafkaCluster

    results: dict[str, Any] = {**report.new_results(machine(), 1), "members": {}}
    with KafkaCluster(properties=DEFAULT_HEARTBEATS) as kafka:
        for client in args.only or CLIENTS:
            topic = kafka.create_topic(f"idle-{client}", MEMBERS)
            results["members"][client] = measure(client, kafka.bootstrap_servers, topic, args.seconds)
    report.publish_table(results, f"worst of {MEMBERS} members", table(results["members"]), args.output)
    return 0 if all(is_within_limits(*item) for item in results["members"].items()) else 1


if __name__ == "__main__":
    sys.exit(main())
