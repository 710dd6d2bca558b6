"""Draws the figures of a run: a panel for each topic, a bar for each client; shorter is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "kconsumer"  # makes the file reproducible

from matplotlib import pyplot  # the backend is chosen above

OURS, PEERS, LIMITS = "#2563eb", "#94a3b8", "#cbd5e1"
INK, FAINT = "#0f172a", "#64748b"
COLUMNS = 2
MAX_RATIO = 12.0  # bars longer than this multiple of the reference are cut, so that the others can be compared
REFERENCE = "kconsumer"


def colour(client: str) -> str:
    """Return the colour of a bar: bright for kconsumer, faint for limits that are not clients."""
    if client.startswith("kconsumer"):
        return OURS
    return LIMITS if client in ("bare socket", "one bare connection", "Python loop alone") else PEERS


def panel(axes: Any, topic: dict[str, Any]) -> None:
    """Draw the clients of one topic, the fastest on top."""
    best = {
        client: min(reading["seconds"] * 1e9 / reading["records"] for reading in readings)
        for client, readings in topic["readings"].items()
    }
    ordered = sorted(best.items(), key=lambda item: item[1], reverse=True)
    limit = min(MAX_RATIO * best.get(REFERENCE, ordered[-1][1]), ordered[0][1])
    for row, (client, value) in enumerate(ordered):
        axes.barh(row, min(value, limit), color=colour(client), height=0.72)
        cut = value > limit
        label = f"{value:,.0f}" + (" →" if cut else "")
        weight = "bold" if client.startswith("kconsumer") else "normal"
        inside = value > 0.8 * limit
        axes.annotate(
            label,
            (min(value, limit), row),
            xytext=(-4 if inside else 4, 0),
            textcoords="offset points",
            va="center",
            ha="right" if inside else "left",
            fontsize=8.5,
            color="white" if inside and client.startswith("kconsumer") else INK,
            weight=weight,
        )
    axes.set_yticks(range(len(ordered)), [client for client, _ in ordered], fontsize=8.5, color=INK)
    for tick, (client, _) in zip(axes.get_yticklabels(), ordered, strict=True):
        tick.set_fontweight("bold" if client.startswith("kconsumer") else "normal")
    axes.set_title(topic["title"], fontsize=9, color=INK, loc="left", pad=4)
    axes.set_xticks([])
    axes.set_xlim(0, limit * 1.02)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def draw(results: dict[str, Any], path: Path) -> None:
    """Write the plot of a run. The suffix of the file selects the format."""
    topics = list(results["topics"].values())
    rows = -(-len(topics) // COLUMNS)
    max_clients = max(len(topic["readings"]) for topic in topics)
    height = 0.9 + rows * (0.24 * max_clients + 0.55)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(10, height), squeeze=False, layout="constrained")
    for axes, topic in zip(grid.flat, topics, strict=False):
        panel(axes, topic)
    for axes in grid.flat[len(topics) :]:
        axes.set_visible(False)
    machine = results["machine"]
    figure.suptitle(
        "Nanoseconds of wall time per record, from the broker to the value in the loop; shorter is better",
        fontsize=11.5,
        color=INK,
        weight="bold",
        x=0.01,
        ha="left",
    )
    figure.supxlabel(
        f"{results['date']}, {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, Kafka 4.4.0"
        " on the same machine; best reading; arrows: cut",
        fontsize=8,
        color=FAINT,
        x=0.01,
        ha="left",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
