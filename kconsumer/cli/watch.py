"""`--watch`: repeats a view. On a terminal it overwrites the previous view, elsewhere it appends lines."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TextIO

CURSOR_HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"  # erase: from the cursor on


class Screen:
    """The output of repeated views.

    A terminal gets only the lines that fit: if it scrolled, the next view would not overwrite this one.
    """

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]] = shutil.get_terminal_size) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._size = size

    def paint(self, lines: Sequence[str], title: str) -> None:
        """Replace the previous lines by these."""
        if self._live:
            width, height = self._size()
            shown = [title, "", *lines]
            if len(shown) > height - 1:
                hidden = len(shown) - (height - 2)
                shown = [*shown[: height - 2], f"… {hidden} more lines"]
            painted = (line[:width] + ERASE_LINE for line in shown)
            self._stream.write(CURSOR_HOME + "\n".join(painted) + "\n" + ERASE_BELOW)
        else:
            self._stream.write("\n".join(lines) + "\n" if lines else "")
        self._stream.flush()


def repeat(view: Callable[[], Sequence[str]], screen: Screen, title: str, seconds: float) -> None:
    """Paint the view every `seconds` until Ctrl-C, or until `view` raises."""
    pause = threading.Event()
    while True:
        lines = view()
        screen.paint(lines, f"{title}   {datetime.now():%H:%M:%S}   every {seconds:g} s, Ctrl-C ends")
        pause.wait(seconds)
