"""Prints warnings of the library to stderr, and, while a command waits, which brokers have not responded yet."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from kconsumer._core.lock import Clock

REPEAT_MS = 60_000.0  # the same warning is shown at most once in this time
FIRST_NOTICE_S = 1.5  # after this time without a response, the command prints what it waits for

log = logging.getLogger(__name__)


class Notices(logging.StreamHandler[TextIO]):
    """Prints warnings and errors of the library, each at most once in `REPEAT_MS`.

    Messages that differ only in numbers, or only after a semicolon, count as the same.
    """

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        super().__init__(stream)
        self._clock = clock or Clock()
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("kconsumer: %(message)s"))
        # Progress may have drawn a line without a newline on this terminal. The notice overwrites it, and the next
        # redraw puts the line below the notice.
        self._before = "\r\x1b[K" if stream.isatty() else ""
        self._shown: dict[str, float] = {}
        self.holding = False  # True inside `waiting`: warnings are stored in `held` instead of being shown
        self.held: str | None = None  # the last warning; `waiting` shows it if the wait is long

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns False if a warning must not be printed now.

        This is so if warnings are held back (the warning is then stored in `held`), or if the same one was printed a
        short time ago.
        """
        if not super().filter(record):
            return False
        if self.holding:
            self.held = record.getMessage()
            return False
        return self._due(record.getMessage())

    def take_held(self) -> str | None:
        """Stop holding back warnings. Returns the last one that was held back, or None. The caller prints it."""
        self.holding = False
        if self.held is not None:
            self._due(self.held)
        return self.held

    def _due(self, message: str) -> bool:
        key = re.sub(r"\d+", "0", message.partition("; ")[0])
        now = self._clock.now()
        if key in self._shown and now - self._shown[key] < REPEAT_MS:
            return False
        self._shown[key] = now
        return True

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line to write for a warning. It first erases a progress line on the terminal."""
        return self._before + super().format(record)


@contextmanager
def waiting(servers: object) -> Iterator[None]:
    """If the `with` block takes longer than `FIRST_NOTICE_S`, print that the brokers `servers` have not responded.

    The last warning until then is printed as the cause. In a faster block, no warnings are printed: the block either
    succeeds, or raises an error with the cause.
    """
    notices = next((handler for handler in logging.getLogger().handlers if isinstance(handler, Notices)), None)
    timer = threading.Timer(FIRST_NOTICE_S, _say, (servers, notices))
    timer.daemon = True
    if notices is not None:
        notices.holding, notices.held = True, None
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if notices is not None:
            notices.holding = False


def _say(servers: object, notices: Notices | None) -> None:
    cause = None if notices is None else notices.take_held()
    log.warning("waiting for a response from %s%s", servers, f": {cause}" if cause else "")
