"""Draws CPU time per record over the rate of records: a panel for each number of partitions, a line for each client."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "kconsumer"  # makes the file reproducible

from matplotlib import pyplot  # the backend is chosen above

from benchmarks.compare.plot import FAINT, INK

OURS = ("#1d4ed8", "#3b82f6", "#0ea5e9", "#14b8a6")
PEERS = ("#dc2626", "#f59e0b", "#7c3aed", "#64748b", "#be185d")


def colours(clients: list[str]) -> dict[str, str]:
    """Return a colour for each client: blue for kconsumer."""
    ours = [client for client in clients if client.startswith("kconsumer")]
    peers = [client for client in clients if not client.startswith("kconsumer")]
    return {**dict(zip(ours, cycle(OURS), strict=False)), **dict(zip(peers, cycle(PEERS), strict=False))}


def panel(axes: Any, partitions: int, found: dict[str, dict[int, Any]], colour: dict[str, str]) -> None:
    """Draw the clients with one number of partitions."""
    for client, by_rate in found.items():
        rates = sorted(by_rate)
        ours = client.startswith("kconsumer")
        axes.plot(
            rates,
            [by_rate[rate]["cpu_seconds"] * 1e6 / max(by_rate[rate]["records"], 1) for rate in rates],
            color=colour[client],
            linewidth=2.2 if ours else 1.3,
            linestyle="-" if ours else "--",
            marker="o" if ours else "s",
            markersize=4,
            label=client,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    title = "1 partition" if partitions == 1 else f"{partitions} partitions"
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.set_xlabel("records per second", fontsize=8.5, color=FAINT)
    axes.grid(visible=True, which="major", linewidth=0.4, color="#e2e8f0")
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(panels: dict[int, dict[str, dict[int, Any]]], results: dict[str, Any], path: Path) -> None:
    """Write the plot. `panels`: by the number of partitions, the reading of each client at each rate."""
    colour = colours(list(dict.fromkeys(client for found in panels.values() for client in found)))
    figure, grid = pyplot.subplots(1, len(panels), figsize=(11, 4.6), squeeze=False, sharey=True, layout="constrained")
    for axes, (partitions, found) in zip(grid.flat, panels.items(), strict=True):
        panel(axes, partitions, found, colour)
    grid[0, 0].set_ylabel("CPU time per record, microseconds", fontsize=8.5, color=FAINT)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    title = "CPU time of the client per record, by the rate of records; lower is better"
    figure.suptitle(title, fontsize=11.5, color=INK, weight="bold", x=0.01, ha="left")
    machine = results["machine"]
    place = (
        f"{results['date']}, {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, Kafka 4.4.0"
        " on the same machine"
    )
    figure.supxlabel(place, fontsize=8, color=FAINT, x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
