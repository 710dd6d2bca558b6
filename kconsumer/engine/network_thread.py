"""The thread of a ThreadedDriver: rounds of managers and network, until stopped.

It decides nothing but how long to rest after a round that failed; what a round is, is the driver's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kconsumer.deferred_calls import get_logger

log = get_logger(__name__)

FAILURE_BACKOFF_S = 0.1


class NetworkThread(threading.Thread):
    """Calls `round` again and again; `wake` makes a round that waits return."""

    def __init__(self, name: str, one_round: Callable[[], None], wake: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._run_once = one_round
        self._wake = wake
        self._stopped = threading.Event()
        self._at_end: Callable[[], object] | None = None

    def run(self) -> None:
        """Rounds until stopped. A failing round is the driver's business, never the thread's end."""
        while not self._stopped.is_set():
            try:
                self._run_once()
            except Exception:
                if not self._stopped.is_set():
                    log.exception("a round of %s failed", self.name)
                    self._stopped.wait(FAILURE_BACKOFF_S)
        if self._at_end is not None:
            self._at_end()

    def when_ended(self, function: Callable[[], object]) -> None:
        """Have the thread call a function, which may be called twice, as the last thing it does."""
        self._at_end = function
        if not self.is_alive():
            function()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread and wait for it; return whether it has ended. In a forked child there is none."""
        self._stopped.set()  # in any case: a thread whose start was interrupted may be about to run
        if not self.is_alive():
            return True
        self._wake()
        if threading.current_thread() is not self:
            self.join(timeout_s)
        return not self.is_alive()
