"""How long something took of itself, on a machine that is busy with other things."""

from __future__ import annotations

import time
from pathlib import Path

NANOSECONDS = 1e9


class Stopwatch:
    """Runs from when it is made.

    What the threads of this process waited for a processor while others had it is not counted. So a bound holds on a
    busy machine, and is as strict as the clock on an idle one.
    """

    def __init__(self) -> None:
        self._began, self._waited_before = time.monotonic(), waited_s()

    def seconds(self) -> float:
        """The time until now (s), without that."""
        return max(0.0, self.clock() - max(0.0, waited_s() - self._waited_before))

    def clock(self) -> float:
        """All the time until now (s)."""
        return time.monotonic() - self._began


def waited_s() -> float:
    """How long the threads of this process have been ready to run without running (s), by Linux's account."""
    waited = 0
    for account in Path("/proc/self/task").glob("*/schedstat"):
        try:
            waited += int(account.read_text().split()[1])
        except FileNotFoundError:
            continue  # the thread has ended
    return waited / NANOSECONDS
