"""ShareDriver: managers and network of a share consumer on the calling thread.

A ShareFetch acquires few records, so a cycle of request and response must cost little. No other thread takes part in
it: the calling thread writes the request, waits for the socket, and handles the response. In the steady state it polls
only the manager that fetches. Between calls, a thread sends heartbeats, and retries acknowledgements.
"""

from __future__ import annotations

from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.heartbeat_thread import HeartbeatThread
from kconsumer.share.components import ShareComponents


class ShareDriver(ClassicDriver):
    """Polls managers and runs the network on the calling thread."""

    _components: ShareComponents

    def keep_alive(self) -> None:
        if self._thread is None:
            parts = self._components
            thread = HeartbeatThread(
                f"kconsumer-heartbeat-{parts.group_id}", self._step_between_calls, parts.environment
            )
            thread.start()
            self._thread = thread

    def release_to_caller(self, timeout_s: float) -> ClassicDriver:
        """End the heartbeat thread. Returns this driver."""
        self.stop()
        return self

    def _step_between_calls(self) -> float:
        """Send requests that are due, and handle responses. Returns how long (ms) the heartbeat thread may sleep."""
        return self._try_step(self._run_managers, self._components.membership.time_to_next_ms(self._clock.now()))

    def _run_managers(self, now: float) -> float:
        parts = self._components
        parts.changes.set_now(now)
        wait_ms = self._poll_managers(now, joining=False, fetching=False)
        self.set_managers_due(now + wait_ms)
        parts.dispatcher.step(0.0)
        return max(1.0, wait_ms) if parts.dispatcher.idle else float(parts.config.retry_backoff_ms)
