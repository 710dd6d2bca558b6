"""Measures the latency of a record: from the call of its producer to the return of `poll`, on an idle topic.

One broker, one producer that writes 200 single records per second (`compare/clients/pulse.py`), and one client at a
time, each in its own process. Clients alternate, and the first seconds of each are not counted. Prints a table in
Markdown.

    python benchmarks/latency.py [--quick] [--rounds 3] [--records 600] [--only kconsumer] [--output FILE.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.compare import report
from benchmarks.compare.catalog import SCRIPTS, Reading, run
from benchmarks.compare.run import machine
from benchmarks.data import DEFAULT_HEARTBEATS, compile_sources
from support.brokers.kafka import JVM_FULL, Kafka, KafkaCluster

RATE = 200
REFERENCE = "kconsumer"
BROKER = "the broker's acknowledgement"


@dataclass(frozen=True)
class Client:
    """A script of compare/clients, the words before and after its common arguments, and its warm-up time."""

    script: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    warm_up_s: float = 1.0


JVM_WARM_UP_S = 5.0  # its compiler needs longer than Python clients

CLIENTS: dict[str, Client] = {
    "bare socket": Client("delay.py", ("bare",)),
    "bare socket, next fetch first": Client("delay.py", ("bare-ahead",)),
    "kconsumer": Client("delay.py", ("kconsumer",)),
    "kconsumer, threaded": Client("delay.py", ("kconsumer-threaded",)),
    "kconsumer, consumer protocol": Client("delay.py", ("kconsumer-consumer-protocol",)),
    "Java": Client("java_tool.py", (), ("classic", "delay"), JVM_WARM_UP_S),
    "Java, consumer protocol": Client("java_tool.py", (), ("consumer", "delay"), JVM_WARM_UP_S),
    "confluent": Client("delay.py", ("confluent",)),
    "confluent, consumer protocol": Client("delay.py", ("confluent-consumer-protocol",)),
    "aiokafka": Client("delay.py", ("aiokafka",)),
}


class Pulse:
    """Writes records at a steady rate during a `with` block (pulse.py). Then `delays` has the acknowledgements (us)."""

    def __init__(self, kafka: Kafka, topic: str, partitions: int, rate: float) -> None:
        self._command = [sys.executable, str(SCRIPTS / "pulse.py"), kafka.bootstrap_servers, topic]
        self._command += [str(partitions), str(rate)]
        self.delays: list[int] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        output, _errors = self._process.communicate()  # closes its input, which ends it
        if self._process.returncode:
            raise RuntimeError("the producer failed")
        self.delays = json.loads(output)["us"]


def take(client: str, kafka: Kafka, topic: str, records: int) -> Reading:
    """Take one reading of a client."""
    chosen = CLIENTS[client]
    group = f"latency-{uuid.uuid4().hex[:8]}"
    common = (kafka.bootstrap_servers, topic, group, str(records), str(chosen.warm_up_s))
    found = run(chosen.script, *chosen.before, *common, *chosen.after)
    print(f"  {client}: p50 {percentile(found['us'], 50)} us", file=sys.stderr, flush=True)
    return found


def percentile(values: list[int], share: float) -> int:
    """Return the value that `share` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


def measure(clients: list[str], rounds: int, records: int) -> dict[str, list[Reading]]:
    """Return all readings by client. The order of the clients rotates from round to round."""
    readings: dict[str, list[Reading]] = {client: [] for client in clients}
    with KafkaCluster(jvm=JVM_FULL, properties=DEFAULT_HEARTBEATS) as kafka:
        topic = kafka.create_topic("latency")
        with Pulse(kafka, topic, 1, RATE) as pulse:
            take(REFERENCE, kafka, topic, records)  # warms the broker up, and creates __consumer_offsets
            for turn in range(rounds):
                shift = turn % len(clients)
                for client in clients[shift:] + clients[:shift]:
                    readings[client].append(take(client, kafka, topic, records))
    delays = pulse.delays[::10]  # enough for percentiles
    readings[BROKER] = [{"us": delays, "seconds": 0.0, "cpu_seconds": 0.0, "version": "acks=1"}]
    return readings


def table(readings: dict[str, list[Reading]]) -> str:
    """Return a table of all readings of each client together, ordered by median."""
    together = {client: [us for reading in found for us in reading["us"]] for client, found in readings.items()}
    unit = percentile(together[REFERENCE], 50) if REFERENCE in together else None
    rows = []
    for client, values in sorted(together.items(), key=lambda item: percentile(item[1], 50)):
        found = readings[client]
        middle = percentile(values, 50)
        cpu = sum(reading["cpu_seconds"] for reading in found) * 1e6 / len(values)
        rows.append(
            [
                client,
                str(middle),
                f"{middle / unit:.2f}" if unit else "",
                str(min(percentile(reading["us"], 50) for reading in found)),
                str(percentile(values, 99)),
                f"{cpu:.0f}" if cpu else "",
                str(found[0]["version"]),
            ]
        )
    heads = [
        "client",
        "p50 us",
        f"times {REFERENCE}",
        "best round's p50",
        "p99 us",
        "CPU us/record",
        "version",
    ]
    return report.table(heads, rows)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="take a few records of each, only to show that it runs")
    parser.add_argument("--rounds", type=int, help="readings per client (default 3, 1 when quick)")
    parser.add_argument("--records", type=int, help="records per reading (default 600, 50 when quick)")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="measure only this client (repeatable)")
    parser.add_argument("--output", type=Path, help="also write all figures to this file as JSON")
    return parser.parse_args()


def main() -> None:
    """Measure all clients and print the table."""
    options = arguments()
    rounds = options.rounds or (1 if options.quick else 3)
    records = options.records or (50 if options.quick else 600)
    results = report.new_results(machine(), rounds)
    compile_sources()
    results["readings"] = measure(options.only or list(CLIENTS), rounds, records)
    report.publish_table(
        results, f"{rounds} readings of {records} records.", table(results["readings"]), options.output
    )


if __name__ == "__main__":
    main()
