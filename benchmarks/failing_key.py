"""Compares `kconsumer.parallel` with Confluent's parallel-consumer for Java, while one key always fails.

    python benchmarks/failing_key.py [--records 3000] [--rounds 3]

One Kafka serves a topic of four partitions with this number of records each. All records of the first partition have
one key, whose handler always raises, and is called again after a second. Each other record has a key of its own, and a
handler that does nothing. Each reading is the time from the first call of a handler until all other records are
processed, by 16 threads, in a new process and a new group. The clients alternate. A reading that is not complete after
a minute is infinite.

Prints the median of each, in seconds. Exits with 1 if kconsumer is slower.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "assignors")]

VERSION = "0.5.3.3"
SOURCE = ROOT / "benchmarks" / "compare" / "clients" / "FailingKey.java"
PARTITIONS, BATCH, WORKERS, FAILING = 4, 100, 16, b"failing"
RETRY_S = 1.0
ORDERS = ("key", "partition")
TIMEOUT_S = 60


def measure(servers: str, order: str, others: int) -> None:
    """Process the topic by kconsumer in this process, and print the seconds."""
    from kconsumer import Consumer, ConsumerRecord
    from kconsumer.parallel import Processor, Retry

    began: list[float] = []
    processed, lock = [0], threading.Lock()

    def handle(record: ConsumerRecord) -> None:
        if not began:
            began.append(time.perf_counter())
        if record.key == FAILING:
            raise ValueError
        with lock:
            processed[0] += 1
            if processed[0] == others:
                print(time.perf_counter() - began[0], flush=True)
                processor.stop()

    retry = Retry(attempts=1_000_000, backoff_s=RETRY_S, max_backoff_s=RETRY_S)
    group = f"failing-{os.getpid()}-{time.time_ns()}"
    options: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer("failing", bootstrap_servers=servers, **options) as consumer:
        processor = Processor(consumer, handle, workers=WORKERS, order=order, retry=retry)
        processor.run()


def compiled(folder: str) -> list[str]:
    """Returns the command that runs the Java program, without its arguments. Maven fetches its jars."""
    from support.brokers.kafka_jars import LOGGING, OTHER_LOGGING, Artifact, program, resolve

    core = Artifact("io.confluent.parallelconsumer", "parallel-consumer-core", VERSION, OTHER_LOGGING)
    path = os.pathsep.join([folder, *map(str, resolve(f"parallel-consumer-{VERSION}", core, LOGGING))])
    subprocess.run([program("javac"), "-cp", path, "-d", folder, str(SOURCE)], check=True)
    return [program("java"), "-cp", path, SOURCE.stem]


def reading(command: list[str]) -> float:
    """Returns the seconds that a process prints."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return math.inf
    return float(done.stdout.split()[-1])


def compare(servers: str, others: int, rounds: int, java: list[str]) -> dict[tuple[str, str], float]:
    """Returns the median of the readings of each client, for each order."""
    readings: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for order in ORDERS:
            own = [sys.executable, __file__, "--servers", servers, "--order", order, "--others", str(others)]
            group = f"failing-java-{order}-{number}-{time.time_ns()}"
            words = ["failing", group, order, str(WORKERS), str(others), FAILING.decode(), f"{RETRY_S * 1000:.0f}"]
            for client, command in (("kconsumer", own), ("java", [*java, servers, *words])):
                readings.setdefault((client, order), []).append(reading(command))
    print(json.dumps({" ".join(key): values for key, values in readings.items()}))
    return {key: statistics.median(values) for key, values in readings.items()}


def main() -> int:
    """Start a broker and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=3_000, help="in each partition, a multiple of 100")
    parser.add_argument("--rounds", type=int, default=3)
    for name, kind in (("servers", str), ("order", str), ("others", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.servers is not None:
        measure(args.servers, args.order, args.others)
        return 0
    from support.brokers.kafka import KafkaCluster

    with tempfile.TemporaryDirectory() as folder, KafkaCluster() as kafka:
        kafka.create_topic("failing", PARTITIONS)
        for begin in range(0, args.records, BATCH):  # in turn, so that no poll returns one partition alone
            for partition in range(PARTITIONS):
                keys = [b"key-%d" % n if partition else FAILING for n in range(begin, begin + BATCH)]
                kafka.produce("failing", [b"x"] * BATCH, partition=partition, keys=keys)
        found = compare(kafka.bootstrap_servers, (PARTITIONS - 1) * args.records, args.rounds, compiled(folder))
    print(f"{'order':10} {'kconsumer':>10} {'Java ' + VERSION:>13}  (s until all others are processed)")
    for order in ORDERS:
        print(f"{order:10} {found['kconsumer', order]:10.2f} {found['java', order]:13.2f}")
    return 0 if all(found["kconsumer", order] <= found["java", order] for order in ORDERS) else 1


if __name__ == "__main__":
    sys.exit(main())
