"""Draws a progress line on stderr with records, rates and lag. Draws nothing unless stderr is a terminal."""

from __future__ import annotations

from typing import TextIO

from kconsumer._core.lock import Clock

REDRAW_MS = 500.0


class Progress:
    """Counts records and bytes and redraws one line at most twice a second."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self.visible = stream.isatty()
        self.records = self.bytes = 0
        self._stream, self._clock = stream, clock or Clock()
        self._started = self._drawn_at = self._clock.now()
        self._drawn_records = self._drawn_bytes = 0
        self._on_screen = False

    def count(self, records: int, size: int) -> None:
        """Add the number of records that were written, and their size in bytes."""
        self.records += records
        self.bytes += size

    @property
    def due(self) -> bool:
        """True if the line must be redrawn now. Only then must the caller compute the lag that it passes to `draw`."""
        return self.visible and self._clock.now() - self._drawn_at >= REDRAW_MS

    def draw(self, lag: int | None) -> None:
        """Draw the totals, the rates since the previous draw, and the lag in records (None if it is unknown)."""
        now = self._clock.now()
        line = self._line(self.records - self._drawn_records, self.bytes - self._drawn_bytes, now - self._drawn_at)
        behind = "unknown" if lag is None else f"{lag:,}"
        self._write(f"\r\x1b[K{line}  lag {behind}")
        self._drawn_at, self._drawn_records, self._drawn_bytes = now, self.records, self.bytes
        self._on_screen = True

    def clear(self) -> None:
        """Erase the line, so that output can be written in its place."""
        if self._on_screen:
            self._write("\r\x1b[K")
            self._on_screen = False

    def finish(self) -> None:
        """Replace the line with the totals of the whole run."""
        if self.visible:
            line = self._line(self.records, self.bytes, self._clock.now() - self._started)
            self._write(f"\r\x1b[K{line}\n")
            self._on_screen = False

    def _line(self, records: int, size: int, took_ms: float) -> str:
        seconds = max(took_ms, 1e-3) / 1000
        rate, volume = records / seconds, size / seconds / 1e6
        return f"{self.records:,} records  {rate:,.0f} records/s  {volume:,.1f} MB/s"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
