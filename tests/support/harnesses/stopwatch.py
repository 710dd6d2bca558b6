"""Measures how long something took, without the time that a busy machine spent on other processes."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

NANOSECONDS = 1e9


class Stopwatch:
    """Measures from its creation on.

    Subtracts the time that this process waited for a processor: that of its thread that waited longest. So a limit
    holds on a busy machine, and is as strict as the clock on an idle one.
    """

    def __init__(self) -> None:
        self._began, self._waited_before = time.monotonic(), waited_s()

    def seconds(self) -> float:
        """Returns the time until now (s) without the waiting time."""
        waited = (after - self._waited_before.get(thread, 0.0) for thread, after in waited_s().items())
        return self.clock() - max(waited)

    def clock(self) -> float:
        """Returns the time until now (s), with the waiting time."""
        return time.monotonic() - self._began


def waited_s() -> dict[str, float]:
    """Returns the time (s) that each thread of this process was ready to run and did not run, as Linux counts it."""
    waited = {}
    for account in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            waited[account.parent.name] = int(account.read_text().split()[1]) / NANOSECONDS
    return waited
