"""Measures the goals for few records, idle consumers and TLS, and prints a table: goal, measured, reached.

    python benchmarks/small.py                         # everything, about 50 minutes on an idle machine
    python benchmarks/small.py --goal calls --goal latency --rounds 5
    python benchmarks/small.py --quick                 # shows only that it runs

Each part starts its own broker and compares clients that take turns, as the benchmarks do from which the parts come.
The best of several rounds counts. Exits with 1 if a goal was not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "assignors"), str(ROOT / "benchmarks" / "micro")]

import calls
from operations import FETCH

from benchmarks import idle, latency, rates
from benchmarks.compare import report, scenarios
from benchmarks.compare.catalog import CA, Reading
from benchmarks.compare.run import broker, compare, machine, settle, take
from benchmarks.data import CORPORA, DEFAULT_HEARTBEATS, Corpus, compile_sources, load
from benchmarks.latency import percentile
from support.brokers.kafka import JVM_FULL, KafkaCluster

MAX_CALLS = 100
MAX_OF_BARE = 1.10  # p50 of kconsumer, relative to the bare socket
MAX_STEADY_PERCENT, MAX_IDLE_PERCENT = 3.0, 0.10
MAX_EMPTY_POLL_US = 0.8
MAX_TLS = {"kconsumer": 1.35, "kconsumer arrow": 1.6}  # relative to plaintext
MAX_TLS_DIFFERENCE = 0.10  # between the engines
MAX_FOUR_NS = 183.0
MAX_FIRST_MS = 60.0
THREADED = ", threaded"
ENGINES = {
    "kconsumer": "confluent",
    "kconsumer, threaded": "confluent",
    "kconsumer, consumer protocol": "confluent, consumer protocol",
}
"""Our engines, each with the client that it is compared with: confluent with the same protocol."""

Readings = dict[str, list[Reading]]


class Row(NamedTuple):
    """One line of the result."""

    goal: str
    target: str
    measured: str
    reached: bool


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    records: int  # of a reading of the latency
    seconds: float  # of a reading at one rate
    idle_seconds: float
    rates: tuple[int, ...] = rates.RATES
    scenarios: scenarios.Size = scenarios.FULL
    quick: bool = False


FULL = Size(rounds=3, records=600, seconds=8.0, idle_seconds=30.0)
QUICK = Size(1, 50, 1.0, 3.0, (100, 10_000), scenarios.QUICK, quick=True)


# --- what the readings say --------------------------------------------------------------------------------------------


def call_rows(counts: dict[str, int]) -> list[Row]:
    """Return the rows of the calls of one fetch cycle, by engine."""
    return [
        Row(f"calls per fetch cycle, {engine}", f"≤ {MAX_CALLS}", str(count), count <= MAX_CALLS)
        for engine, count in counts.items()
    ]


def latency_rows(readings: Readings) -> list[Row]:
    """Return the rows of CPU time, p50 and p99 of single records. The best round counts."""

    def share(client: str, percent: float) -> int:
        return min(percentile(reading["us"], percent) for reading in readings[client])

    def cpu(client: str) -> float:
        return min(reading["cpu_seconds"] * 1e6 / len(reading["us"]) for reading in readings[client])

    rows = []
    bare = share("bare socket", 50)
    for ours, peer in ENGINES.items():
        mine, its = cpu(ours), cpu(peer)
        rows.append(
            Row(f"CPU per record at 200/s, {ours}", f"≤ {its:.0f} us (confluent)", f"{mine:.0f} us", mine <= its)
        )
        mine, its = share(ours, 50), share(peer, 50)
        target = f"≤ {its} us (confluent), ≤ {bare * MAX_OF_BARE:.0f} us ({MAX_OF_BARE} x bare socket)"
        rows.append(Row(f"p50, {ours}", target, f"{mine} us", mine <= its and mine <= bare * MAX_OF_BARE))
        mine, its = share(ours, 99), share(peer, 99)
        rows.append(Row(f"p99, {ours}", f"≤ {its} us (confluent)", f"{mine} us", mine <= its))
    return rows


def rate_rows(cells: list[rates.Cell]) -> list[Row]:
    """Return the rows of CPU time per record at each rate: ours, and the best peer that kept up."""
    rows = []
    for cell in cells:
        found = {client: rates.best(readings, cell.rate) for client, readings in cell.readings.items()}
        peers = {
            client: rates.microseconds(reading)
            for client, reading in found.items()
            if not client.startswith(rates.REFERENCE) and rates.kept_up(reading, cell.rate)
        }
        best = min(peers, key=peers.__getitem__) if peers else ""
        target = f"< {rates.figure(peers[best])} us ({best})" if peers else "no peer keeps up"
        for client, reading in found.items():
            if client.startswith(rates.REFERENCE):
                mine, kept = rates.microseconds(reading), rates.kept_up(reading, cell.rate)
                text = f"{rates.figure(mine)} us" + ("" if kept else ", did not keep up")
                name = f"{cell.rate:,}/s, partitions: {cell.partitions}, {client}"
                rows.append(Row(name, target, text, kept and (not peers or mine < peers[best])))
    return rows


def steady_rows(readings: Readings) -> list[Row]:
    """Return the rows of many partitions with one record a second each."""
    rows = []
    for client in ("kconsumer", "kconsumer-threaded"):
        share, word = report.cpu_share(readings[client]), report.deviation(readings[client][0])
        text = f"{share:.1f} %" + (f", {word}" if word else "")
        count = readings[client][0]["partitions"]
        rows.append(
            Row(
                f"{count:,} partitions with a record a second, {client}",
                f"≤ {MAX_STEADY_PERCENT} %",
                text,
                share <= MAX_STEADY_PERCENT and not word,
            )
        )
    return rows


def idle_rows(rounds: dict[str, list[list[dict[str, dict[str, float]]]]]) -> list[Row]:
    """Return the rows of idle members and of empty polls: the worst member of the best round."""

    def best(client: str, part: str, key: str) -> float:
        return min(max(member[part][key] for member in members) for members in rounds[client])

    rows = []
    for engine in idle.ENGINES:
        percent, p50 = best(engine, "idle", "percent"), best(engine, "calls", "p50")
        rows.append(
            Row(
                f"idle member, {engine}", f"≤ {MAX_IDLE_PERCENT:.2f} %", f"{percent:.2f} %", percent <= MAX_IDLE_PERCENT
            )
        )
        rows.append(
            Row(f"poll(0) p50, {engine}", f"≤ {MAX_EMPTY_POLL_US} us", f"{p50:.2f} us", p50 <= MAX_EMPTY_POLL_US)
        )
    return rows


def tls_rows(plain: Readings, encrypted: Readings) -> list[Row]:
    """Return the rows of TLS with records of 100 B, relative to plaintext."""
    rows = []
    for client, limit in MAX_TLS.items():
        ns = [report.ns(report.best(encrypted[name])) for name in (client, client + THREADED)]
        for name, value in zip((client, client + THREADED), ns, strict=True):
            times = value / report.ns(report.best(plain[name]))
            rows.append(Row(f"TLS, 100 B, {name}", f"≤ {limit} x plaintext", f"{times:.2f} x", times <= limit))
        difference = max(ns) / min(ns) - 1
        limit_text = f"≤ {MAX_TLS_DIFFERENCE:.0%}"
        rows.append(
            Row(
                f"TLS, 100 B, {client}: difference of the engines",
                limit_text,
                f"{difference:.0%}",
                difference <= MAX_TLS_DIFFERENCE,
            )
        )
    return rows


def tls_peer_rows(encrypted: Readings) -> list[Row]:
    """Return the rows of TLS with records of 1 KB, beside confluent tuned."""
    its = report.ns(report.best(encrypted["confluent tuned"]))
    rows = []
    for name in ("kconsumer", "kconsumer" + THREADED):
        mine = report.ns(report.best(encrypted[name]))
        rows.append(Row(f"TLS, 1 KB, {name}", f"≤ {its:.0f} ns (confluent tuned)", f"{mine:.0f} ns", mine <= its))
    return rows


def four_rows(readings: Readings) -> list[Row]:
    """Return the row of four consumers in four threads."""
    ns = report.ns(report.best(readings["kconsumer"]))
    return [Row("four consumers in four threads", f"≤ {MAX_FOUR_NS:.0f} ns", f"{ns:.0f} ns", ns <= MAX_FOUR_NS)]


def first_rows(readings: Readings) -> list[Row]:
    """Return the row of the first record of a new group."""
    ms = report.median(readings["kconsumer"], "seconds") * 1000
    goal = "first record of a new group, with the import"
    return [Row(goal, f"≤ {MAX_FIRST_MS:.0f} ms", f"{ms:.0f} ms", ms <= MAX_FIRST_MS)]


# --- measuring --------------------------------------------------------------------------------------------------------


def measure_calls(_size: Size) -> tuple[Any, list[Row]]:
    """Count the calls of a fetch cycle of each engine."""
    counts = {engine: len(calls.count(FETCH, engine)) for engine in calls.ENGINES}
    return counts, call_rows(counts)


def measure_latency(size: Size) -> tuple[Any, list[Row]]:
    """Measure single records, as latency.py does."""
    clients = ["bare socket", *ENGINES, *dict.fromkeys(ENGINES.values())]
    readings = latency.measure(clients, size.rounds, size.records)
    return readings, latency_rows(readings)


def measure_rates(size: Size) -> tuple[Any, list[Row]]:
    """Measure all rates, as rates.py does."""
    cells = rates.measure(list(rates.CLIENTS), rates.PARTITIONS, size.rates, size.seconds, 1)
    return [cell._asdict() for cell in cells], rate_rows(cells)


def measure_steady(size: Size) -> tuple[Any, list[Row]]:
    """Measure many partitions, as the scenario `steady` of compare/run.py does."""
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        readings = scenarios.steady(kafka, size.scenarios)
    return readings, steady_rows(readings)


def measure_idle(size: Size) -> tuple[Any, list[Row]]:
    """Measure idle members, as idle.py does."""
    rounds: dict[str, list[Any]] = {client: [] for client in idle.CLIENTS}
    with KafkaCluster(properties=DEFAULT_HEARTBEATS) as kafka:
        for turn in range(size.rounds):
            for client in idle.CLIENTS:
                topic = kafka.create_topic(f"idle-{client}-{turn}", idle.MEMBERS)
                found = idle.measure(client, kafka.bootstrap_servers, topic, size.idle_seconds)
                idle.report(client, found)
                rounds[client].append(found)
    return rounds, idle_rows(rounds)


def measure_tls(size: Size) -> tuple[Any, list[Row]]:
    """Read two topics over TLS, and one of them in plaintext in the same rounds."""
    both = [name + engine for name in MAX_TLS for engine in ("", THREADED)]
    by_name = {corpus.name: corpus.quick() if size.quick else corpus for corpus in CORPORA}
    plain: Readings = {}
    encrypted: Readings = {}
    with broker(over_tls=True) as kafka:
        small = by_name["100B"]
        topic = load(kafka, small)
        settle(kafka, topic, small)
        for turn in range(size.rounds):
            for client in both[turn % len(both) :] + both[: turn % len(both)]:
                take(encrypted, client, kafka, topic, small)
                take_plain(plain, client, kafka, topic, small)
        kafka.delete_topic(topic)
        large = by_name["1KB"]
        topic = load(kafka, large)
        beside = compare(kafka, topic, large, ["kconsumer", "kconsumer" + THREADED, "confluent tuned"], size.rounds)
    del os.environ[CA]
    rows = [*tls_rows(plain, encrypted), *tls_peer_rows(beside)]
    return {"plaintext": plain, "100B": encrypted, "1KB": beside}, rows


def take_plain(readings: Readings, client: str, kafka: KafkaCluster, topic: str, corpus: Corpus) -> None:
    """Take a reading in plaintext from a broker that also has a listener for TLS."""
    authority = os.environ.pop(CA)
    try:
        take(readings, client, kafka, topic, corpus)
    finally:
        os.environ[CA] = authority


def measure_topic(scenario: str, to_rows: Callable[[Readings], list[Row]], size: Size) -> tuple[Any, list[Row]]:
    """Run a scenario that reads a topic of records of 100 B."""
    corpus = CORPORA[0].quick() if size.quick else CORPORA[0]
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        topic = load(kafka, corpus)
        settle(kafka, topic, corpus)
        readings = scenarios.measure(scenario, kafka, topic, size.scenarios)
    return readings, to_rows(readings)


PARTS: dict[str, Callable[[Size], tuple[Any, list[Row]]]] = {
    "calls": measure_calls,
    "latency": measure_latency,
    "rates": measure_rates,
    "steady": measure_steady,
    "idle": measure_idle,
    "tls": measure_tls,
    "four": lambda size: measure_topic("four", four_rows, size),
    "first": lambda size: measure_topic("first", first_rows, size),
}


def table(rows: list[Row]) -> str:
    """Return the table of the goals."""
    cells = [[row.goal, row.target, row.measured, "yes" if row.reached else "NO"] for row in rows]
    return report.table(["goal", "target", "measured", "reached"], cells)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goal", action="append", choices=PARTS, help="measure only this (repeatable)")
    parser.add_argument("--rounds", type=int, help="rounds of latency, idle and TLS (default 3, 1 when quick)")
    parser.add_argument("--seconds", type=float, help="time of each reading at a rate (default 8, 1 when quick)")
    parser.add_argument("--quick", action="store_true", help="a small part of everything, only to show that it runs")
    parser.add_argument("--output", type=Path, help="also write all readings to this file as JSON")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    size = size._replace(rounds=options.rounds or size.rounds, seconds=options.seconds or size.seconds)
    results = report.new_results(machine(), size.rounds)
    compile_sources()
    rows: list[Row] = []
    for part in options.goal or PARTS:
        print(f"{part}:", file=sys.stderr, flush=True)
        try:
            results[part], found = PARTS[part](size)
        except Exception as error:  # the other parts are measured, too
            traceback.print_exc()
            found = [Row(part, "", f"failed: {error!r}", reached=False)]
        for row in found:
            print(f"  {row.goal}: {row.measured}, {row.target}", file=sys.stderr, flush=True)
        rows += found
        if options.output:  # after each part: the last one may fail after an hour
            options.output.write_text(json.dumps(results) + "\n")
    print(f"{report.place_line(results)}; best of {size.rounds} rounds.\n\n{table(rows)}")
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
