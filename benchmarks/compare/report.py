"""Formats results as tables, for printing and for the README files, where they stand between two marks (publish.py)."""

from __future__ import annotations

import datetime
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PLOT = RESULTS / "compare.svg"
SUMMARY_RATES = (100, 10_000)
REFERENCE = "kconsumer"
TOLERANCE = 0.05  # allowed deviation from the rate of a steady load

# The columns of the table in README.md, and what the scenarios call each client.
SUMMARY = {
    "kconsumer, columns": ("kconsumer arrow",),
    "kconsumer": ("kconsumer",),
    "confluent-kafka": ("confluent",),
    "the same, tuned": ("confluent tuned", "confluent-tuned", "confluent, consume(1000)"),
    "aiokafka": ("aiokafka",),
    "kafka-python": ("kafka-python",),
    "Java": ("Java warm", "Java"),
}
# The clients of the table of topics in benchmarks/README.md.
OVERVIEW = (
    "bare socket",
    "kconsumer arrow",
    "kconsumer",
    "Java warm",
    "Java",
    "confluent tuned",
    "confluent",
    "aiokafka",
    "kafka-python",
)

Reading = dict[str, Any]
Readings = dict[str, list[Reading]]

SCENARIO_TITLES = {
    "first": "From importing the client to its first record, in a new group (ms; median)",
    "four": "Four consumers in one process (threads; ns/record of wall time, all together)",
    "steady": "Many partitions with one record a second each (CPU of the consumer, once it is warm)",
}


def ns(reading: Reading) -> float:
    """Return nanoseconds per record."""
    return float(reading["seconds"]) * 1e9 / int(reading["records"])


def best(readings: list[Reading]) -> Reading:
    """Return the fastest reading."""
    return min(readings, key=ns)


def median(readings: list[Reading], key: str) -> float:
    """Return the median of one value of the readings."""
    values = sorted(float(reading[key]) for reading in readings)
    return values[len(values) // 2]


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown. The first and the last column are text."""
    rule = ["---", *["---:"] * (len(heads) - 2), "---"]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *rows]) + "\n"


def new_results(machine: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return the fields that every run has."""
    return {"date": datetime.date.today().isoformat(), "machine": machine, "rounds": rounds}


def publish_table(results: dict[str, Any], title: str, text: str, output: Path | None) -> None:
    """Print the conditions and the table, and write all figures to a JSON file if one is given."""
    print(f"{place_line(results)}; {title}\n\n{text}")
    if output:
        output.write_text(json.dumps(results) + "\n")


def topic_table(topic: dict[str, Any]) -> str:
    """Return a table of the best reading of each client, with its ratio to the reference; the fastest comes first."""
    readings: Readings = topic["readings"]
    unit = ns(best(readings[REFERENCE])) if REFERENCE in readings else None
    rows = []
    for client, found in sorted(readings.items(), key=lambda item: ns(best(item[1]))):
        top = best(found)
        rows.append(
            [
                client,
                f"{ns(top):.0f}",
                f"{ns(top) / unit:.2f}" if unit else "",
                f"{topic['value_bytes'] * 1000 / ns(top):.0f}",
                f"{top['cpu_seconds'] * 1e9 / top['records']:.0f}",
                f"{top['peak_rss_mb']:.0f}",
                str(top["version"]),
            ]
        )
    heads = ["client", "ns/record", f"times {REFERENCE}", "MB/s of values", "CPU ns/record", "peak RSS MB", "version"]
    return f"**{topic['title']}**\n\n" + table(heads, rows)


def scenario_table(scenario: str, readings: Readings) -> str:
    """Return a table of the clients of a scenario, the best first."""
    heads, row, order = SCENARIO_COLUMNS[scenario]
    ordered = sorted(readings.items(), key=lambda item: order(item[1]))
    rows = [[client, *row(found), str(found[0]["version"])] for client, found in ordered]
    return f"**{SCENARIO_TITLES[scenario]}**\n\n" + table(["client", *heads, "version"], rows)


def _first(found: list[Reading]) -> list[str]:
    fastest = min(reading["seconds"] for reading in found)
    return [f"{median(found, 'seconds') * 1000:.0f}", f"{fastest * 1000:.0f}", f"{median(found, 'peak_rss_mb'):.0f}"]


def _four(found: list[Reading]) -> list[str]:
    top = best(found)
    return [f"{ns(top):.0f}", f"{top['cpu_seconds'] * 1e9 / top['records']:.0f}", f"{top['peak_rss_mb']:.0f}"]


def cpu_share(found: list[Reading]) -> float:
    """Return CPU time per second, in percent of one core."""
    return min(100 * reading["cpu_seconds"] / reading["seconds"] for reading in found)


def deviation(reading: Reading) -> str:
    """Describe how the load of a client deviated from one record per second and partition. Returns "" if it did not."""
    share = reading["records"] / reading["seconds"] / reading.get("partitions", math.nan)
    if share < 1 - TOLERANCE:
        return "did not keep up"
    return "had a backlog" if share > 1 + TOLERANCE else ""


def steady_order(found: list[Reading]) -> tuple[bool, float]:
    """Return a sort key. Clients under the requested load come first, because only their CPU times are comparable."""
    return bool(deviation(found[0])), cpu_share(found)


def _steady(found: list[Reading]) -> list[str]:
    top = found[0]
    per_record = top["cpu_seconds"] * 1e6 / max(top["records"], 1)
    rate = f"{top['records'] / top['seconds']:.0f}"
    word = deviation(top)
    rate += f", {word}" if word else ""
    return [f"{cpu_share(found):.1f} %", f"{per_record:.0f}", rate, f"{top['peak_rss_mb']:.0f}"]


Columns = tuple[list[str], Callable[[list[Reading]], list[str]], Callable[[list[Reading]], Any]]
SCENARIO_COLUMNS: dict[str, Columns] = {
    "first": (["median ms", "fastest ms", "peak RSS MB"], _first, lambda found: median(found, "seconds")),
    "four": (["ns/record", "CPU ns/record", "peak RSS MB"], _four, lambda found: ns(best(found))),
    "steady": (["CPU of one core", "CPU us/record", "records/s", "peak RSS MB"], _steady, steady_order),
}


def place_line(results: dict[str, Any]) -> str:
    """Return date, machine and versions of a run."""
    machine = results["machine"]
    return (
        f"{results['date']}, {machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel'].split('-')[0]},"
        f" Python {machine['python']}, Kafka 4.4.0 on the same machine"
    )


def all_tables(results: dict[str, Any]) -> str:
    """Return a table of all topics, and one of each scenario."""
    parts = ["**Whole topics, ns/record**\n\n" + overview(results["topics"])]
    parts += [scenario_table(name, found) for name, found in results.get("scenarios", {}).items() if found]
    return "\n".join(parts)


def overview(topics: dict[str, Any]) -> str:
    """Return a table with a row for each client: its best reading of each topic, with CPU time and memory at the first.

    The last column but one is the peak memory at any topic.
    """
    rows = []
    for client in OVERVIEW:
        found = {name: topic["readings"][client] for name, topic in topics.items() if client in topic["readings"]}
        if not found:
            continue
        first = next(iter(found.values()))
        cells = [f"{ns(best(found[name])):,.0f}" if name in found else "" for name in topics]
        cpu = best(first)["cpu_seconds"] * 1e9 / best(first)["records"]
        peak = max(reading["peak_rss_mb"] for readings in found.values() for reading in readings)
        rows.append([client, *cells, f"{cpu:,.0f}", f"{peak:,.0f}", str(first[0]["version"])])
    names = [spelled(topic) for topic in topics]
    return table(["client", *names, f"CPU, {names[0]}", "peak RSS MB", "version"], rows)


def spelled(topic: str) -> str:
    """Return the name of a topic with spaces."""
    return topic.replace("-", ", ").replace("KB", " KB").replace("0B", "0 B")


def summary(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of README.md from the results of several scenarios. The best of each row is bold."""
    rows: list[tuple[str, dict[str, float]]] = []
    for name, title in (("100B", "records of 100 B, ns each"), ("1KB", "records of 1 KB, ns each")):
        if topic := found["compare"]["topics"].get(name):
            rows.append((title, {client: ns(best(readings)) for client, readings in topic["readings"].items()}))
    peaks = found["compare"]["topics"]["100B"]["readings"]
    rows.append(("peak memory with 100 B, MB", {c: best(readings)["peak_rss_mb"] for c, readings in peaks.items()}))
    for cell in found.get("rates", {"cells": []})["cells"]:
        if cell["partitions"] == 1 and cell["rate"] in SUMMARY_RATES:
            cost = {c: min(r["cpu_seconds"] * 1e6 / r["records"] for r in rs) for c, rs in cell["readings"].items()}
            rows.append((f"{cell['rate']:,} records/s, µs of CPU each", cost))
    if readings := found.get("latency", {}).get("readings"):
        middle = {c: statistics.median(us for reading in rs for us in reading["us"]) for c, rs in readings.items()}
        rows.append(("a single record, median µs after its producer's call", middle))
    if readings := found["compare"].get("scenarios", {}).get("first"):
        times = {client: median(found, "seconds") * 1000 for client, found in readings.items()}
        rows.append(("first record of a new group, ms", times))
    heads = ["", *SUMMARY]
    lines = [heads, ["---", *["---:"] * len(SUMMARY)], *([title, *_best_in_bold(row)] for title, row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n\n" + _places(found) + ".\n"


def _best_in_bold(figures: dict[str, float]) -> list[str]:
    """Return the cells of a row of the summary."""
    named = [
        next((figures[client] for client in clients if client in figures), math.inf) for clients in SUMMARY.values()
    ]
    lowest = short(min(named))
    cells = ["" if math.isinf(value) else short(value) for value in named]
    return [f"**{cell}**" if cell == lowest else cell for cell in cells]


def _places(found: dict[str, dict[str, Any]]) -> str:
    """Return dates and machines of the results in the summary, each once."""
    named = [found[name] for name in ("compare", "rates", "latency") if name in found]
    return "; ".join(dict.fromkeys(place_line(results) for results in named))


def short(value: float) -> str:
    """Return a number with three digits at least."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def put_between_marks(path: Path, text: str, name: str = "bench") -> None:
    """Replace the text between the marks of a file that have this name. Raises ValueError if it has none."""
    first, last = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begin, rest = path.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{path} has no place marked {first} … {last}")
    path.write_text(f"{before}{first}\n{text.strip()}\n{last}{after}")
