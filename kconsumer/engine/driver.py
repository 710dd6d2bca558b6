"""Driving managers and network on the caller's thread: one lock, one step, callbacks between steps, heartbeats.

The caller holds the lock for one step at a time and never while user code runs; the heartbeat thread takes it only
when it is free. What each public call does with this is in `classic.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from kconsumer.assignors import Assignor
from kconsumer.clock import Clock, Timer
from kconsumer.config import ConsumerConfig
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.heartbeat_thread import HeartbeatThread
from kconsumer.engine.interceptors import Interceptors
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.wiring import Group, Membership, Parts, make_membership
from kconsumer.errors import KafkaError, StateError, TimeoutError, WakeupError
from kconsumer.membership.steps import CallbackKind, RebalanceCallback
from kconsumer.requests.base import FOREVER, Promise, RequestManager, UnsentRequest

log = logging.getLogger(__name__)

T = TypeVar("T")
LONGEST_SERVICE_GAP_MS = 50.0


class ClassicDriver:
    """Drives one consumer's managers from the thread that calls it."""

    def __init__(self, config: ConsumerConfig, clock: Clock, assignors: Collection[Assignor]) -> None:
        self.parts = parts = Parts(config, clock)
        self.callbacks = Callbacks()
        self.interceptors = Interceptors(config.interceptors) if config.interceptors else None
        self.lock = threading.RLock()
        self._config = config
        self._clock = clock
        self._wakeup = False
        self._wakeup_enabled = True
        self._in_callback = False
        self._giving_up = False  # inside on_revoke or on_lost
        self._thread: HeartbeatThread | None = None
        self._thread_error: KafkaError | None = None
        self._metrics = ConsumerMetrics(parts.metrics)
        self._quick_poll = self._metrics.quick.append
        self._service_at = 0.0  # until then, and while data is buffered, no manager needs to be polled
        self._errors: list[Callable[[], KafkaError | None]] = [parts.metadata.take_error]
        # Only for calls that need positions: whoever looks for the end of a truncated log must be told the end.
        self._position_errors = [parts.offsets.take_error, parts.positions.take_error]
        self.membership: Membership | None = None
        self._managers: list[RequestManager] = [parts.metadata, parts.positions, parts.offsets]
        if parts.group is not None:
            self._join_wiring(parts.group, assignors)

    def _join_wiring(self, group: Group, assignors: Collection[Assignor]) -> None:
        parts = self.parts
        self.membership, self.heartbeat = make_membership(parts, group, assignors)
        group.coordinator.on_found.append(self._coordinator_found)
        if self.interceptors is not None:
            group.commits.on_committed = partial(self.callbacks.committed, self.interceptors.committed)
        if self._config.on_commit is not None:
            group.commits.on_auto_commit = partial(self.callbacks.commit_finished, self._config.on_commit)
        self._managers = [
            parts.metadata,
            self.heartbeat,
            parts.positions,
            group.commits,
            parts.offsets,
            group.coordinator,
        ]
        self._errors += [
            group.coordinator.take_error,
            self.heartbeat.take_error,
            self.membership.take_error,
            group.commits.take_error,
        ]

    def _coordinator_found(self, now: float) -> None:
        self.parts.share_nodes()
        self.heartbeat.session_restarted(now)

    # --- driving ---------------------------------------------------------------------------------------------------

    def _step(
        self,
        timeout_ms: float,
        *,
        joining: bool = False,
        fetching: bool = False,
        promise: Promise[Any] | None = None,
    ) -> None:
        """Poll the managers once and do one network step of at most `timeout_ms`, less if `promise` is done.

        Joining the group and fetching happen inside poll() only; inside a rebalance callback neither does.
        """
        parts = self.parts
        with self.lock:
            now = self._clock.now()
            parts.subscription.now = now
            if fetching and parts.group is not None:
                self.heartbeat.poll_started(now)  # again and again: a long poll() is not an idle caller
                parts.group.commits.maybe_auto_commit(now)
            wait_ms = FOREVER
            for manager in self._managers:
                wait_ms = min(wait_ms, self._poll_manager(manager, now))
            if joining and self.membership is not None and not self._in_callback:
                wait_ms = min(wait_ms, self._poll_manager(self.membership, now))
            if fetching and not self._in_callback:
                wait_ms = min(wait_ms, self._poll_manager(parts.fetch, now))
            if self._callback_due() or (fetching and parts.buffer.has_data()) or (promise and promise.done):
                wait_ms = 0.0
            parts.rebootstrap_if_wanted()
            self._service_at = now + min(max(wait_ms, 1.0), LONGEST_SERVICE_GAP_MS)
            parts.dispatcher.step(0.0 if self._wakeup else min(wait_ms, timeout_ms))

    def _callback_due(self) -> bool:
        return self.membership is not None and not self._in_callback and self.membership.due_callback is not None

    def _poll_manager(self, manager: RequestManager, now: float) -> float:
        result = manager.poll(now)
        if result.disconnect is not None:
            self.parts.dispatcher.disconnect(result.disconnect, now)
        if result.requests:
            self.parts.dispatcher.submit(result.requests, now)
        return result.wait_ms

    def _send_soon(self, *managers: RequestManager) -> None:
        """Managers have something to send: do it without waiting for the next step. The lock is held."""
        now = self._clock.now()
        for manager in managers:
            self._poll_manager(manager, now)

    def _submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send these. The lock is held."""
        self.parts.dispatcher.submit(requests, now)

    def _run_callbacks(self) -> None:
        """Run the rebalance callbacks that are due; the first error is raised after the last one ran."""
        membership = self.membership
        if membership is None or self._in_callback or membership.due_callback is None:
            return
        trouble: Exception | None = None
        while (callback := membership.due_callback) is not None:
            with self.lock:
                membership.callback_began(callback)
            error = self._run_callback(callback)
            with self.changing():
                membership.callback_done(callback, self._clock.now(), error)
            trouble = trouble or error
        self._service_at = 0.0
        if trouble is not None:
            raise trouble

    def _run_callback(self, callback: RebalanceCallback) -> Exception | None:
        before = self._in_callback, self._giving_up
        self._in_callback = True
        self._giving_up |= callback.kind is not CallbackKind.ASSIGNED
        began = self._clock.now()
        try:
            self.callbacks.run(callback)
        except Exception as error:  # user code may raise anything; it is raised again once the rebalance went on
            return error
        finally:
            self._in_callback, self._giving_up = before
            if self.callbacks.listener is not None:
                now = self._clock.now()
                self._group().metrics.callback_ran(callback.kind.value, now - began, now)
        return None

    def _raise_errors(self, *, positions: bool = False) -> None:
        if self._thread_error is not None:
            error, self._thread_error = self._thread_error, None
            raise error
        for take in [*self._errors, *self._position_errors] if positions else self._errors:
            trouble = take()
            if trouble is not None:
                raise trouble

    def _raise_wakeup(self) -> None:
        if self._wakeup and self._wakeup_enabled:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def wait(self, promise: Promise[T], timer: Timer, what: str, topics: Iterable[str] = ()) -> T:
        """Drive managers and network until the promise is kept. Raises its error, TimeoutError or WakeupError."""
        try:
            self._raise_wakeup()
            while not promise.done and not timer.expired:
                self._step(timer.remaining_ms(), promise=promise)
                if not promise.done:
                    self._raise_wakeup()
                    self._raise_errors()
        except KafkaError as error:
            promise.fail(error)  # nobody waits any more: let its manager give up
            raise
        if promise.done and not isinstance(promise.error, TimeoutError):
            return promise.result()
        cause = promise.error.__cause__ if promise.error is not None else None
        timed_out = self.timeout_error(what, topics, cause)
        promise.fail(timed_out)
        raise timed_out from cause

    def timeout_error(self, what: str, topics: Iterable[str] = (), cause: BaseException | None = None) -> TimeoutError:
        """A TimeoutError that says what is in the way, as far as the client knows."""
        parts = self.parts
        reasons = [
            parts.client.trouble(self._clock.now()),
            *(parts.metadata.hint(topic) for topic in sorted(set(topics))),
        ]
        trouble: object = "; ".join(filter(None, reasons)) or cause or parts.metadata.last_error
        if not trouble and parts.group is not None and parts.group.coordinator.connection is None:
            trouble = parts.group.coordinator.last_error
        return TimeoutError(f"{what} did not finish in time" + (f": {trouble}" if trouble else ""))

    def now(self) -> float:
        """The engine's time (ms)."""
        return self._clock.now()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock while the caller changes states, which remember when that was."""
        with self.lock:
            self.parts.subscription.now = self._clock.now()
            yield

    def wakeup(self) -> None:
        """End the running or the next blocking call. From any thread or signal handler."""
        self._wakeup = True
        self.parts.client.wakeup()

    def _group(self) -> Group:
        group = self.parts.group
        if group is None:
            raise StateError("this needs a consumer group: give group_id=… to Consumer")
        return group

    # --- the heartbeat thread --------------------------------------------------------------------------------------

    def _heartbeat_step(self) -> float:
        """One round of the heartbeat thread; the answer is how long it may sleep (ms).

        Never longer than the heartbeat interval: a join may end right after this round, and the callbacks that follow
        may take long.
        """
        return min(self._heartbeat_round(), float(self._config.heartbeat_interval_ms))

    def _heartbeat_round(self) -> float:
        retry_ms = float(self._config.retry_backoff_ms)
        now = self._clock.now()
        if not self.lock.acquire(blocking=False):
            # The caller is inside a call and drives the heartbeat itself; look again when the next one is due.
            return max(retry_ms, self.heartbeat.due(now))
        try:
            group = self.parts.group
            if group is None or (not group.member.heartbeating and not self.heartbeat.in_flight):
                return retry_ms
            for manager in (self.heartbeat, group.coordinator):
                self._poll_manager(manager, now)
            self.parts.dispatcher.step(0.0)
            if self.heartbeat.in_flight or group.coordinator.connection is None:
                return retry_ms
            return max(1.0, self.heartbeat.due(now))
        except KafkaError as error:
            self._thread_error = error
            return retry_ms
        finally:
            self.lock.release()

    def start_heartbeats(self) -> None:
        """Start the heartbeat thread unless it runs."""
        if self._thread is None and self.parts.group is not None:
            self._thread = HeartbeatThread(
                f"kconsumer-heartbeat-{self.parts.group.member.group_id}", self._heartbeat_step
            )
            self._thread.start()

    def stop_heartbeats(self) -> None:
        """End the heartbeat thread."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
