"""ThreadedEngine: the same calls, with managers and network on a thread of their own.

The network thread does rounds: take the caller's events, poll every manager with one `now`, send, wait for the network
without the lock, hand back answers, tell the caller if something has changed. The caller's thread mutates state and
asks managers under the lock, but never touches a socket; it waits for the signal. Records cross as whole batches in
the fetch buffer and are decoded by the caller's thread.

close() ends the thread first and then drives what is left, as the classic engine does, on the caller's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any

from kconsumer.assignors import Assignor
from kconsumer.clock import Clock, Timer
from kconsumer.config import ConsumerConfig
from kconsumer.engine.classic import ClassicEngine
from kconsumer.engine.driver import LONGEST_SERVICE_GAP_MS
from kconsumer.engine.events import (
    BETWEEN,
    EXPIRED,
    GROUP,
    HANDLED,
    UNSENT,
    ApplicationEvent,
    ApplicationEvents,
    Signal,
)
from kconsumer.engine.network_thread import NetworkThread
from kconsumer.errors import KafkaError, TimeoutError
from kconsumer.net.messages import ClientResponse
from kconsumer.requests.base import Promise, RequestManager, UnsentRequest

log = logging.getLogger(__name__)

IDLE = ApplicationEvent(open=False)
GIVE_WAY_MS = 1.0  # to a caller who waits for what has come
LEAVE_WAIT_MS = 1000.0  # that unsubscribe() waits for the coordinator to take note


class ThreadedEngine(ClassicEngine):
    """One consumer whose network has a thread of its own."""

    def __init__(self, config: ConsumerConfig, clock: Clock, assignors: Collection[Assignor]) -> None:
        super().__init__(config, clock, assignors)
        metrics = self.parts.metrics
        self._events = ApplicationEvents(metrics)
        self._signal = Signal(metrics, clock)
        self._between = metrics.sensor(GROUP, BETWEEN)
        self._handled = metrics.sensor(GROUP, HANDLED)
        self._expired = metrics.sensor(GROUP, EXPIRED)
        self.parts.client.writes_later = True
        self.parts.dispatcher.on_sent = metrics.sensor(GROUP, UNSENT).record
        name = metrics.name("unsent-requests-queue-size", GROUP, "Requests that wait for their connection")
        metrics.gauge(name, lambda _now: float(self.parts.dispatcher.waiting))
        self._network: NetworkThread | None = None
        self._closing = False
        self._event = IDLE  # the last one taken from the queue
        self._round_began: float | None = None
        self._fetch_until = 0.0  # the caller polls: fetch ahead until then, without being asked again

    # --- the caller's thread ---------------------------------------------------------------------------------------

    def _step(
        self,
        timeout_ms: float,
        *,
        joining: bool = False,
        fetching: bool = False,
        promise: Promise[Any] | None = None,
    ) -> None:
        """Wait until something has changed, at most `timeout_ms`, while the network thread does what is needed."""
        if not self._running():
            super()._step(timeout_ms, joining=joining, fetching=fetching, promise=promise)
            return
        event = ApplicationEvent(joining and not self._in_callback, fetching and not self._in_callback)
        try:
            now = self._clock.now()
            if fetching:
                self._poll_began(event, now)
            # A look without waiting needs no round if one was asked for a moment ago: the wait after it asks again.
            if timeout_ms > 0 or not fetching or now >= self._service_at:
                self._events.put(event, now)
                self.parts.client.wakeup()
                self._service_at = now + LONGEST_SERVICE_GAP_MS
            if self._wakeup or self._callback_due() or (fetching and self.parts.buffer.has_data()):
                timeout_ms = 0.0
            if promise is not None and promise.done:
                timeout_ms = 0.0
            self._signal.wait(timeout_ms)
        finally:
            event.open = False

    def _has_unread(self) -> bool:
        """Answers are looked at by the network thread."""
        return False

    def _news(self) -> bool:
        return self._signal.given or self.callbacks.commits_wait

    def _poll_began(self, event: ApplicationEvent, now: float) -> None:
        """What must be decided before records are returned, as in Java's AsyncPollEvent, which the caller waits for:
        what to commit, and which partitions the group takes away."""
        with self.lock:
            self.parts.subscription.now = now
            if self.parts.group is not None:
                self.heartbeat.poll_started(now)
                self.parts.group.commits.maybe_auto_commit(now)
            if event.joining and self.membership is not None:
                requests = self.membership.poll(now).requests
                if requests:
                    self._submit(requests, now)

    def _send_soon(self, *managers: RequestManager) -> None:
        if not self._running():
            super()._send_soon(*managers)
        elif managers == (self.parts.fetch,):
            # Asked here: the network thread is woken only if there is a fetch to send.
            now = self._clock.now()
            requests = self.parts.fetch.poll(now).requests
            if requests:
                self._submit(requests, now)
        else:
            self.parts.client.wakeup()

    def _submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        if self._running():
            self.parts.dispatcher.hold(requests, now)
            self.parts.client.wakeup()
        else:
            super()._submit(requests, now)

    def _run_callbacks(self) -> None:
        if not self._callback_due():
            return
        began = self._clock.now()
        try:
            super()._run_callbacks()
        finally:
            self.parts.client.wakeup()  # positions of what was assigned are looked up now
            now = self._clock.now()
            self._handled.record(now - began, now)

    def timeout_error(self, what: str, topics: Iterable[str] = (), cause: BaseException | None = None) -> TimeoutError:
        """A TimeoutError that says what is in the way, as far as the client knows."""
        self._expired.record(1, self._clock.now())
        with self.lock:
            return super().timeout_error(what, topics, cause)

    def _raise_errors(self, *, positions: bool = False) -> None:
        with self.lock:
            super()._raise_errors(positions=positions)

    def _running(self) -> bool:
        """Whether the network thread has the network; started by the first call that needs it."""
        if self._network is None:
            if self._closing:
                return False
            group = f"-{self.parts.group.member.group_id}" if self.parts.group is not None else ""
            network = NetworkThread(f"kconsumer-network{group}", self._round, self.parts.client.wakeup)
            try:
                network.start()
            except BaseException:  # no thread to be had, or Ctrl-C: the next call tries again
                network.stop()
                raise
            self._network = network
        return True

    def _leave(self, reason: str, leave_group: bool | None) -> None:
        try:
            super()._leave(reason, leave_group)
        finally:
            left, limit = self._left, Timer(self._clock, LEAVE_WAIT_MS)
            while left is not None and not left.done and not limit.expired and self._running():
                self._step(limit.remaining_ms(), promise=left)

    def wakeup(self) -> None:
        """End the running or the next blocking call. From any thread or signal handler."""
        super().wakeup()
        self._signal.give()

    def start_heartbeats(self) -> None:
        """Nothing: the network thread sends them."""

    def close(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> None:
        """Take the network back from its thread, then close as the classic engine does."""
        self._take_back()
        super().close(timer, leave_group, auto_commit=auto_commit)

    def abandon(self) -> None:
        """Forget sockets and thread without saying goodbye."""
        self._take_back()
        super().abandon()

    def _take_back(self) -> None:
        self._closing = True
        if self._network is not None:
            self._network.stop()
            self._network = None
            self.parts.client.writes_later = False

    # --- the network thread ----------------------------------------------------------------------------------------

    def _round(self) -> None:
        """One round: events, managers, network, answers."""
        with self.lock:
            now = self._clock.now()
            if self._round_began is not None:
                self._between.record(now - self._round_began, now)
            self._round_began = now
            wait_ms = self._poll_managers(now)
        client = self.parts.client
        if self._take_answers(client.poll(wait_ms, self._clock.now())):
            self._take_answers(client.poll(GIVE_WAY_MS, self._clock.now()))

    def _take_answers(self, responses: list[ClientResponse]) -> bool:
        """Hand answers back, and have the next fetch on its way while the caller wakes up. Whether the caller waits for
        records that have come: then it should have the GIL, and not the next round of managers."""
        parts = self.parts
        with self.lock:
            try:
                ended = parts.dispatcher.end_step(responses)
            except KafkaError as error:
                self._thread_error, ended = error, True
            now = self._clock.now()
            if responses and now < self._fetch_until and parts.fetch.wants_poll:
                self._poll_safely(parts.fetch, now)
        if ended:
            self._signal.give()
        if not responses:
            return False
        parts.client.flush(now)
        return self._event.open and self._event.fetching and parts.buffer.has_data()

    def _poll_managers(self, now: float) -> float:
        """Poll every manager once and send; how long the network may wait."""
        parts = self.parts
        parts.subscription.now = now
        self._take_events(now)
        wait_ms = min(self._poll_safely(manager, now) for manager in self._managers)
        if self._event.open and self._event.joining and self.membership is not None:
            wait_ms = min(wait_ms, self._poll_safely(self.membership, now))
        if now < self._fetch_until:
            wait_ms = min(wait_ms, self._poll_safely(parts.fetch, now))
        parts.rebootstrap_if_wanted()
        if wait_ms <= 0 or self._callback_due():
            self._signal.give()
        return parts.dispatcher.begin_step(wait_ms, now)

    def _take_events(self, now: float) -> None:
        taken = False
        for event in self._events.drain(now):
            self._event, taken = event, True
        if self._event.fetching and (taken or self._event.open):
            self._fetch_until = now + self._config.max_poll_interval_ms
            if self.parts.group is not None and self._event.open:
                self.heartbeat.poll_started(now)  # again and again: a long poll() is not an idle caller
        if taken:
            self._events.processed(self._clock.now() - now, now)

    def _poll_safely(self, manager: RequestManager, now: float) -> float:
        """A manager that fails does not stop the others: the caller's next call raises what it raised."""
        try:
            return self._poll_manager(manager, now)
        except KafkaError as error:
            self._thread_error = error
        except Exception as error:
            log.exception("%r failed", manager)
            self._thread_error = KafkaError(f"internal error in {type(manager).__name__}: {error!r}")
        self._signal.give()
        return float(self._config.retry_backoff_ms)
