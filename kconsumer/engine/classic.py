"""ClassicDriver: managers and network on the calling thread, as in Java's classic consumer.

The calling thread holds the lock for one step at a time and never while user code runs. The heartbeat thread takes the
lock only if it is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Waiting
from kconsumer._internal.managers import FOREVER, RequestManager, UnsentRequest
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.components import ClientComponents, Group
from kconsumer.engine.driver import MAX_MANAGER_POLL_INTERVAL_MS, Driver
from kconsumer.engine.events import MAX_WAIT_MS
from kconsumer.engine.heartbeat_thread import HeartbeatThread
from kconsumer.engine.waiting import Wait
from kconsumer.errors import KafkaError

log = get_logger(__name__)

BUFFERED_POLL_INTERVAL_MS = 10.0
"""The interval of steps (ms) while polls return buffered records. `has_urgent_io` makes a step due earlier."""


class ClassicDriver(Driver):
    """Polls managers and runs the network on the calling thread. Between calls, a thread sends heartbeats."""

    def __init__(self, parts: ClientComponents, callbacks: Callbacks) -> None:
        super().__init__(parts, callbacks)
        self._thread: HeartbeatThread | None = None
        parts.use_fetch_cycle(parts.client.end_poll, parts.client.end_poll)
        parts.client.wait_inside(Waiting(parts.lock, parts.step))
        parts.client.limit_waits(parts.environment.max_wait_ms)

    def _step(self, wait: Wait, timeout_ms: float) -> None:
        parts, group = self._components, self._components.group
        if parts.turnstile.taken:
            parts.turnstile.wait()  # here the thread does not hold the lock
        may_join, failure = not self._callbacks.running, self._failure
        fetching, promise = wait.fetching, wait.promise
        with parts.changing():
            now = parts.changes.now
            if fetching and group is not None:
                # In each step, because a caller that waits long inside poll() is not idle.
                group.heartbeat.poll_started(now)
                group.commits.maybe_auto_commit(now)
            wait_ms = self._poll_managers(now, joining=wait.joining and may_join, fetching=fetching and may_join)
            has_data = fetching and parts.buffer.has_data()
            if fetching and may_join:
                commit_due = FOREVER if group is None else group.commits.auto_commit_due
                self.set_managers_due(min(now + wait_ms, commit_due))
            self.next_manager_poll = now + min(
                max(wait_ms, 1.0), BUFFERED_POLL_INTERVAL_MS if has_data else MAX_MANAGER_POLL_INTERVAL_MS
            )
            if self._callbacks.due or has_data or (promise and promise.done):
                wait_ms = 0.0
            if parts.user_calls.waiting or self._failure is not failure:  # both are due before the next wait
                wait_ms = 0.0
            wait_ms = min(wait_ms, timeout_ms, MAX_WAIT_MS)
            parts.dispatcher.step(0.0 if self.wakeup_requested and self.wakeup_enabled else wait_ms)

    def idle(self) -> bool:
        """Returns True if nothing has arrived. Changes no state, so a signal handler may run meanwhile."""
        parts = self._components
        with parts.lock:
            return parts.dispatcher.quiet and parts.client.idle(self._clock.now())

    def yield_to_network(self, timeout_ms: float) -> None:
        """Make the running poll() run the network before it returns records."""
        self.request_manager_poll()

    def flush_managers(self, *managers: RequestManager) -> None:
        """Poll these managers now, and send their requests."""
        now = self._clock.now()
        for manager in managers:
            self._poll_safely(manager, now)

    def submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send the requests whose connections are ready. The others wait for the next step."""
        self._components.dispatcher.submit(requests, now)

    def submit_if_connected(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send those of these requests whose connection is ready. Drop the others."""
        client = self._components.client
        self._components.dispatcher.submit([r for r in requests if r.node and client.ready(r.node, now)], now)

    def release_to_caller(self, timeout_s: float) -> ClassicDriver:
        """Returns this driver, which already runs the network on the calling thread."""
        return self

    # --- the heartbeat thread --------------------------------------------------------------------------------------

    def keep_alive(self) -> None:
        """Start the heartbeat thread unless it is running."""
        group = self._components.group
        if self._thread is None and group is not None:
            name = f"kconsumer-heartbeat-{group.member.group_id}"
            thread = HeartbeatThread(name, lambda: self._heartbeat_step(group), self._components.environment)
            thread.start()
            self._thread = thread

    @property
    def has_lost_thread(self) -> bool:
        thread = self._thread  # close() may set it to None
        return thread is not None and not thread.is_alive()

    def end_heartbeats(self) -> None:
        self.stop()

    def end_soon(self, at_end: Callable[[], object]) -> bool:
        thread, self._thread = self._thread, None
        return thread is not None and thread.abandon(at_end)

    def stop(self) -> None:
        """End the heartbeat thread."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def _heartbeat_step(self, group: Group) -> float:
        """Handle responses, and send a heartbeat if one is due. Returns how long (ms) the heartbeat thread may sleep.

        This is never longer than the heartbeat interval. A join may end right after this step, and then heartbeats are
        due while the rebalance callbacks run.
        """
        return min(self._heartbeat_once(group), float(self._components.config.heartbeat_interval_ms))

    def _heartbeat_once(self, group: Group) -> float:
        # If the calling thread is inside a call, its steps send heartbeats. Check again when the next one is due.
        busy_ms = group.heartbeat.time_to_next_ms(self._clock.now())
        return self._try_step(lambda now: self._send_heartbeat(group, now), busy_ms)

    def _send_heartbeat(self, group: Group, now: float) -> float:
        parts = self._components
        retry_ms = float(parts.config.retry_backoff_ms)
        # The response to a JoinGroup must be handled at once: from then on, the coordinator expects heartbeats.
        in_flight = group.heartbeat.in_flight or group.membership.in_flight
        if not group.member.heartbeating and not in_flight:
            return retry_ms
        self.flush_managers(group.heartbeat, group.coordinator)
        parts.dispatcher.step(0.0)
        in_flight = group.heartbeat.in_flight or group.membership.in_flight
        if in_flight or group.coordinator.connection_id is None or parts.client.receiving:
            return retry_ms
        return max(1.0, group.heartbeat.time_to_next_ms(now))

    def _try_step(self, step: Callable[[float], float], busy_ms: float) -> float:
        """Call `step(now)` on the heartbeat thread, unless the calling thread holds the lock. Stores errors.

        Returns how long (ms) the heartbeat thread may sleep: the result of `step`, or `busy_ms` if it was not called.
        """
        parts = self._components
        retry_ms = float(parts.config.retry_backoff_ms)
        now = self._clock.now()
        if not parts.lock.acquire(blocking=False):
            return max(retry_ms, busy_ms)
        try:
            if parts.step.waiting:  # the calling thread uses the network
                return max(retry_ms, busy_ms)
            if parts.closed or parts.step.unfinished:
                return FOREVER
            self.thread_steps += 1
            return step(now)
        except KafkaError as error:
            self._failure = error
            return retry_ms
        except Exception as error:  # the thread must not end, or the coordinator would remove the member
            log.exception("the heartbeat thread failed; it continues")
            self._failure = KafkaError(f"internal error in the heartbeat thread: {error!r}")
            return retry_ms
        finally:
            parts.lock.release()
            parts.user_calls.run()
