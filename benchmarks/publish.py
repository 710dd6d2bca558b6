"""Writes the figures of the files in results/ into benchmarks/README.md and README.md, and draws the plots.

    make figures                             # from the results that are there
    make figures ARGS=--measure              # measures everything before, for more than an hour
    make figures ARGS='--measure latency'    # measures one scenario before

Stop other work on the machine before you measure. A table whose results are of another day or machine than those of the
first table has its own line about that. A file may have a `note`, which stands under its table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks import async_clients, idle, latency, rates, share
from benchmarks.compare import report

RESULTS = report.RESULTS
RATE_PLOT = RESULTS / "rates.svg"
Results = dict[str, Any]


def _compare(results: Results) -> str:
    return report.all_tables(results)


def _rates(results: Results) -> str:
    return rates.table([rates.Cell(**cell) for cell in results["cells"]], 1)


def _latency(results: Results) -> str:
    title = f"**Single records, {latency.RATE}/s, on an idle topic: from their producer to the return of `poll`**"
    return f"{title}\n\n{latency.table(results['readings'])}"


def _async_clients(results: Results) -> str:
    title = "**asyncio, records of 100 B; batches are those of `poll()`, `getmany()` and `consume(1000)`**"
    clients = {name: readings for name, readings in results["100B"].items() if "bare" not in name}
    return f"{title}\n\n{async_clients.speed_table(clients, async_clients.REFERENCE)}"


def _idle(results: Results) -> str:
    return f"**A member of a group without records, the worst of three**\n\n{idle.table(results['members'])}"


def _share(results: Results) -> str:
    return f"**Share groups: records of 100 B, one member**\n\n{share.table(results['readings'])}"


#: The scenarios in the order of the page: the script with its arguments, and what formats its results.
SCENARIOS: dict[str, tuple[str, Callable[[Results], str]]] = {
    "compare": ("compare/run.py", _compare),
    "rates": ("rates.py", _rates),
    "latency": ("latency.py", _latency),
    "idle": ("idle.py", _idle),
    "async_clients": ("async_clients.py --only throughput", _async_clients),
    "share": ("share.py", _share),
}


def stored() -> dict[str, Results]:
    """Return the results that are there, by scenario."""
    paths = {name: RESULTS / f"{name}.json" for name in SCENARIOS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def page(found: dict[str, Results]) -> str:
    """Return the tables of all scenarios, each after the line about its machine if that is another one."""
    parts, place = [], ""
    for name, results in found.items():
        if report.place_line(results) != place:
            place = report.place_line(results)
            parts.append(f"{place}.\n")
        parts.append(SCENARIOS[name][1](results))
        parts += [f"{results['note']}\n"] if "note" in results else []
    return "\n".join(parts)


def publish(found: dict[str, Results]) -> None:
    """Write the tables, and draw the plots."""
    report.put_between_marks(ROOT / "benchmarks" / "README.md", page(found))
    report.put_between_marks(ROOT / "README.md", report.summary(found))
    from benchmarks.compare import plot, rate_plot  # they need matplotlib

    plot.draw(found["compare"], report.PLOT)
    if "rates" in found:
        cells = [rates.Cell(**cell) for cell in found["rates"]["cells"]]
        rate_plot.draw({count: rates.lines(cells, count) for count in rates.PARTITIONS}, found["rates"], RATE_PLOT)


def measure(names: list[str]) -> None:
    """Run the scripts one after the other. Each writes its results when it ends."""
    for name in names:
        script, *words = SCENARIOS[name][0].split()
        command = [sys.executable, str(ROOT / "benchmarks" / script), *words, "--output", str(RESULTS / f"{name}.json")]
        subprocess.run(command, check=True)


def main() -> None:
    """Measure what the command line names, and write all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)}; default: all")
    options = parser.parse_args()
    if unknown := set(options.measure or ()) - set(SCENARIOS):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    if options.measure is not None:
        measure(options.measure or list(SCENARIOS))
    publish(stored())


if __name__ == "__main__":
    main()
