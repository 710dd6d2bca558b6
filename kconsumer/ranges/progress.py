"""Draws a progress line on a terminal."""

from __future__ import annotations

from typing import TextIO

from kconsumer._core.lock import Clock

REDRAW_MS = 100.0
WIDTH = 24


class ProgressLine:
    """Draws a line with the number of offsets that were read.

    The line is drawn at most ten times a second, and always at the end.
    """

    def __init__(self, name: str, stream: TextIO, clock: Clock) -> None:
        self._name = name
        self._stream = stream
        self._clock = clock
        self._began = clock.now()
        self._drawn = float("-inf")
        self._length = 0

    def __call__(self, done: int, total: int) -> None:
        """Draw the line for `done` of `total` offsets, unless it was drawn less than REDRAW_MS ago.

        If all offsets are done, always draws the line, and ends it.
        """
        now = self._clock.now()
        if done < total and now - self._drawn < REDRAW_MS:
            return
        self._drawn = now
        text = self.text(done, total, (now - self._began) / 1000)
        self._write("\r" + text.ljust(self._length))
        self._length = len(text)
        if done >= total:
            self.end()

    def end(self) -> None:
        """Write a newline, so that later output does not overwrite the progress line."""
        if self._length:
            self._write("\n")
            self._length = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def text(self, done: int, total: int, seconds: float) -> str:
        """Returns the text of the line. `seconds` is the time since the start."""
        share = done / total if total else 1.0
        bar = ("█" * round(WIDTH * share)).ljust(WIDTH, "░")
        rate = done / seconds if seconds > 0 else 0.0
        if done >= total:
            rest = f"in {seconds:.1f} s"
        else:
            rest = f"{(total - done) / rate:.0f} s left" if rate else ""
        return f"{self._name} {bar} {share:4.0%}  {done:,} of {total:,} offsets  {rate:,.0f}/s  {rest}"
