"""Compare consumers on the same topics of the same broker in one run.

Every client is a process of its own, started anew for each reading; clients alternate, so that whatever slows the
machine for a while slows all of them; of several rounds the best counts.  Prints a table per topic and, for full
runs, writes benchmarks/results/<date>.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.data import CORPORA, PARTITIONS, Corpus, load  # noqa: E402  # the path is set above
from support.kafka import JVM_FULL, Kafka, KafkaCluster  # noqa: E402

CLIENTS: dict[str, tuple[str, ...]] = {
    "bare socket": ("bare_socket.py",),
    "kconsumer": ("kconsumer_poll.py",),
    "Java warm": ("java_tool.py", "warm"),
    "Java": ("java_tool.py",),
    "confluent tuned": ("confluent_consume.py", "tuned"),
    "confluent": ("confluent_consume.py",),
    "aiokafka": ("aiokafka_getmany.py",),
    "kafka-python": ("kafka_python_poll.py",),
}
REFERENCE = "kconsumer"


def read_once(client: str, kafka: Kafka, topic: str, corpus: Corpus) -> dict[str, Any]:
    """Run one client over one topic and give what it measured."""
    script, *extra = CLIENTS[client]
    arguments = [kafka.bootstrap_servers, topic, str(corpus.records), str(PARTITIONS), *extra]
    clients = Path(__file__).parent / "clients"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, str(clients / script), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise SystemExit(f"{client} failed on {topic} (see above)")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(kafka: Kafka, corpus: Corpus, clients: list[str], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """All readings of one topic by client; the first client of a round changes from round to round."""
    topic = load(kafka, corpus)
    readings: dict[str, list[dict[str, Any]]] = {client: [] for client in clients}
    read_once(clients[0], kafka, topic, corpus)  # brings the topic into the page cache for all
    for turn in range(rounds):
        shift = turn % len(clients)
        for client in clients[shift:] + clients[:shift]:
            readings[client].append(read_once(client, kafka, topic, corpus))
            print(f"  {corpus.name} round {turn + 1}: {client} {ns(readings[client][-1]):.0f} ns", file=sys.stderr)
    return readings


def ns(reading: dict[str, Any]) -> float:
    """Nanoseconds per record."""
    return float(reading["seconds"]) * 1e9 / int(reading["records"])


def best(readings: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest reading."""
    return min(readings, key=ns)


def table(corpus: Corpus, readings: dict[str, list[dict[str, Any]]]) -> str:
    """The best of each client, fastest first, and how many times the reference's time it took."""
    unit = ns(best(readings[REFERENCE])) if REFERENCE in readings else None
    lines = [
        f"{corpus.records:,} records of {corpus.value_bytes} B, {corpus.compression}, {PARTITIONS} partitions",
        "",
        f"| client | ns/record | times {REFERENCE} | MB/s of values | CPU ns/record | peak RSS MB | version |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for client, found in sorted(readings.items(), key=lambda item: ns(best(item[1]))):
        top = best(found)
        ratio = f"{ns(top) / unit:.2f}" if unit else ""
        rate = corpus.value_bytes * 1000 / ns(top)
        cpu = top["cpu_seconds"] * 1e9 / top["records"]
        row = (
            client,
            f"{ns(top):.0f}",
            ratio,
            f"{rate:.0f}",
            f"{cpu:.0f}",
            f"{top['peak_rss_mb']:.0f}",
            top["version"],
        )
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines) + "\n"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200,000 records and one round: shows only that it runs")
    parser.add_argument("--rounds", type=int, help="readings per client and topic (default 5, 1 when quick)")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="compare only this client (repeatable)")
    parser.add_argument("--corpus", action="append", choices=[c.name for c in CORPORA], help="only this topic")
    parser.add_argument(
        "--output", type=Path, help="the JSON file (default benchmarks/results/<date>.json, none if quick)"
    )
    return parser.parse_args()


def main() -> None:
    """Start a broker, fill the topics, compare, print, and keep the figures."""
    options = arguments()
    clients = options.only or list(CLIENTS)
    rounds = options.rounds or (1 if options.quick else 5)
    corpora = [c for c in CORPORA if not options.corpus or c.name in options.corpus]
    today = datetime.date.today().isoformat()
    results = {"date": today, "machine": machine(), "rounds": rounds, "topics": {}}
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        for corpus in [corpus.quick() for corpus in corpora] if options.quick else corpora:
            readings = compare(kafka, corpus, clients, rounds)
            results["topics"][corpus.name] = {"records": corpus.records, "readings": readings}
            print(table(corpus, readings), flush=True)
            kafka.delete_topic(f"bench-{corpus.name}")
    output = options.output or (None if options.quick else ROOT / "benchmarks" / "results" / f"{today}.json")
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(results, indent=1) + "\n")
        print(f"written to {output}")


if __name__ == "__main__":
    main()
