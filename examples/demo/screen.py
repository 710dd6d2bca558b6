"""Shows the demo's progress: a live table where rich can draw one, else a line for each event."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crew import Member

try:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text
except ImportError:  # the plain screen needs nothing
    Live = None  # type: ignore[assignment, misc]  # absence is what is recorded

LINES_KEPT = 8
PLAIN_EVERY_S = 1.0


class Screen:
    """Shows the progress as plain lines: events at once, and the state of the members once a second."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._drawn = 0.0
        self._done = -1

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Show an event."""
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def working(self, text: str) -> None:
        """Show what is in progress, until the next event."""

    def draw(self, members: Sequence[Member], done: int, total: int) -> None:
        """Show the state of the group; `done` of `total` records are read."""
        if time.monotonic() - self._drawn >= PLAIN_EVERY_S and done != self._done:
            self._drawn, self._done = time.monotonic(), done
            rates = "  ".join(f"{m.name} {m.rate:,.0f}/s" for m in members if m.state != "left")
            self.say(f"{done:,} of {total:,} records  {rates}")


class RichScreen(Screen):
    """Shows a table of the members, and the last events below it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._table: Any = Text("")
        self._work = ""
        self._live = Live(refresh_per_second=8, transient=False)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._work = ""
        self._refresh()
        self._live.stop()

    def say(self, text: str) -> None:
        self._lines = [*self._lines, f"{time.monotonic() - self.started:6.1f} s  {text}"][-LINES_KEPT:]
        self._work = ""
        self._refresh()

    def working(self, text: str) -> None:
        self._work = text
        self._refresh()

    def draw(self, members: Sequence[Member], done: int, total: int) -> None:
        table = Table(title=f"{done:,} of {total:,} records ({done / max(total, 1):.0%})", title_justify="left")
        for heading, justify in (("member", "left"), ("state", "left"), ("partitions", "left"),
                                 ("records", "right"), ("records/s", "right"), ("lag", "right")):  # fmt: skip
            table.add_column(heading, justify=justify, min_width=10)  # type: ignore[arg-type]  # two of its words
        for member in members:
            table.add_row(
                member.name,
                member.state,
                " ".join(str(partition) for partition in sorted(member.partitions)) or "-",
                f"{member.records:,}",
                f"{member.rate:,.0f}" if member.state != "left" else "-",
                "-" if member.lag is None or member.state == "left" else f"{member.lag:,}",
                style={"left": "dim", "leaving": "yellow"}.get(member.state, ""),
            )
        self._table = table
        self._refresh()

    def _refresh(self) -> None:
        lines = [*self._lines, f"          {self._work}"] if self._work else self._lines
        self._live.update(Group(self._table, Text("\n".join(lines))))


def screen(plain: bool) -> Screen:
    """Return a table if rich is installed, stdout is a terminal and `plain` is False, else plain lines."""
    return Screen() if plain or Live is None or not sys.stdout.isatty() else RichScreen()
