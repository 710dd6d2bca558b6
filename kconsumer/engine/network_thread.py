"""The thread of a ThreadedDriver, which runs managers and network until it is stopped.

The thread decides only how long to wait after a failed iteration. The driver decides what an iteration does.
"""

from __future__ import annotations

from collections.abc import Callable

from kconsumer._common.deferred_calls import get_logger
from kconsumer.engine.environment import Environment

log = get_logger(__name__)

FAILURE_BACKOFF_S = 0.1


class NetworkThread:
    """Calls `run_once` repeatedly. `wake` ends the wait for the network inside `run_once`."""

    def __init__(
        self,
        name: str,
        run_once: Callable[[], None],
        wake: Callable[[], None],
        environment: Environment,
        begin: Callable[[], object] = bool,
    ) -> None:
        """Create the thread, which calls `begin` once when it starts."""
        self.name = name
        self._run_once = run_once
        self._wake = wake
        self._environment = environment
        self._begin = begin
        self._thread = environment.thread(name, self._run)
        self._stopped = environment.event()
        self._at_end: Callable[[], object] | None = None
        self._abandoned = False

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system refuses it."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Returns whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        """Run iterations until stopped. A failed iteration does not end the thread."""
        self._begin()
        while not self._stopped.is_set() and not self._abandoned:
            try:
                self._run_once()
            except Exception:
                if not self._stopped.is_set():
                    log.exception("%s failed; it continues", self.name)
                    self._stopped.wait(FAILURE_BACKOFF_S)
        if self._at_end is not None:
            self._at_end()

    def when_ended(self, function: Callable[[], object]) -> None:
        """Call `function` when the thread ends, or now if the thread has ended. The function may be called twice."""
        self._at_end = function
        if not self.is_alive():
            function()

    def abandon(self, at_end: Callable[[], object]) -> bool:
        """Let the thread end, and call `at_end` then. Does not wait. Returns False if the thread does not run.

        The garbage collector may call this in the middle of any code, also of this thread. So it uses no lock.
        """
        self._at_end = at_end
        self._abandoned = True
        self._wake()
        return self.is_alive()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread and wait up to `timeout_s` for its end. Returns True if it has ended.

        In a forked child the thread does not exist, and the result is True.
        """
        self._stopped.set()  # in any case: a thread whose start() was interrupted may still begin to run
        if not self.is_alive():
            return True
        self._wake()
        if self._environment.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self.is_alive()
