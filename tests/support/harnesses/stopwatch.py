"""How long something took of itself, on a machine that is busy with other things."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

NANOSECONDS = 1e9


class Stopwatch:
    """Runs from when it is made.

    What this process waited for a processor while others had it is not counted: of its threads, the one that waited
    longest. So a bound holds on a busy machine, and is as strict as the clock on an idle one.
    """

    def __init__(self) -> None:
        self._began, self._waited_before = time.monotonic(), waited_s()

    def seconds(self) -> float:
        """The time until now (s), without that."""
        waited = (after - self._waited_before.get(thread, 0.0) for thread, after in waited_s().items())
        return self.clock() - max(waited)

    def clock(self) -> float:
        """All the time until now (s)."""
        return time.monotonic() - self._began


def waited_s() -> dict[str, float]:
    """How long each thread of this process has been ready to run without running (s), by Linux's account."""
    waited = {}
    for account in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            waited[account.parent.name] = int(account.read_text().split()[1]) / NANOSECONDS
    return waited
