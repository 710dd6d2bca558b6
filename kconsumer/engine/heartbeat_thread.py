"""The thread that keeps a classic member alive while the caller is busy with its records.

It drives nothing that the caller's thread is driving: when the engine's lock is taken, the caller is inside a call
and sends heartbeats itself. Otherwise one short, non-blocking step sends what is due and reads what came.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kconsumer.deferred_calls import get_logger

log = get_logger(__name__)

MAX_SLEEP_MS = 1000.0


class HeartbeatThread(threading.Thread):
    """Calls `step` again and again; `step` returns for how many ms there is nothing to do."""

    def __init__(self, name: str, step: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)
        self._step = step
        self._stopped = threading.Event()

    def run(self) -> None:
        """Step, sleep, repeat, until stopped. A failing step is the engine's business, never the thread's end."""
        nap_ms = 0.0
        while not self._stopped.wait(min(nap_ms, MAX_SLEEP_MS) / 1000):
            nap_ms = self._step()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread and wait for it. In a forked child there is none, and nothing is done."""
        if not self.is_alive():
            return
        self._stopped.set()
        if threading.current_thread() is not self:
            self.join(timeout_s)
