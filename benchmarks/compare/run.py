"""Compares consumers on the same topics of the same broker in one run.

Every reading is a new process. Clients alternate, so that other work on the machine slows all of them, and the best of
several rounds counts. Prints a table per topic and scenario.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.compare import report, scenarios
from benchmarks.compare.catalog import (
    CA,
    CLIENTS,
    ENGINES,
    REFERENCE,
    TLS_LISTENER,
    Reading,
    read_once,
    reads,
)
from benchmarks.data import CORPORA, Corpus, compile_sources, load
from support.brokers.certificates import Authority, broker_properties
from support.brokers.kafka import JVM_FULL, KafkaCluster

SETTLING_READINGS = 2


def compare(
    kafka: KafkaCluster, topic: str, corpus: Corpus, clients: list[str], rounds: int
) -> dict[str, list[Reading]]:
    """Return all readings of one topic by client. The order of the clients rotates from round to round."""
    clients = [client for client in clients if reads(client, corpus)]
    readings: dict[str, list[Reading]] = {}
    if clients:
        settle(kafka, topic, corpus)
    for turn in range(rounds):
        shift = turn % max(len(clients), 1)
        for client in clients[shift:] + clients[:shift]:
            if turn == 0 or CLIENTS[client].share == 1:
                take(readings, client, kafka, topic, corpus)
    return readings


def settle(kafka: KafkaCluster, topic: str, corpus: Corpus) -> None:
    """Wait until disk and broker are idle. Otherwise the first readings are slower: writing a new topic to disk takes a
    core for seconds, and the broker's first passes over a topic cost two to four times as much as later ones."""
    os.sync()
    for _ in range(SETTLING_READINGS):
        take({}, REFERENCE, kafka, topic, corpus)


@contextmanager
def broker(over_tls: bool) -> Iterator[KafkaCluster]:
    """Run one broker, with a TLS listener on request."""
    if not over_tls:
        with KafkaCluster(jvm=JVM_FULL) as kafka:
            yield kafka
        return
    with tempfile.TemporaryDirectory() as name:
        folder, authority = Path(name), Authority()
        os.environ[CA] = authority.write(folder / "ca.pem")
        properties = broker_properties(folder, authority, authority.issue(), (TLS_LISTENER,))
        with KafkaCluster(jvm=JVM_FULL, properties=properties, listeners={TLS_LISTENER: "SSL"}) as kafka:
            yield kafka


def take(readings: dict[str, list[Reading]], client: str, kafka: KafkaCluster, topic: str, corpus: Corpus) -> None:
    """Take one more reading. A client that fails is reported on stderr and omitted."""
    try:
        found = read_once(client, kafka, topic, corpus)
    except RuntimeError as error:
        print(f"  {client}: {error}", file=sys.stderr, flush=True)
        return
    readings.setdefault(client, []).append(found)
    print(f"  {corpus.name}: {client} {report.ns(found):.0f} ns", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Describe the machine."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small part of everything, only to show that it runs")
    parser.add_argument("--tls", action="store_true", help="over TLS: topics only, and clients with TLS support here")
    parser.add_argument("--rounds", type=int, help="readings per client and topic (default 2, 1 when quick)")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="compare only this client (repeatable)")
    engines = "only kconsumer on both engines and with both protocols, the limits, and the Java client"
    parser.add_argument("--engines", dest="only", action="store_const", const=list(ENGINES), help=engines)
    parser.add_argument(
        "--corpus", action="append", choices=[c.name for c in CORPORA], help="read only this topic (repeatable)"
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=[*scenarios.SCENARIOS, "none"],
        help="run only this scenario (repeatable)",
    )
    parser.add_argument("--output", type=Path, help="also write all readings to this file as JSON")
    parser.add_argument("--plot", type=Path, help="also write the plot to this file (.svg or .png)")
    return parser.parse_args()


def main() -> None:
    """Start a broker, fill the topics, compare the clients, print and store the figures."""
    options = arguments()
    rounds = options.rounds or (1 if options.quick else 2)
    corpora = [c for c in CORPORA if not options.corpus or c.name in options.corpus]
    chosen = options.scenario or ([] if options.corpus or options.only or options.tls else scenarios.SCENARIOS)
    size = scenarios.QUICK if options.quick else scenarios.FULL
    results: dict[str, Any] = {**report.new_results(machine(), rounds), "topics": {}, "scenarios": {}}
    compile_sources()
    with broker(options.tls) as kafka:
        for corpus in [corpus.quick() for corpus in corpora] if options.quick else corpora:
            topic = load(kafka, corpus)
            readings = compare(kafka, topic, corpus, options.only or list(CLIENTS), rounds)
            found = {**vars(corpus), "title": corpus.title, "readings": readings}
            results["topics"][corpus.name] = found
            print(report.topic_table(found), flush=True)
            if corpus is corpora[0] or corpus.name == corpora[0].name:
                for scenario in [name for name in chosen if name != "none"]:
                    measured = scenarios.measure(scenario, kafka, topic, size)
                    results["scenarios"][scenario] = measured
                    print(report.scenario_table(scenario, measured), flush=True)
            kafka.delete_topic(topic)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    if options.plot:
        from benchmarks.compare.plot import draw

        draw(results, options.plot)


if __name__ == "__main__":
    main()
