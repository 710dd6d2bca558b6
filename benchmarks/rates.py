"""Measures CPU time per record at rates from 10 to 1,000,000 records per second, with 1 and with 50 partitions.

One broker, one producer process that keeps the rate (`compare/clients/rate_producer.py`), and one client at a time, the
only member of a new group, in its own process. Clients alternate at each rate. Prints a table in Markdown for each
number of partitions.

    python benchmarks/rates.py [--rate 10 --rate 1000] [--partitions 50] [--only kconsumer] [--seconds 8] [--rounds 1]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.compare import report
from benchmarks.compare.catalog import SCRIPTS, Reading, environment, run
from benchmarks.compare.run import machine
from benchmarks.data import DEFAULT_HEARTBEATS, compile_sources
from support.brokers.kafka import JVM_FULL, Kafka, KafkaCluster

RATES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
PARTITIONS = (1, 50)
REFERENCE = "kconsumer"
SETTLE_S = 15
TOLERANCE, TOLERANCE_RECORDS = 0.05, 10  # a client keeps up if it misses no more than the larger of both


class Client(NamedTuple):
    """A script of compare/clients, the words before and after its common arguments, and its warm-up time."""

    script: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    warm_up_s: float = 2.0


CLIENTS: dict[str, Client] = {
    "kconsumer": Client("rate.py", ("kconsumer",)),
    "kconsumer, threaded": Client("rate.py", ("kconsumer-threaded",)),
    "kconsumer, consumer protocol": Client("rate.py", ("kconsumer-consumer-protocol",)),
    "kconsumer, asyncio": Client("async_rate.py", ("kconsumer",)),
    "confluent": Client("rate.py", ("confluent-single",)),
    "confluent, consume(1000)": Client("rate.py", ("confluent",)),
    "aiokafka": Client("async_rate.py", ("aiokafka",)),
    "kafka-python": Client("rate.py", ("kafka-python",)),
    "Java": Client("java_tool.py", (), ("classic", "rate"), 6.0),
}

Readings = dict[str, list[Reading]]


class Cell(NamedTuple):
    """All readings at one rate, with one number of partitions."""

    partitions: int
    rate: int
    readings: Readings


class Load:
    """Writes records at a rate during a `with` block (rate_producer.py)."""

    def __init__(self, kafka: Kafka, topic: str, partitions: int, rate: int) -> None:
        self._command = [sys.executable, str(SCRIPTS / "rate_producer.py"), kafka.bootstrap_servers, topic]
        self._command += [str(partitions), str(rate)]

    def __enter__(self) -> Load:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, env=environment(), stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, which ends it, and waits for it
            pass

    def settle(self) -> None:
        """Wait until the broker has time for all records. It is slower until its code is compiled."""
        for _ in range(SETTLE_S):
            self.counts()
            time.sleep(1.0)
            if not self.counts()[1]:
                return
        print("    the broker is too slow for this rate", file=sys.stderr, flush=True)

    def counts(self) -> tuple[int, int]:
        """Return the records written and dropped since the last call. Raises RuntimeError if the producer ended."""
        self._stdin.write("\n")
        self._stdin.flush()
        line = self._stdout.readline().split()
        if len(line) != 2:
            raise RuntimeError("the producer ended")
        return int(line[0]), int(line[1])


def measure(
    clients: list[str], partitions: Iterable[int], rates: Iterable[int], seconds: float, rounds: int
) -> list[Cell]:
    """Return a cell for each rate and number of partitions."""
    cells = []
    with KafkaCluster(jvm=JVM_FULL, properties=DEFAULT_HEARTBEATS) as kafka:
        for count in partitions:
            for rate in rates:
                cells.append(Cell(count, rate, measure_cell(kafka, count, rate, clients, seconds, rounds)))
    return cells


def measure_cell(kafka: Kafka, partitions: int, rate: int, clients: list[str], seconds: float, rounds: int) -> Readings:
    """Return the readings at one rate. The order of the clients rotates from round to round."""
    topic = kafka.create_topic(f"rate-{uuid.uuid4().hex[:6]}", partitions)
    readings: Readings = {}
    with Load(kafka, topic, partitions, rate) as load:
        load.settle()
        for turn in range(rounds):
            shift = turn % len(clients)
            for client in clients[shift:] + clients[:shift]:
                load.counts()
                take(readings, client, kafka, topic, rate, seconds)
                written, dropped = load.counts()
                if dropped:
                    print(f"    {written} records written, {dropped} dropped", file=sys.stderr, flush=True)
    kafka.delete_topic(topic)
    return readings


def take(readings: Readings, client: str, kafka: Kafka, topic: str, rate: int, seconds: float) -> None:
    """Take one more reading. A client that fails is reported on stderr and omitted."""
    chosen = CLIENTS[client]
    group = f"rates-{uuid.uuid4().hex[:8]}"
    common = (kafka.bootstrap_servers, topic, group, str(seconds), str(chosen.warm_up_s))
    try:
        found = run(chosen.script, *chosen.before, *common, *chosen.after)
    except RuntimeError as error:
        print(f"  {rate}/s: {client}: {error}", file=sys.stderr, flush=True)
        return
    readings.setdefault(client, []).append(found)
    lacking = "" if kept_up(found, rate) else f", only {found['records'] / found['seconds']:.0f}/s"
    print(f"  {rate}/s: {client} {microseconds(found):.2f} us per record{lacking}", file=sys.stderr, flush=True)


def microseconds(reading: Reading) -> float:
    """Return CPU time per record."""
    return float(reading["cpu_seconds"]) * 1e6 / max(int(reading["records"]), 1)


def kept_up(reading: Reading, rate: int) -> bool:
    """Return whether the client has read as many records as were due, neither fewer nor a backlog."""
    due = rate * reading["seconds"]
    return bool(abs(reading["records"] - due) <= max(TOLERANCE * due, TOLERANCE_RECORDS))


def best(readings: list[Reading], rate: int) -> Reading:
    """Return the reading with the least CPU time, of those that kept up if there are any."""
    return min(readings, key=lambda reading: (not kept_up(reading, rate), microseconds(reading)))


def lines(cells: Iterable[Cell], partitions: int) -> dict[str, dict[int, Reading]]:
    """Return the best readings of each client by rate."""
    found: dict[str, dict[int, Reading]] = {}
    for cell in cells:
        if cell.partitions == partitions:
            for client, readings in cell.readings.items():
                found.setdefault(client, {})[cell.rate] = best(readings, cell.rate)
    return found


def figure(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(cells: list[Cell], partitions: int) -> str:
    """Return a table of CPU time per record. The rate of a client that did not keep up is in brackets."""
    rates = sorted({cell.rate for cell in cells if cell.partitions == partitions})
    rows = []
    for client, found in lines(cells, partitions).items():
        row = [client]
        for rate in rates:
            reading = found.get(rate)
            text = "" if reading is None else figure(microseconds(reading))
            if reading is not None and not kept_up(reading, rate):
                text += f" ({reading['records'] / reading['seconds']:,.0f}/s)"
            row.append(text)
        rows.append([*row, str(next(iter(found.values()))["version"])])
    word = "1 partition" if partitions == 1 else f"{partitions} partitions"
    heads = ["client", *(f"{rate:,}/s" for rate in rates), "version"]
    return f"**CPU time per record, microseconds, {word}**\n\n{report.table(heads, rows)}"


def tables(results: dict[str, Any]) -> str:
    """Return all tables of a run."""
    cells = [Cell(**cell) for cell in results["cells"]]
    counts = sorted({cell.partitions for cell in cells})
    return "\n".join([report.place_line(results) + ".\n", *(table(cells, count) for count in counts)])


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rates, two seconds each, only to show that it runs")
    parser.add_argument("--rate", type=int, action="append", help="records per second (repeatable; default: all)")
    parser.add_argument("--partitions", type=int, action="append", help="repeatable; default: 1 and 50")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="measure only this client (repeatable)")
    parser.add_argument("--seconds", type=float, help="time of each measurement (default 8, 2 when quick)")
    parser.add_argument("--rounds", type=int, default=1, help="readings per client (default 1)")
    parser.add_argument("--output", type=Path, help="also write all figures to this file as JSON")
    return parser.parse_args()


def main() -> None:
    """Measure, and print the tables."""
    options = arguments()
    results = report.new_results(machine(), options.rounds)
    compile_sources()
    clients = options.only or list(CLIENTS)
    rates = options.rate or ((100, 10_000) if options.quick else RATES)
    seconds = options.seconds or (2.0 if options.quick else 8.0)
    cells = measure(clients, options.partitions or PARTITIONS, rates, seconds, options.rounds)
    results["cells"] = [cell._asdict() for cell in cells]
    print(tables(results))
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
