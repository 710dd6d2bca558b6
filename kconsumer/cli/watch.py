"""`--watch`: the same view again and again, painted over itself on a terminal, line after line elsewhere."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TextIO

TO_TOP, TO_END_OF_LINE, TO_END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """Where views are painted. Not more lines than fit: a terminal that scrolls cannot be painted over."""

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]] = shutil.get_terminal_size) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._size = size

    def paint(self, lines: Sequence[str], title: str) -> None:
        """Show these lines in place of the last ones."""
        if self._live:
            width, height = self._size()
            shown = [title, "", *lines]
            if len(shown) > height - 1:
                hidden = len(shown) - (height - 2)
                shown = [*shown[: height - 2], f"… {hidden} more lines"]
            painted = (line[:width] + TO_END_OF_LINE for line in shown)
            self._stream.write(TO_TOP + "\n".join(painted) + "\n" + TO_END_OF_SCREEN)
        else:
            self._stream.write("\n".join(lines) + "\n" if lines else "")
        self._stream.flush()


def repeat(view: Callable[[], Sequence[str]], screen: Screen, title: str, seconds: float) -> None:
    """Paint the view every so many seconds until Ctrl-C, or until it cannot be had."""
    pause = threading.Event()
    while True:
        lines = view()
        screen.paint(lines, f"{title}   {datetime.now():%H:%M:%S}   every {seconds:g} s, Ctrl-C ends")
        pause.wait(seconds)
