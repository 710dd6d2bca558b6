"""Plots the example's revenue per minute, a band for each country."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.dates as mdates
import matplotlib.pyplot as plt

COLOURS = ("#0b3954", "#087e8b", "#5fad9b", "#bfd7b5", "#f2c14e", "#f78154", "#b4436c")


def draw(cents: Mapping[tuple[datetime, str], int], file: Path) -> Path:
    """Draw the revenue `cents` to `file`. Returns the path. The country with the largest revenue is at the bottom."""
    minutes = sorted({minute for minute, _ in cents})
    totals: dict[str, int] = {}
    for (_, country), amount in cents.items():
        totals[country] = totals.get(country, 0) + amount
    countries = sorted(totals, key=lambda country: -totals[country])
    bands = [[cents.get((minute, country), 0) / 100_000 for minute in minutes] for country in countries]
    figure, axes = plt.subplots(figsize=(10, 5), dpi=120)
    axes.stackplot(minutes, bands, labels=countries, colors=COLOURS[: len(countries)])
    axes.set_title("Revenue by the minute", loc="left", fontsize=14, fontweight="bold")
    axes.set_ylabel("thousands a minute")
    axes.set_xlabel(f"{minutes[0]:%d %B %Y}, UTC")
    axes.xaxis.set_major_formatter(mdates.DateFormatter("%H:%M"))
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    plt.close(figure)
    return file
