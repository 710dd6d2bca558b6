"""Formats rows as a table of aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from kconsumer.cli.terminal import safe_text

Cell = str | int | None


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
