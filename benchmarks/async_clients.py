"""Compares clients for asyncio in one run: kconsumer's AsyncConsumer, aiokafka, and confluent-kafka's AIOConsumer.

Measures reading in batches and record by record (beside kconsumer's synchronous consumer with the threaded engine), the
latency of single records, idle consumers, and many consumers in one event loop. Each reading is a new process, and
clients alternate. Prints tables in Markdown.

    python benchmarks/async_clients.py [--quick] [--rounds 3] [--output FILE.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.compare import report
from benchmarks.compare.catalog import CLIENTS, LIMITS, Reading, run
from benchmarks.compare.run import machine
from benchmarks.data import CORPORA, PARTITIONS, Corpus, compile_sources, load
from benchmarks.latency import RATE, Pulse, percentile
from support.brokers.kafka import JVM_FULL, Kafka, KafkaCluster

READ = "async_read.py"
REFERENCE = "kconsumer-blocking, batches"
TOPICS = ("100B", "1KB")
# Client -> the share of the topic that it reads: slow clients read less.
SHARES = {"kconsumer-blocking": 1, "kconsumer": 1, "aiokafka": 5, "confluent": 10}
STYLES = {"batches": 1, "records": 2}  # reading record by record is slower: a smaller share
CONFLUENT_RECORDS = 10  # each poll() of a single record is a task of a thread pool: a much smaller share
LEAST_RECORDS = 100_000  # a client may return all of less at once, and what it returns first is not counted
CONSUMERS = 100
ONE = "1 consumer"
RECORDS_PER_CONSUMER = 100_000
PARTS = ("throughput", "many", "latency", "idle")
IDLE = (("default options", ()), ("fetch_max_wait_ms=5000", ("fetch_max_wait_ms=5000",)))

Readings = dict[str, list[Reading]]


def throughput(kafka: Kafka, topic: str, corpus: Corpus, rounds: int) -> Readings:
    """Return readings by client and style, and of the bare sockets, in rounds."""
    readings: Readings = {}
    records = corpus.records
    for _ in range(rounds):
        for limit in LIMITS:
            chosen = (kafka.bootstrap_servers, topic, str(records), str(PARTITIONS), *CLIENTS[limit].words)
            take(readings, limit, CLIENTS[limit].script, *chosen, *corpus.words)
        for style, fraction in STYLES.items():
            for client, share in SHARES.items():
                part = share * fraction * (CONFLUENT_RECORDS if (client, style) == ("confluent", "records") else 1)
                words = (
                    kafka.bootstrap_servers,
                    topic,
                    str(max(records // part, LEAST_RECORDS)),
                    str(PARTITIONS),
                    client,
                    style,
                )
                take(readings, f"{client}, {style}", READ, *words)
    return readings


def many(kafka: Kafka, topic: str, records: int, rounds: int) -> Readings:
    """Return readings of one consumer, and of many consumers that read at the same time in one event loop.

    One consumer reads the whole topic, or one partition. Each of many reads a part of one partition. A response has at
    most 1 MB of each partition, so one consumer of one partition gets as many responses per record as each of many.
    """
    readings: Readings = {}
    cases = {
        ONE: (records, PARTITIONS, 1),
        "1 consumer of 1 partition": (records // PARTITIONS // 2, 1, 1),  # partitions differ in size
        f"{CONSUMERS} consumers": (RECORDS_PER_CONSUMER * CONSUMERS, PARTITIONS, CONSUMERS),
    }
    for _ in range(rounds):
        for name, (total, partitions, count) in cases.items():
            words = (kafka.bootstrap_servers, topic, str(total), str(partitions), "kconsumer", "batches")
            take(readings, name, READ, *words, *([str(count)] if count > 1 else []))
    return readings


def latency(kafka: Kafka, rounds: int, records: int) -> Readings:
    """Return the delays of single records by client."""
    readings: Readings = {}
    topic = kafka.create_topic("latency")
    with Pulse(kafka, topic, 1, RATE):
        for _ in range(rounds):
            for client in SHARES:
                group = f"latency-{uuid.uuid4().hex[:8]}"
                take(
                    readings, client, "async_delay.py", client, kafka.bootstrap_servers, topic, group, str(records), "1"
                )
    return readings


def idle(kafka: Kafka, seconds: float, counts: tuple[int, ...]) -> Readings:
    """Return the cost of consumers that poll and get no records."""
    readings: Readings = {}
    topic = kafka.create_topic("idle")
    for count in counts:
        for name, words in IDLE:
            arguments = (kafka.bootstrap_servers, topic, str(count), str(seconds), *words)
            take(readings, f"{count} consumers, {name}", "async_idle.py", *arguments)
    return readings


def take(readings: Readings, name: str, script: str, *arguments: str) -> None:
    """Take one more reading. A client that fails is reported on stderr and omitted."""
    try:
        readings.setdefault(name, []).append(run(script, *arguments))
    except RuntimeError as error:
        print(f"  {name}: {error}", file=sys.stderr, flush=True)
        return
    print(f"  {name}", file=sys.stderr, flush=True)


def speed_table(readings: Readings, reference: str) -> str:
    """Return a table of the best readings: time and CPU time per record, and the speed relative to `reference`."""
    unit = min(map(report.ns, readings[reference]))
    rows = []
    for name, found in readings.items():
        best = min(map(report.ns, found))
        cpu = min(reading["cpu_seconds"] / reading["records"] * 1e9 for reading in found)
        rows.append([name, f"{best:.0f}", f"{cpu:.0f}", f"{unit / best:.2f}", str(found[0]["version"])])
    return report.table(["client", "ns/record", "CPU ns/record", f"speed, {reference} = 1", "version"], rows)


def latency_table(readings: Readings) -> str:
    """Return a table of the delays of all readings of each client together."""
    rows = []
    for name, found in readings.items():
        delays = [us for reading in found for us in reading["us"]]
        cpu = min(reading["cpu_seconds"] * 1e6 / len(reading["us"]) for reading in found)
        best = min(percentile(reading["us"], 50) for reading in found)
        row = [name, str(percentile(delays, 50)), str(best), str(percentile(delays, 99)), f"{cpu:.0f}"]
        rows.append(row)
    return report.table(["client", "p50 us", "best round's p50", "p99 us", "CPU us/record"], rows)


def idle_table(readings: Readings) -> str:
    """Return a table of the costs of idle consumers."""
    rows = [
        [name, f"{found[0]['percent']:.1f}", f"{found[0]['switches']:.0f}", f"{found[0]['kb_per_consumer']:.0f}"]
        for name, found in readings.items()
    ]
    return report.table(["idle", "CPU % of a core", "switches/s", "KiB per consumer"], rows)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small part of everything, only to show that it runs")
    parser.add_argument("--rounds", type=int, help="readings per client (default 3, 1 when quick)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="the tables (default: all)")
    parser.add_argument("--output", type=Path, help="also write all figures to this file as JSON")
    return parser.parse_args()


def measure_reading(kafka: Kafka, results: dict[str, Any], parts: Sequence[str], rounds: int, *, quick: bool) -> None:
    """Measure the parts that read whole topics, and print their tables."""
    for corpus in CORPORA:
        if corpus.name not in TOPICS:
            continue
        part = corpus.quick() if quick else replace(corpus, records=min(corpus.records, 3_000_000))
        topic = load(kafka, part)
        if "throughput" in parts:
            found = results[corpus.name] = throughput(kafka, topic, part, rounds)
            print(f"\n{part.title}\n\n{speed_table(found, REFERENCE)}", flush=True)
        if "many" in parts and corpus.name == TOPICS[0] and not quick:
            results["many"] = many(kafka, topic, part.records, rounds)
            print(f"\n{speed_table(results['many'], ONE)}", flush=True)
        kafka.delete_topic(topic)


def main() -> None:
    """Measure, and print the tables."""
    options = arguments()
    rounds = options.rounds or (1 if options.quick else 3)
    results = report.new_results(machine(), rounds)
    compile_sources()
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        if {"throughput", "many"} & set(options.only):
            measure_reading(kafka, results, options.only, rounds, quick=options.quick)
        if "latency" in options.only:
            results["latency"] = latency(kafka, rounds, 50 if options.quick else 600)
            print(f"\n{latency_table(results['latency'])}", flush=True)
        if "idle" in options.only:
            results["idle"] = idle(kafka, 3 if options.quick else 15, (10,) if options.quick else (100, 1000))
            print(f"\n{idle_table(results['idle'])}", flush=True)
    if options.output:
        options.output.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
