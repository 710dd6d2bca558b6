"""Implements `--watch`: prints a view, such as the lag of groups, again and again.

On a terminal each view overwrites the previous one. Elsewhere its lines are appended.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TextIO

CURSOR_HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"  # both erase from the cursor to the end


class Screen:
    """Writes repeated views to a stream.

    On a terminal only the lines that fit are written. With more lines the terminal would scroll, and the next view
    would not overwrite this one.
    """

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]] = shutil.get_terminal_size) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._size = size

    def paint(self, lines: Sequence[str], title: str) -> None:
        """Write `lines`. On a terminal they are written below `title`, in place of the previous view."""
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
    """Call `view` and paint its lines every `seconds`, until Ctrl-C or until `view` raises."""
    pause = threading.Event()
    while True:
        lines = view()
        screen.paint(lines, f"{title}   {datetime.now():%H:%M:%S}   every {seconds:g} s, Ctrl-C ends")
        pause.wait(seconds)
