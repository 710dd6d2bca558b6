"""Reads the laws of growth off `results/scale.json`: `python benchmarks/scale/report.py` writes tables and the plot.

A law is the slope of a line through the points of a figure in logarithmic scales: cost ~ size^slope. 0 is a constant
cost, 1 a proportional one. The tables stand in `docs/scale.md` between two marks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "kconsumer"  # makes the file reproducible

from matplotlib import pyplot  # the backend is chosen above

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
PLOT = RESULTS.with_suffix(".svg")
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"
# Other assignors cost as much as these; the plot has all.
PUBLISHED = (("classic", "range"), ("consumer", "uniform"))
EVENTS = ("start", "rest", "join", "leave", "rolling restart", "coordinator failure")
FIXED_PARTITIONS, FIXED_MEMBERS = 1_000, 10
INK = "#0f172a"
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#64748b")

Case = dict[str, Any]
Points = list[tuple[float, float]]


def slope(points: Points) -> float:
    """Return the slope of the line that fits best in logarithmic scales; NaN with less than two points."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(logs) < 2:
        return math.nan
    mean_x, mean_y = (sum(log[axis] for log in logs) / len(logs) for axis in (0, 1))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def number(value: float) -> str:
    """Return a number with three digits."""
    if math.isnan(value):
        return ""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 4)}f}"


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table in Markdown. The first column is text."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *rows]) + "\n"


class Results:
    """All results, and series of them."""

    def __init__(self) -> None:
        content = json.loads(RESULTS.read_text(encoding="utf-8"))
        self.machine = content["machine"]
        self.cases: dict[str, Case] = content["cases"]

    def groups(self) -> list[Case]:
        """Return the results of all groups."""
        return [case for name, case in self.cases.items() if name.startswith("group")]

    def kinds(self) -> list[tuple[str, str]]:
        """Return protocol and assignor of all groups."""
        return list(dict.fromkeys((case["protocol"], case["assignor"]) for case in self.groups()))

    def group_series(self, kind: tuple[str, str], axis: str) -> list[Case]:
        """Return the groups of one kind that differ in `axis` ("members" or "partitions") only."""
        other, fixed = ("partitions", FIXED_PARTITIONS) if axis == "members" else ("members", FIXED_MEMBERS)
        found = [case for case in self.groups() if (case["protocol"], case["assignor"]) == kind]
        return sorted((case for case in found if case[other] == fixed), key=lambda case: case[axis])

    def consumers(self, *, traced: bool) -> list[Case]:
        """Return the single consumers on 100 brokers with default options."""
        found = [
            case
            for name, case in self.cases.items()
            if name.startswith("consumer") and case["brokers"] == 100 and case["engine"] == "classic"
        ]
        kept = [case for case in found if not case["group"] and ("library" in case) is traced]
        return sorted(kept, key=lambda case: case["partitions"])

    def assignments(self) -> dict[str, list[tuple[int, int, Case]]]:
        """Return members, partitions and figures of all assignments by assignor."""
        found: dict[str, list[tuple[int, int, Case]]] = {}
        for name, case in self.cases.items():
            if name.startswith("assign "):
                _, assignor, members, _, partitions = name.split()
                found.setdefault(assignor, []).append((int(members), int(partitions), case))
        return {assignor: sorted(rows, key=lambda row: row[1]) for assignor, rows in found.items()}


def event_table(results: Results, axis: str) -> str:
    """Return the law of each event and kind of group, with the values at both ends."""
    figures: list[tuple[str, str, float]] = [
        ("requests", "requests", 1.0),
        ("received", "KB received", 1e3),
        ("sent", "KB sent", 1e3),
        ("cpu_ms", "CPU ms", 1.0),
        ("cpu_ms_max", "CPU ms, largest", 1.0),
        ("stable_ms", "stable after, s", 1e3),
    ]
    rows = []
    for kind in PUBLISHED:
        series = results.group_series(kind, axis)
        if len(series) < 2:
            continue
        for event in EVENTS:
            cases = [case for case in series if event in case["events"]]
            cells = []
            for key, _, unit in figures:
                points = [(case[axis], case["events"][event][key]) for case in cases]
                if len(points) < 2 or not points[0][1]:
                    cells.append("")
                    continue
                ends = f"{number(points[0][1] / unit)} → {number(points[-1][1] / unit)}"
                cells.append(f"{ends} ({slope(points):+.2f})")
            if any(cells):
                last = cases[-1][axis]
                rows.append([f"{' '.join(kind)}: {event}", f"{cases[0][axis]:,} → {last:,}", *cells])
    return table(["per member", axis, *(head for _, head, _ in figures)], rows)


def consumer_tables(results: Results) -> str:
    """Return CPU time and memory of single consumers."""
    cpu = [
        [
            f"{case['partitions']:,}",
            number(case["start_cpu_s"]),
            *(number(case[phase][key]) for phase in ("idle", "active") for key in ("cpu_ms_s", "requests_s")),
            number(case["active"]["records_s"]),
        ]
        for case in results.consumers(traced=False)
    ]
    heads = ["partitions", "CPU s to start", "idle, CPU ms/s", "requests/s", "1 % active, CPU ms/s", "requests/s"]
    memory = [
        [
            f"{case['partitions']:,}",
            number(sum(case["library"].values())),
            *(number(sum(size for path, size in case["library"].items() if path.startswith(part))) for part in PARTS),
        ]
        for case in results.consumers(traced=True)
    ]
    laws = ", ".join(f"{phase} {slope(points):+.2f}" for phase, points in single(results).items())
    return (
        table([*heads, "records/s"], cpu)
        + f"\nSlopes of CPU time over partitions: {laws}.\n\n"
        + table(["partitions", "bytes per partition", *(f"`{part}`" for part in PARTS)], memory)
    )


def single(results: Results) -> dict[str, Points]:
    """Return the CPU time (ms/s) of single consumers, idle and active, over their partitions."""
    return {
        phase: [(case["partitions"], case[phase]["cpu_ms_s"]) for case in results.consumers(traced=False)]
        for phase in ("idle", "active")
    }


PARTS = ("metrics/", "fetching/", "state/", "net/")


def assignment_table(results: Results) -> str:
    """Return the times of the assignors."""
    rows = [
        [f"{assignor}, {members:,} x {partitions:,}", number(case["first_s"]), number(case["leave_s"])]
        for assignor, found in results.assignments().items()
        for members, partitions, case in found[-2:]
    ]
    return table(["assignor, members x partitions", "first, s", "after a leave, s"], rows)


def panel(axes: Any, title: str, label: str, series: dict[str, Points]) -> None:
    """Draw one figure in logarithmic scales, with the slopes in the legend."""
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        shown = [(x, y) for x, y in points if y > 0]
        if not shown:
            continue
        axes.plot(*zip(*shown, strict=True), "o-", color=colour, ms=3.5, lw=1.2, label=f"{name}: {slope(shown):+.2f}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25, which="major")
    if axes.lines:
        axes.legend(fontsize=7, frameon=False, title="log-log slope", title_fontsize=7)


def draw(results: Results) -> None:
    """Write the plot."""
    figure, grid = pyplot.subplots(3, 3, figsize=(12, 10.5), layout="constrained")

    def of_groups(axis: str, value: Callable[[Case], float]) -> dict[str, Points]:
        found = {
            " ".join(kind): [(case[axis], value(case)) for case in results.group_series(kind, axis)]
            for kind in results.kinds()
        }
        return {name: points for name, points in found.items() if len(points) > 1}

    def event(name: str, key: str) -> Callable[[Case], float]:
        return lambda case: float(case["events"].get(name, {}).get(key, 0.0))

    panel(grid[0][0], "Stable after a leave, virtual ms", "members", of_groups("members", event("leave", "stable_ms")))
    panel(grid[0][1], "Join: CPU ms per member", "members", of_groups("members", event("join", "cpu_ms")))
    largest = of_groups("members", event("join", "cpu_ms_max"))
    panel(grid[0][2], "Join: CPU ms of the busiest member", "members", largest)
    panel(grid[1][0], "Start: bytes received per member", "members", of_groups("members", event("start", "received")))
    received = of_groups("partitions", event("start", "received"))
    panel(grid[1][1], f"Start: bytes received, {FIXED_MEMBERS} members", "partitions", received)
    memory = of_groups("partitions", lambda case: float(case["rss_kb"]))
    panel(grid[1][2], f"KB of RSS per member, {FIXED_MEMBERS} members", "partitions", memory)
    rest = of_groups("partitions", event("rest", "cpu_ms"))
    panel(grid[2][0], f"Rest of 30 s: CPU ms per member, {FIXED_MEMBERS} members", "partitions", rest)
    panel(grid[2][1], "One consumer, 100 brokers: CPU ms per second", "partitions", single(results))
    times = {
        name: [(partitions, case["first_s"]) for _, partitions, case in rows]
        for name, rows in results.assignments().items()
    }
    panel(grid[2][2], "One assignment, CPU s (members grow, too)", "partitions", times)
    figure.savefig(PLOT, facecolor="white", metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Write the plot, and put the tables into the page."""
    results = Results()
    draw(results)
    parts = [
        "### Groups that grow in members, with 1,000 partitions\n\n" + event_table(results, "members"),
        "### Groups of ten members that grow in partitions\n\n" + event_table(results, "partitions"),
        "### One consumer on 100 brokers\n\n" + consumer_tables(results),
        "### Assignors alone\n\n" + assignment_table(results),
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
