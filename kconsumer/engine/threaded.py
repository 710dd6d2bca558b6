"""ThreadedDriver: managers and network on a thread of their own (Java `AsyncKafkaConsumer`).

The network thread repeats these steps: take the caller's events, poll every manager with the same `now`, send their
requests, wait for the network without the lock, handle responses, and signal the calling thread if anything has
changed. The calling thread changes state and polls managers only under the lock. It waits for the signal, and never
uses a socket. It takes whole batches from the fetch buffer and decodes them.

close() ends the network thread. From then on the calling thread runs the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer._internal.managers import FOREVER, RequestManager, UnsentRequest
from kconsumer._internal.requests import Ended
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.components import ClientComponents
from kconsumer.engine.driver import MAX_MANAGER_POLL_INTERVAL_MS, Driver
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
from kconsumer.engine.waiting import Wait
from kconsumer.errors import KafkaError, StateError, TimeoutError
from kconsumer.types import TopicPartition

log = get_logger(__name__)

IDLE = ApplicationEvent(active=False)
MAX_EVENT_INTERVAL_MS = 1000.0
"""How often (ms) a poll that waits for records checks for errors of managers, and notifies the network thread, so that
this continues to fetch."""
YIELD_MS = 1.0  # how long one thread releases the GIL for urgent work of the other


class ThreadedDriver(Driver):
    """Makes the calling thread wait while a network thread polls the managers and uses the sockets.

    The first call that needs the network thread starts it.
    """

    leave_wait_ms = 1000.0

    def __init__(self, parts: ClientComponents, callbacks: Callbacks) -> None:
        super().__init__(parts, callbacks)
        metrics = parts.metrics
        self._events = ApplicationEvents(metrics)
        self._signal = self._make_signal()
        self._notify = self._signal.notify
        self._between = metrics.sensor(GROUP, BETWEEN)
        self._expired = metrics.sensor(GROUP, EXPIRED)
        self._handled = metrics.sensor(GROUP, HANDLED)
        callbacks.on_ran.append(self._callbacks_ran)
        parts.set_end_wait(self._end_wait)
        parts.client.defer_writes(True)
        parts.use_fetch_cycle(self._signal.notify, parts.client.end_poll)
        parts.dispatcher.on_sent.append(metrics.sensor(GROUP, UNSENT).record)
        name = metrics.name("unsent-requests-queue-size", GROUP, "Requests that wait for their connection")
        metrics.gauge(name, lambda _now: float(parts.dispatcher.waiting))
        self._network: NetworkThread | None = None
        self._retired = False  # True once close() has begun: no network thread may be started again
        self._fetch_event = IDLE  # the event of the last poll()
        self._event = IDLE  # the last event that the network thread has taken
        self._yielding = False  # the calling thread waits until the network thread has sent the fetches
        self._run_began: float | None = None
        self._fetch_until = 0.0  # ms; the network thread fetches ahead until then, even without an event

    def _make_signal(self) -> Signal:
        parts = self._components
        return Signal(parts.metrics, parts.clock, parts.environment.lock(), parts.environment.max_wait_ms)

    # --- the calling thread ---------------------------------------------------------------------------------------

    def _step(self, wait: Wait, timeout_ms: float) -> None:
        may_join = not self._callbacks.running
        event = ApplicationEvent(wait.joining and may_join, wait.fetching and may_join)
        try:
            self._signal.wait(self._begin_wait(wait, event, timeout_ms))
        finally:
            event.wait_ended()

    def _begin_wait(self, wait: Wait, event: ApplicationEvent, timeout_ms: float) -> float:
        """Report to the network thread what the calling thread waits for. Returns how long (ms) it may wait."""
        self._start()
        fetching, promise = wait.fetching, wait.promise
        now = self._clock.now()
        if fetching:
            self._fetch_event = event
            self._poll_began(event, now)
        # A wait that does not block needs no event if one was queued a moment ago: the next wait queues another.
        if timeout_ms > 0 or not fetching or now >= self.next_manager_poll:
            self._events.put(event, now)
            self._components.client.wakeup()
            self.next_manager_poll = now + MAX_MANAGER_POLL_INTERVAL_MS
            group = self._components.group
            commit_due = FOREVER if group is None else group.commits.auto_commit_due
            self.set_managers_due(min(now + MAX_EVENT_INTERVAL_MS, commit_due))
        if self.wakeup_requested and self.wakeup_enabled:
            return 0.0
        # Only a poll runs callbacks. Other calls would poll without waiting until they end, and block an event loop.
        if fetching and (self._callbacks.due or self._components.buffer.has_data()):
            return 0.0
        if promise is not None and promise.done:
            return 0.0
        # A manager that sets an error when it is polled, or ends a promise at its deadline, does not notify the caller.
        return min(timeout_ms, MAX_EVENT_INTERVAL_MS if fetching else MAX_MANAGER_POLL_INTERVAL_MS)

    def _start(self) -> None:
        if self._network is None:
            with self._components.lock:  # a thread that commits may be here at the same time
                if self._network is None:
                    self._network = self._start_network()

    def _start_network(self) -> NetworkThread:
        parts = self._components
        if self._retired:
            raise StateError("this consumer was closed while the call was waiting")
        group = "" if parts.group_id is None else f"-{parts.group_id}"
        network = NetworkThread(
            f"kconsumer-network{group}",
            self._run_once,
            parts.client.wakeup,
            parts.environment,
            parts.user_calls.bind_thread,
        )
        try:
            network.start()
        except BaseException:  # the system refused a thread, or Ctrl-C: the next call tries again
            network.stop()
            raise
        return network

    def _poll_began(self, event: ApplicationEvent, now: float) -> None:
        """Start a due auto-commit and poll the membership before this poll() returns records.

        Then the auto-commit contains only records of earlier polls, and poll() returns no records of partitions that
        the group revokes. In Java, the caller waits for an AsyncPollEvent for the same reason.
        """
        parts, group = self._components, self._components.group
        if group is None:
            return
        with parts.changing():
            group.heartbeat.poll_started(now)
            if group.commits.maybe_auto_commit(now):
                # The wait of this poll may need no event, so nothing else wakes the network thread to send the commit.
                parts.client.wakeup()
            if event.joining:
                self._poll_safely(group.membership, now, self.submit)

    def _callbacks_ran(self, took_ms: float, now: float) -> None:
        self._components.client.wakeup()  # so that positions of new partitions are looked up now
        self._handled.record(took_ms, now)

    def wait_for_activity(self, timeout_ms: float) -> bool:
        """Wait up to `timeout_ms` for records, a wakeup, callbacks or an error. Returns False after the timeout.

        The network thread continues to fetch and to poll managers. Signals for other reasons do not end the wait.
        """
        if timeout_ms <= 0:
            return self._signal.is_set
        event = self._fetch_event
        until = self._clock.now() + timeout_ms
        event.wait_began()
        try:
            while self._signal.wait(timeout_ms):
                if self._has_changes():
                    return True
                timeout_ms = until - self._clock.now()
            return False
        finally:
            event.wait_ended()

    def _has_changes(self) -> bool:
        """Returns True if there is something for which a poll must end its wait."""
        callbacks = self._callbacks
        return (
            self._components.buffer.has_data()
            or self.wakeup_requested
            or callbacks.due
            or callbacks.commits_pending
            or self._failure is not None
            or (SIGNALS.held and bool(SIGNALS.noted))
            or any(source.has_error for source in (*self._errors, *self._position_errors))
        )

    def idle(self) -> bool:
        """Returns True if the network thread has not signalled since the last wait."""
        return not self._signal.is_set

    def yield_to_network(self, timeout_ms: float) -> None:
        """Release the GIL briefly, so that the network thread can send the fetch or start the background receiver.

        Otherwise that thread would wait up to 5 ms for the GIL (the switch interval), and the connection would be idle.
        A poll that is about to wait for records releases the GIL anyway, and nothing is done.
        """
        if timeout_ms > 0 and not self._components.buffer.has_data():
            return
        self._signal.wait(0.0)  # clear the flag: an older signal must not end the next wait
        self._yielding = True
        if self.has_urgent_io:  # else the network thread has sent the fetch before it could see `_yielding`
            self._signal.wait(YIELD_MS)
        self._yielding = False
        self._signal.notify()  # set the flag again: the signal may have reported another change

    def flush_managers(self, *managers: RequestManager) -> None:
        """Wake the network thread, which polls these managers and sends their requests.

        Only the fetch manager is polled on the calling thread. The network thread is then woken if there is a fetch to
        send.
        """
        self._start()
        fetch = self._components.fetch
        if managers == (fetch,):
            now = self._clock.now()
            requests = fetch.poll(now).requests
            if requests:
                self.submit(requests, now)
                self._fetches_created += 1
        else:
            self._components.client.wakeup()

    def submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Queue these requests. The network thread sends them in its next iteration."""
        self._start()
        self._components.dispatcher.enqueue(requests, now)
        self._components.client.wakeup()

    def submit_if_connected(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Queue these requests for the network thread, if it runs."""
        if self._network is not None:
            self.submit(requests, now)

    def timeout_error(
        self, what: str, partitions: Iterable[TopicPartition] = (), cause: BaseException | None = None
    ) -> TimeoutError:
        """Returns a TimeoutError for the call `what`, and counts it in the metrics."""
        self._expired.record(1, self._clock.now())
        return super().timeout_error(what, partitions, cause)

    def _end_wait(self) -> None:
        self._components.client.wakeup()
        self._signal.notify()

    def keep_alive(self) -> None:
        """Do nothing, because the network thread sends heartbeats."""

    def release_to_caller(self, timeout_s: float) -> ClassicDriver | None:
        """End the network thread. Returns a driver that runs the network on the calling thread.

        Returns None if the thread does not end within `timeout_s`. The thread closes the connections when it ends.
        """
        self._retired = True
        network, self._network = self._network, None
        if network is not None and not network.stop(timeout_s):
            network.when_ended(self._components.client.close)
            return None
        self._components.client.defer_writes(False)
        return ClassicDriver(self._components, self._callbacks)

    def end_soon(self, at_end: Callable[[], object]) -> bool:
        self._retired = True
        network, self._network = self._network, None
        return network is not None and network.abandon(at_end)

    def inherited(self) -> ClassicDriver:
        self._components.client.defer_writes(False)
        return ClassicDriver(self._components, self._callbacks)

    @property
    def has_lost_thread(self) -> bool:
        network = self._network  # close() may set it to None
        return network is not None and not network.is_alive()

    def stop(self) -> None:
        """End the network thread."""
        if self._network is not None:
            self._network.stop()
            self._network = None

    # --- the network thread ----------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one iteration: take events, poll managers, run the network, handle responses."""
        client = self._components.client
        wait_ms = self._poll_and_write()
        if self._deliver_responses(client.poll(wait_ms, self._clock.now())):
            self._deliver_responses(client.poll(YIELD_MS, self._clock.now()))

    def _record_interval(self, now: float) -> None:
        """Record the time since the last iteration in the metrics."""
        if self._run_began is not None:
            self._between.record(now - self._run_began, now)
        self._run_began = now

    def _poll_and_write(self) -> float:
        """Poll all managers and send their requests. Returns how long (ms) the network may wait."""
        with self._components.lock:
            now = self._clock.now()
            self._record_interval(now)
            wait_ms = self._begin_iteration(now)
            created = self._fetches_created
        self._components.user_calls.run()
        self._write(created, now)
        return wait_ms

    def _deliver_responses(self, responses: list[Ended]) -> bool:
        """Handle responses, send the next fetch, then signal the calling thread.

        Returns True if the calling thread waits for records and the buffer contains some. The calling thread should
        then get the GIL before the next iteration of this thread.
        """
        parts = self._components
        if not responses and parts.dispatcher.quiet:
            return False  # without the lock
        with parts.lock:
            try:
                ended = parts.dispatcher.end_step(responses)
            except KafkaError as error:
                self._failure, ended = error, True
            now = self._clock.now()
            if responses and now < self._fetch_until and parts.fetch.needs_poll:
                self._poll_safely(parts.fetch, now)
            created = self._fetches_created
        parts.user_calls.run()
        try:
            # Before the signal, because the signalled thread takes the GIL and keeps it while it processes records.
            # Until it releases the GIL, this thread could neither send the next fetch nor start the receiver of a large
            # response.
            self._write(created, now)
        finally:
            if ended:
                self._notify_of(responses)
        if not responses:
            return False
        return self._event.active and self._event.fetching and parts.buffer.has_data()

    def _notify_of(self, responses: list[Ended]) -> None:
        """Signal the calling thread, because these responses were handled or a request has failed."""
        self._signal.notify()

    def _write(self, created: int, now: float) -> None:
        """Write requests to sockets.

        `created` is the value of `_fetches_created` before the write. If this call has written new fetches of the
        calling thread, and that thread waits for this in `yield_to_network`, it is signalled.
        """
        self._components.client.flush(now)
        if self._fetches_flushed != created:
            self._fetches_flushed = created
            if self._yielding:
                self._signal.notify()

    def _begin_iteration(self, now: float) -> float:
        """Take the caller's events and poll all managers. Returns how long (ms) the network may wait."""
        parts = self._components
        parts.changes.set_now(now)
        self._take_events(now)
        joining = self._event.active and self._event.joining
        wait_ms = self._poll_managers(now, joining=joining, fetching=now < self._fetch_until)
        if wait_ms <= 0 or self._callbacks.due:
            self._signal.notify()
        return parts.dispatcher.begin_step(wait_ms, now)

    @property
    def _stalled(self) -> bool:
        """True if the caller was notified, but does not react."""
        return False

    def _take_events(self, now: float) -> None:
        taken = False
        for event in self._events.drain(now):
            self._event, taken = event, True
        if self._event.fetching and (taken or self._event.active):
            self._fetch_until = now + self._components.config.max_poll_interval_ms
            if self._components.group is not None and self._event.active and not self._stalled:
                # In each iteration, because a caller that waits long inside poll() is not idle.
                self._components.group.heartbeat.poll_started(now)
        if taken:
            self._events.processed(self._clock.now() - now, now)
