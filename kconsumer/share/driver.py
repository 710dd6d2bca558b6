"""ShareDriver: managers and network of a share consumer on the calling thread.

A ShareFetch acquires few records, so a cycle of request and response must cost little. No other thread takes part in
it: the calling thread writes the request, waits for the socket, and handles the response. In the steady state it polls
only the manager that fetches. Between calls, a thread sends heartbeats, and retries acknowledgements.
"""

from __future__ import annotations

from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.events import MAX_WAIT_MS
from kconsumer.engine.heartbeat_thread import HeartbeatThread
from kconsumer.engine.waiting import Wait
from kconsumer.share.components import ShareComponents


class ShareDriver(ClassicDriver):
    """Polls managers and runs the network on the calling thread."""

    _components: ShareComponents

    def __init__(self, parts: ShareComponents, callbacks: Callbacks) -> None:
        super().__init__(parts, callbacks)
        #: When a manager must be polled (ms), and the number of other requests that had ended when all were polled.
        self._managers_due = 0.0, -1
        self._polled_all = False  # all managers were polled since `raise_errors` was called last

    def _step(self, wait: Wait, timeout_ms: float) -> None:
        parts = self._components
        if parts.turnstile.taken:
            parts.turnstile.wait()  # here the thread does not hold the lock
        with parts.changing():
            now = parts.changes.now
            wait_ms = self._poll_due_managers(now) if wait.fetching else self._poll_all(now)
            if self._must_not_wait(wait):
                wait_ms = 0.0
            parts.dispatcher.step(min(wait_ms, timeout_ms, MAX_WAIT_MS))
            self._after_step(wait)

    def request_manager_poll(self) -> None:
        """Make the next step poll all managers."""
        super().request_manager_poll()
        self._managers_due = 0.0, -1

    def _poll_due_managers(self, now: float) -> float:
        """Poll all managers if one of them is due, or if a request has ended that may concern it.

        Otherwise poll only the one that fetches. Returns how long (ms) to wait.
        """
        parts = self._components
        due, ended = self._managers_due
        if now >= due or ended != self._other_requests_ended or not parts.dispatcher.quiet:
            return self._poll_all(now)
        return due - now if parts.fetch.awaits_responses else min(self._poll_safely(parts.fetch, now), due - now)

    @property
    def _other_requests_ended(self) -> int:
        """The number of requests that have ended, without the fetches that concern no other manager."""
        return self._components.dispatcher.ended - self._components.fetch.ordinary_responses

    def _poll_all(self, now: float) -> float:
        """Poll all managers. Returns the time (ms) until one is due again."""
        wait_ms = self._poll_managers(now, joining=False, fetching=False)
        self._managers_due = now + wait_ms, self._other_requests_ended
        self._polled_all = True
        return wait_ms

    def raise_errors(self, *, positions: bool = False) -> None:
        """Raise an error as `Driver` does. Asks the managers for errors only if all of them were polled since the last
        call, because the polls of a busy consumer poll only one of them, many times per second."""
        if self._polled_all or self._failure is not None:
            self._polled_all = False
            super().raise_errors(positions=positions)

    def _must_not_wait(self, wait: Wait) -> bool:
        """Returns True if something must be done before the calling thread waits for the network."""
        parts, promise = self._components, wait.promise
        return bool(
            (promise and promise.done)
            or (wait.fetching and parts.buffer.has_data())
            or self._callbacks.due
            or self._failure is not None
            or parts.user_calls.waiting
            or (self.wakeup_requested and self.wakeup_enabled)
        )

    def _after_step(self, wait: Wait) -> None:
        """Send the next fetch if records have arrived, before the caller processes them."""
        parts = self._components
        if wait.fetching and parts.buffer.has_data() and parts.fetch.needs_poll:
            self._poll_safely(parts.fetch, parts.changes.now)

    # --- the heartbeat thread --------------------------------------------------------------------------------------

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
        wait_ms = self._poll_all(now)
        parts.dispatcher.step(0.0)
        return max(1.0, wait_ms) if parts.dispatcher.idle else float(parts.config.retry_backoff_ms)
