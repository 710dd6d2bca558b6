"""The thread that sends heartbeats of a classic member while the caller processes records.

The thread does nothing while the engine's lock is held. The calling thread is then inside a call, and sends heartbeats
itself. Otherwise a short, non-blocking step sends the requests that are due and handles the responses that arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kconsumer.deferred_calls import get_logger

log = get_logger(__name__)

MAX_SLEEP_MS = 1000.0


class HeartbeatThread(threading.Thread):
    """Calls `step` repeatedly; `step` returns how long (ms) the thread may sleep."""

    def __init__(self, name: str, step: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)
        self._step = step
        self._stopped = threading.Event()

    def run(self) -> None:
        """Call `step` and sleep in turn, until stopped. `step` handles all errors itself."""
        sleep_ms = 0.0
        while not self._stopped.wait(min(sleep_ms, MAX_SLEEP_MS) / 1000):
            sleep_ms = self._step()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread and wait for it. Does nothing in a forked child, where the thread does not exist."""
        if not self.is_alive():
            return
        self._stopped.set()
        if threading.current_thread() is not self:
            self.join(timeout_s)
