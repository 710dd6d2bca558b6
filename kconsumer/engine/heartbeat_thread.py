"""The thread that sends heartbeats of a classic member while the caller processes records.

The thread does nothing while the engine's lock is held. The calling thread is then inside a call, and sends heartbeats
itself. Otherwise a short, non-blocking step sends the requests that are due and handles the responses that arrived.
"""

from __future__ import annotations

from collections.abc import Callable

from kconsumer.engine.environment import Environment

MAX_SLEEP_MS = 1000.0


class HeartbeatThread:
    """Calls `step` repeatedly; `step` returns how long (ms) the thread may sleep."""

    def __init__(self, name: str, step: Callable[[], float], environment: Environment) -> None:
        self._step = step
        self._environment = environment
        self._thread = environment.thread(name, self._run)
        self._stopped = environment.event()
        self._at_end: Callable[[], object] | None = None  # set by `abandon`

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system refuses it."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Returns whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        """Call `step` and sleep in turn, until stopped. `step` handles all errors itself."""
        sleep_ms = 0.0
        while self._at_end is None and not self._stopped.wait(min(sleep_ms, MAX_SLEEP_MS) / 1000):
            sleep_ms = self._step()
        if self._at_end is not None:
            self._at_end()

    def abandon(self, at_end: Callable[[], object]) -> bool:
        """Let the thread end, and call `at_end` then. Does not wait. Returns False if the thread does not run.

        The garbage collector may call this in the middle of any code, also of this thread. This thread may have locked
        `_stopped` then, so only other threads set it.
        """
        self._at_end = at_end
        if self._environment.current_thread() is not self._thread:
            self._stopped.set()
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread and wait for it. Does nothing in a forked child, where the thread does not exist."""
        if not self._thread.is_alive():
            return
        self._stopped.set()
        if self._environment.current_thread() is not self._thread:
            self._thread.join(timeout_s)
