"""Driver: polls managers and runs the network while an operation waits. This module is the base of both drivers.

A driver decides which thread polls the managers and uses the sockets: `classic.py` does both on the calling thread,
and `threaded.py` on a network thread. An operation describes with a `Wait` what it waits for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.cycle import DriverState
from kconsumer._internal.managers import FOREVER, RequestManager, UnsentRequest, timed_out
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.components import ClientComponents
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import KafkaError, StateError, TimeoutError, WakeupError
from kconsumer.types import TopicPartition

log = get_logger(__name__)

Submit = Callable[[Iterable[UnsentRequest], float], None]
MAX_MANAGER_POLL_INTERVAL_MS = 50.0


class Driver(DriverState, ABC):
    """Polls the managers and runs the network of one consumer.

    Only the thread that is inside a public method of the consumer uses a driver. There is one exception: any thread may
    call `wakeup`.
    """

    _components: ClientComponents
    leave_wait_ms = 0.0  # ms that unsubscribe() waits for the response to LeaveGroup

    def __init__(self, parts: ClientComponents, callbacks: Callbacks) -> None:
        super().__init__(parts, parts.dispatcher)
        self._callbacks = callbacks
        self._receiver = parts.client.receiver
        self._failure: KafkaError | None = None  # the error of a manager or a thread, for `raise_errors`
        self._notify: Callable[[], object] = bool  # ends the wait of the calling thread, which then checks `_failure`
        self._errors = parts.error_sources()
        self._position_errors = parts.position_error_sources()
        self._always_polls_fetch = parts.fetch in parts.managers

    # --- where the two drivers differ --------------------------------------------------------------------------

    @abstractmethod
    def _step(self, wait: Wait, timeout_ms: float) -> None:
        """Poll the managers, and run the network for at most `timeout_ms`.

        Returns earlier after any activity, or if the promise of the wait is done. Inside a rebalance callback the
        member does not join and nothing is fetched, even if the wait allows it.
        """

    @abstractmethod
    def idle(self) -> bool:
        """Returns True if nothing has arrived since the last step. Changes no state."""

    @abstractmethod
    def yield_to_network(self, timeout_ms: float) -> None:
        """Start urgent I/O before poll() returns, because the caller may then process records for a long time.

        `timeout_ms` is the timeout of the poll.
        """

    @abstractmethod
    def flush_managers(self, *managers: RequestManager) -> None:
        """Send the requests of these managers without waiting for the next step. The caller holds the lock."""

    @abstractmethod
    def submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send these requests. The caller holds the lock."""

    @abstractmethod
    def submit_if_connected(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send those of these requests whose connection exists. The caller holds the lock."""

    @abstractmethod
    def release_to_caller(self, timeout_s: float) -> Driver | None:
        """Returns a driver that runs the network on the calling thread. Used by close().

        Returns None if the network thread did not end within `timeout_s`.
        """

    @abstractmethod
    def keep_alive(self) -> None:
        """Ensure that heartbeats are sent while the caller processes records. Called by each poll() of a member."""

    def allow_joining(self, allowed: bool) -> None:
        """Set whether waits may join the group. They must not while the member leaves.

        Does nothing here, because a thread that leaves the group does not wait in poll() meanwhile.
        """
        return

    @abstractmethod
    def stop(self) -> None:
        """End the threads of this driver."""

    @property
    def has_lost_thread(self) -> bool:
        """True if the thread of this driver has ended before it was stopped."""
        return False

    # --- the end without close() ---------------------------------------------------------------------------------

    def end_soon(self, at_end: Callable[[], object]) -> bool:
        """Let the thread of this driver end, and call `at_end` then. Does not wait.

        Returns False if this driver has no thread. The garbage collector may call this in the middle of any code.
        """
        return False

    def inherited(self) -> Driver:
        """Returns a driver that runs the network on the calling thread, which was the thread of this driver."""
        return self

    # --- what close() calls, in this order ---------------------------------------------------------------------

    def end_heartbeats(self) -> None:
        """End the thread that sends heartbeats while the caller processes records, if there is one."""
        return

    def end_threads(self) -> Operation[None] | None:
        """Returns an operation that waits for the end of the network thread, or None if there is no such thread."""
        return None

    def close_connections(self) -> None:
        """Close all connections, or let the network thread close them when it ends. The caller holds the lock."""
        self._components.client.close()

    def wakeup(self) -> None:
        """Make the running blocking call raise WakeupError. If none is running, the next blocking call raises it.

        Any thread or signal handler may call this.
        """
        self.wakeup_requested = True
        self._components.end_wait()

    def disable_wakeup(self) -> None:
        """Let calls of `wakeup` raise no WakeupError any more. Called by close()."""
        self.wakeup_enabled = False

    def _check_open(self) -> None:
        """Raise StateError if a signal handler or a callback has closed the consumer during this call."""
        if self._components.closed:
            raise StateError("this consumer was closed while the call was waiting, by a signal handler or a callback")

    # --- waiting ---------------------------------------------------------------------------------------------------

    def timeout_error(
        self, what: str, partitions: Iterable[TopicPartition] = (), cause: BaseException | None = None
    ) -> TimeoutError:
        """Returns a TimeoutError for the call `what`. Its cause is `cause`, or the last error of what the call needs.

        The message contains all of these errors.
        """
        return timed_out(f"{what} did not finish in time", [cause, *self.known_errors(partitions)])

    def known_errors(self, partitions: Iterable[TopicPartition] = ()) -> list[KafkaError]:
        """Returns the present errors of these partitions, of the coordinator, of connections and of metadata."""
        parts = self._components
        with parts.lock:
            errors = [parts.metadata.topic_errors.problem_error(tp) for tp in sorted(partitions)]
            if parts.coordinator is not None and parts.coordinator.connection_id is None:
                errors.append(parts.coordinator.last_error)
            errors += [*parts.client.failures(self._clock.now()), parts.metadata.last_error]
        return [error for error in errors if error is not None]

    def raise_wakeup(self) -> None:
        if self.wakeup_requested and self.wakeup_enabled:
            self.wakeup_requested = False
            raise WakeupError("wakeup() was called")

    @property
    def failed(self) -> bool:
        """True if a manager or a thread has failed, so that `raise_errors` raises an error."""
        return self._failure is not None

    def raise_errors(self, *, positions: bool = False) -> None:
        """Raise an error of a manager or a thread, if there is one that was not raised yet.

        With `positions`, this includes errors of positions, which concern only calls that need a position.
        """
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        with self._components.lock:
            unresolved = self._components.client.take_bootstrap_error(self._clock.now())
            if unresolved is not None:
                raise unresolved
            for source in [*self._errors, *self._position_errors] if positions else self._errors:
                found = source.take_error()
                if found is not None:
                    raise found

    # --- steps -----------------------------------------------------------------------------------------------------

    def _poll_managers(self, now: float, *, joining: bool, fetching: bool) -> float:
        """Poll the managers with one `now`, and send their requests. Returns the time (ms) until one is due again.

        The membership is polled only if the member may join the group, and the fetch manager only if fetches may be
        sent. The caller holds the lock.
        """
        parts = self._components
        wait_ms = FOREVER
        for manager in parts.managers:
            wait_ms = min(wait_ms, self._poll_safely(manager, now))
        if joining and parts.group is not None:
            wait_ms = min(wait_ms, self._poll_safely(parts.group.membership, now))
        if fetching and not self._always_polls_fetch:
            wait_ms = min(wait_ms, self._poll_safely(parts.fetch, now))
        telemetry = parts.telemetry
        if telemetry.due <= now:
            self.push_telemetry(now)
        parts.rebootstrap_if_wanted()
        if telemetry.due - now < wait_ms:
            wait_ms = telemetry.due - now if telemetry.due > now else 0.0
        return wait_ms

    def _poll_safely(self, manager: RequestManager, now: float, submit: Submit | None = None) -> float:
        """Poll a manager and send its requests. Returns the time (ms) until the next poll is due.

        An exception of the manager is stored for `raise_errors`, so that the other managers can still be polled. Only a
        MemoryError is raised here.
        """
        try:
            return self._poll_manager(manager, now, submit or self._components.dispatcher.submit)
        except KafkaError as error:
            self._failure = error
        except MemoryError:
            raise
        except Exception as error:
            log.exception("%r failed", manager)
            failure = KafkaError(f"internal error in {type(manager).__name__}: {error!r}")
            failure.__cause__ = error
            self._failure = failure
        self._notify()
        return float(self._components.config.retry_backoff_ms)

    def push_telemetry(self, now: float, submit: Submit | None = None) -> None:
        """Send the telemetry request that is due. No error is raised to the user."""
        telemetry = self._components.telemetry
        try:
            self._poll_manager(telemetry, now, submit or self._components.dispatcher.submit)
        except Exception as error:  # such as one of the encoder
            telemetry.fail(error)

    def _poll_manager(self, manager: RequestManager, now: float, submit: Submit) -> float:
        """Poll a manager and send its requests. Returns the time (ms) until it must be polled again."""
        result = manager.poll(now)
        if result.disconnect is not None:
            self._components.dispatcher.disconnect(result.disconnect, now)
        if result.requests:
            submit(result.requests, now)
        return result.wait_ms
