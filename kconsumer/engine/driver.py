"""Driving managers and network until something is done: what both ways of it have in common.

A Driver owns the question of who polls the managers and who is at the sockets: `classic.py` does both on the caller's
thread, `threaded.py` has a thread for it. What each public call wants to be driven is in `base.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kconsumer.deferred_calls import get_logger
from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.components import Components
from kconsumer.engine.waiting import Wait
from kconsumer.errors import KafkaError, StateError, TimeoutError, WakeupError
from kconsumer.managers import RequestManager, UnsentRequest
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.engine.classic import ClassicDriver

log = get_logger(__name__)

Submit = Callable[[Iterable[UnsentRequest], float], None]
MAX_MANAGER_POLL_INTERVAL_MS = 50.0


class Driver(ABC):
    """Makes one consumer's managers and network go on. The caller's thread calls it, `wakeup` any thread.

    No manager needs to be polled before `next_manager_poll` (ms), nor while data is buffered. `wakeup_requested`:
    wakeup() was called; a call must raise WakeupError if `wakeup_enabled`.
    """

    leave_wait_ms = 0.0  # that unsubscribe() waits for the coordinator to take note

    def __init__(self, parts: Components, callbacks: Callbacks) -> None:
        self.next_manager_poll = 0.0
        self.wakeup_requested = False
        self.wakeup_enabled = True
        self._components = parts
        self._callbacks = callbacks
        self._clock = parts.clock
        self._receiver = parts.client.receiver
        self._failure: KafkaError | None = None  # of a manager, or of a thread of ours
        self._notify: Callable[[], object] = bool  # the caller should check `_failure` now
        self._errors: list[Callable[[], KafkaError | None]] = [parts.metadata.take_error]
        # Only for calls that need positions: whoever looks for the end of a truncated log must be told the end.
        self._position_errors = [parts.offsets.take_error, parts.positions.take_error]
        group = parts.group
        if group is not None:
            self._errors += [
                group.coordinator.take_error,
                group.heartbeat.take_error,
                group.membership.take_error,
                group.commits.take_error,
            ]

    # --- what the two ways do differently --------------------------------------------------------------------------

    @abstractmethod
    def _step(self, wait: Wait, timeout_ms: float) -> None:
        """Let managers and network go on for at most `timeout_ms`: less if anything has happened, or the promise of
        the wait is done. Inside a rebalance callback nothing is joined or fetched, whatever the wait says."""

    @abstractmethod
    def wait_for_activity(self, timeout_ms: float) -> bool:
        """Whether something came since the last step, or comes within this time; no manager is polled meanwhile."""

    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing has come since the last step. Changes nothing."""

    @property
    def has_urgent_io(self) -> bool:
        """Whether a large answer has been received that nobody has looked at, so that no other is asked for."""
        return self._receiver.ended > 0

    @abstractmethod
    def yield_to_network(self) -> None:
        """Have done what is urgent before the caller is busy with his records."""

    @abstractmethod
    def flush_managers(self, *managers: RequestManager) -> None:
        """Managers have something to send: do it without waiting for the next step. The lock is held."""

    @abstractmethod
    def submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send these. The lock is held."""

    @abstractmethod
    def release_to_caller(self, timeout_s: float) -> ClassicDriver | None:
        """For closing: return the driver to go on with on the caller's thread, which has the network from now on; None
        if the thread that has it did not end in time."""

    @abstractmethod
    def keep_alive(self) -> None:
        """The caller polls as a member of a group: heartbeats must go on while it works."""

    @abstractmethod
    def stop(self) -> None:
        """End every thread."""

    def wakeup(self) -> None:
        """End the running or the next blocking call. From any thread or signal handler."""
        self.wakeup_requested = True
        self._components.end_wait()

    def _check_open(self) -> None:
        """Raise StateError if a signal handler, or another callback, closed the consumer in the middle of this call."""
        if self._components.closed:
            raise StateError("this consumer was closed while the call was waiting, by a signal handler or a callback")

    # --- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, wait: Wait) -> None:
        """Make one step: block the calling thread until something has happened, or the deadline of the wait is reached.

        Signal handlers run when the step is done, and a signal ends it.
        """
        timeout_ms = max(0.0, wait.deadline - self._clock.now())
        if not wait.managers:
            self.wait_for_activity(timeout_ms)
            return
        self._check_open()
        holds = SIGNALS.hold(self._components.end_wait)
        try:
            SIGNALS.refresh()
            self._step(wait, timeout_ms)
            SIGNALS.run_noted()
        finally:
            if holds:
                SIGNALS.release()
        self._check_open()

    def timeout_error(
        self, what: str, partitions: Iterable[TopicPartition] = (), cause: BaseException | None = None
    ) -> TimeoutError:
        """A TimeoutError that says what is in the way, as far as the client knows."""
        parts = self._components
        with parts.lock:
            reasons = [
                parts.client.connection_errors(self._clock.now()),
                *dict.fromkeys(parts.metadata.problem_with(tp) for tp in sorted(partitions)),
            ]
            trouble: object = "; ".join(filter(None, reasons)) or cause or parts.metadata.last_error
            if not trouble and parts.group is not None and parts.group.coordinator.connection_id is None:
                trouble = parts.group.coordinator.last_error
        return TimeoutError(f"{what} did not finish in time" + (f": {trouble}" if trouble else ""))

    def raise_wakeup(self) -> None:
        """Raise the wakeup that is due, if there is one."""
        if self.wakeup_requested and self.wakeup_enabled:
            self.wakeup_requested = False
            raise WakeupError("wakeup() was called")

    def raise_errors(self, *, positions: bool = False) -> None:
        """Raise what managers keep for the caller."""
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        with self._components.lock:
            for take in [*self._errors, *self._position_errors] if positions else self._errors:
                trouble = take()
                if trouble is not None:
                    raise trouble

    # --- steps -----------------------------------------------------------------------------------------------------

    def _poll_safely(self, manager: RequestManager, now: float, submit: Submit | None = None) -> float:
        """Poll a manager. One that fails does not stop the others: the caller's next check raises what it raised."""
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

    def _poll_manager(self, manager: RequestManager, now: float, submit: Submit) -> float:
        """Send what a manager wants; how long (ms) it may be left alone."""
        result = manager.poll(now)
        if result.disconnect is not None:
            self._components.dispatcher.disconnect(result.disconnect, now)
        if result.requests:
            submit(result.requests, now)
        return result.wait_ms
