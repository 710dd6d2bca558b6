"""Formats rows as a table of aligned columns, or as JSON objects."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import NamedTuple

from kconsumer.cli.terminal import safe_text

Cell = str | int | None


class Column(NamedTuple):
    """A column of a table, and a key of JSON objects."""

    head: str | None  # None: it is not in the table
    key: str | None  # None: it is not in the objects


def columns(*keys: str) -> list[Column]:
    """Returns columns that are in both, with the keys in upper case as heads."""
    return [Column(key.upper().replace("_", "-"), key) for key in keys]


def objects(names: Sequence[Column], rows: Sequence[Sequence[object]]) -> list[dict[str, object]]:
    return [{name.key: cell for name, cell in zip(names, row, strict=True) if name.key is not None} for row in rows]


def formatted(args: argparse.Namespace, names: Sequence[Column], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns the lines of a table or, with `-f json`, one line with an object for each row."""
    if args.format == "json":
        return [json.dumps(found, ensure_ascii=False) for found in objects(names, rows)]
    shown = [(at, name.head) for at, name in enumerate(names) if name.head is not None]
    return table([head for _, head in shown], [[_cell(row[at]) for at, _ in shown] for row in rows])


def show(args: argparse.Namespace, names: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print what `formatted` returns."""
    lines = formatted(args, names, rows)
    if lines:
        print("\n".join(lines))


def _cell(value: object) -> Cell:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if value is None or isinstance(value, str | int) else str(value)


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Returns the lines of a table. Numbers are aligned to the right; None and empty text are shown as `-`.

    Control characters in names, such as those of groups and clients, are escaped.
    """
    numeric = [all(row[i] is None or isinstance(row[i], int) for row in rows) for i in range(len(head))]
    texts = [list(head), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in texts) for i in range(len(head))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in texts
    ]


def _text(cell: Cell) -> str:
    return "-" if cell is None or cell == "" else safe_text(str(cell).replace("\t", "\\t").replace("\n", "\\n"))
