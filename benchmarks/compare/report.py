"""Formats results as tables, for printing and for the README files, where they stand between two marks.

`python benchmarks/compare/report.py [RESULTS.json]` writes tables and plot of a run (by default the newest) there.
"""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PLOT = RESULTS / "compare.svg"
REFERENCE = "kconsumer"
TOLERANCE = 0.05  # allowed deviation from the rate of a steady load
SUMMARY = ("kconsumer arrow", "kconsumer", "Java warm", "Java", "confluent tuned", "aiokafka", "kafka-python")

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
        f" Python {machine['python']}, Kafka 4.4.0 on the same machine as the client"
    )


def machine_line(results: dict[str, Any]) -> str:
    """Return date, machine and versions of a run, and the number of readings."""
    return f"{place_line(results)}; best of {results['rounds']} readings"


def all_tables(results: dict[str, Any]) -> str:
    """Return all tables of a run."""
    parts = [machine_line(results) + ".\n"]
    parts += [topic_table(topic) for topic in results["topics"].values()]
    parts += [scenario_table(name, found) for name, found in results.get("scenarios", {}).items() if found]
    return "\n".join(parts)


def summary(results: dict[str, Any]) -> str:
    """Return a table of nanoseconds per record of the main clients, with a row per topic."""
    heads = ["", *(client for client in SUMMARY)]
    lines = [heads, ["---", *["---:"] * len(SUMMARY)]]
    for name, topic in results["topics"].items():
        found = {client: round(ns(best(readings))) for client, readings in topic["readings"].items()}
        cells = [f"{found[client]:,}" if client in found else "" for client in SUMMARY]
        lines.append([name.replace("-", ", ").replace("B", " B").replace("K B", " KB"), *cells])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def put_between_marks(path: Path, text: str, name: str = "bench") -> None:
    """Replace the text between the marks of a file that have this name. Raises ValueError if it has none."""
    first, last = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begin, rest = path.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{path} has no place marked {first} … {last}")
    path.write_text(f"{before}{first}\n{text.strip()}\n{last}{after}")


def newest() -> Path:
    """Return the file of the latest full run."""
    return max(RESULTS.glob("20*.json"))


def publish(results: dict[str, Any]) -> None:
    """Write tables and plot into the README files."""
    from benchmarks.compare.plot import draw

    draw(results, PLOT)
    picture = f"![Nanoseconds per record of each client]({PLOT.relative_to(ROOT)})"
    note = f"Nanoseconds per record, touching each value; {machine_line(results)}."
    put_between_marks(ROOT / "README.md", f"{note}\n\n{summary(results)}\n{picture}")
    picture = f"![Nanoseconds per record of each client]({PLOT.relative_to(ROOT / 'benchmarks')})"
    put_between_marks(ROOT / "benchmarks" / "README.md", f"{all_tables(results)}\n{picture}")


def main() -> None:
    """Publish the results of the given file, or of the newest one."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else newest()
    publish(json.loads(path.read_text()))
    print(f"published {path}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
