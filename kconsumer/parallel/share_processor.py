"""ShareProcessor: a run with a ShareConsumer, which acknowledges each record when it is finished."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kconsumer.deferred_calls import get_logger
from kconsumer.errors import ConfigError, KafkaError, RecordDeserializationError, WakeupError
from kconsumer.parallel.acquired_records import AcquiredRecords
from kconsumer.parallel.flows import Flow, run_flow
from kconsumer.parallel.handover import EXIT_TIMEOUT_S, KEEP_ALIVE_INTERVAL_S
from kconsumer.parallel.processor import ProcessorBase
from kconsumer.parallel.settings import Summary
from kconsumer.share.consumer import ShareConsumer

log = get_logger(__name__)

MAX_POLL_S = 1.0
WAIT_S = 0.05  # how often finished records are acknowledged while handlers run
DEFAULT_LOCK_MS = 30_000  # before the first response of a broker
RENEWALS_PER_LOCK = 3  # a lock is renewed after this part of its time


class ShareProcessor(ProcessorBase):
    """A run of `process` with a ShareConsumer that can be stopped and watched from other threads.

    The consumer needs `share_acknowledgement_mode="explicit"`, and the records have no order. A record whose handler
    has returned is accepted. After its last attempt it is rejected, or with on_failure="stop" released. Records that
    were not started when the run ends are released. The acquisition locks of records whose handlers take long are
    renewed.
    """

    def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        A ShareProcessor runs once: another call raises StateError.
        """
        self._consumer: ShareConsumer = self._state.consumer
        self._acquired = AcquiredRecords(self._consumer)
        self._now = self._state.clock.now
        self._idle_limit_ms = self._consumer._config.consumer_timeout_ms
        self._idle_since = self._polled_at = self._committed_at = self._now()
        return run_flow(self._run())

    def _check(self, consumer: Any) -> None:
        if not isinstance(consumer, ShareConsumer):
            raise TypeError(f"ShareProcessor takes a kconsumer.ShareConsumer, not {type(consumer).__name__}")
        if consumer._config.share_acknowledgement_mode != "explicit":
            raise ConfigError(
                "process() acknowledges each record when it is finished: give share_acknowledgement_mode='explicit' to "
                "ShareConsumer"
            )

    def _process(self) -> Flow[None]:
        state = self._state
        if state.settings.order != "none":
            raise ConfigError("the records of a share group have no order: use order='none'")
        polls = False
        try:
            while not state.reason and state.queue.error is None:
                self._step()
            polls = True
        finally:
            yield from self._end(polls=polls)

    def _step(self) -> None:
        """Poll if a poll is possible or necessary. Otherwise wait for handlers, and acknowledge what they finish."""
        acquired, queue = self._acquired, self._state.queue
        if acquired.acknowledge_finished():
            self._idle_since = self._now()
        if acquired.empty:
            self._poll(self._poll_timeout_s())
        elif self._renewal_due():
            self._renew()
        else:
            queue.wait_for_room(0, WAIT_S)
        if self._now() >= self._committed_at + 1000 * self._state.settings.commit_interval_s:
            self._committed_at = self._now()
            self._call(self._consumer.commit_async)
        self._check_idle()

    def _poll_timeout_s(self) -> float:
        left = (
            MAX_POLL_S if self._idle_limit_ms is None else (self._idle_since + self._idle_limit_ms - self._now()) / 1000
        )
        return max(0.0, min(MAX_POLL_S, left))

    def _poll(self, timeout_s: float) -> None:
        self._polled_at = self._now()
        try:
            records = self._consumer.poll(timeout_s)
        except WakeupError:
            self._state._on_wakeup()
            return
        except RecordDeserializationError as error:
            if self._state.settings.on_failure == "stop":
                raise
            log.warning("a record was released, because a deserializer refuses it: %s", error)
            return
        if records:
            self._idle_since = self._now()
        for tracker, batch in self._acquired.add(records).items():
            self._state.queue.add(tracker, batch)

    def _check_idle(self) -> None:
        if not self._acquired.empty:
            self._idle_since = self._now()
        elif self._idle_limit_ms is not None and self._now() >= self._idle_since + self._idle_limit_ms:
            self._state.reason = self._state.reason or "idle"

    # --- locks -------------------------------------------------------------------------------------------------------

    def _lock_ms(self) -> float:
        return self._consumer.acquisition_lock_timeout_ms() or DEFAULT_LOCK_MS

    def _renewal_due(self) -> bool:
        interval = min(self._lock_ms(), self._consumer._config.max_poll_interval_ms) / RENEWALS_PER_LOCK
        return self._acquired.renewing or self._now() >= self._polled_at + interval

    def _renew(self) -> None:
        """Renew the locks of all records that are not finished. The poll returns them, sometimes only some of them."""
        self._acquired.forget_lost(self._now())
        self._acquired.renew(self._now() + self._lock_ms())
        self._poll(MAX_POLL_S)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, *, polls: bool) -> Flow[None]:
        """Wait for handlers, acknowledge what they have finished, and release all other records."""
        state, trackers = self._state, self._acquired.trackers
        state.queue.close(trackers, all_work=True)
        deadline = self._now() + 1000 * state.settings.drain_timeout_s
        while self._now() < deadline and not state.queue.wait_for_handlers(trackers, KEEP_ALIVE_INTERVAL_S):
            self._acquired.acknowledge_finished()
            if polls and self._renewal_due():
                polls = self._keep_locks()
        before = state.abandoned
        state.count_abandoned(trackers)
        yield partial(self._executor.stop, EXIT_TIMEOUT_S if state.abandoned == before else 0.0)
        self._acquired.acknowledge_finished()
        self._acquired.release()
        if polls:
            self._take_renewed(max(deadline, self._now() + 1000 * MAX_POLL_S))
        self._commit()

    def _keep_locks(self) -> bool:
        """Renew locks while the run ends. Returns False if polls fail."""
        return self._polls_at_the_end(self._renew)

    def _take_renewed(self, deadline: float) -> None:
        """Poll until no lock is being renewed, and acknowledge the records that the polls return.

        A record can be acknowledged only after a poll has returned it. If its handler has returned while its lock was
        being renewed, and the run has ended before that poll, it would be delivered again.
        """
        polls = True
        while polls and self._acquired.renewing and self._now() < deadline:
            polls = self._polls_at_the_end(partial(self._poll, MAX_POLL_S))
            self._acquired.release()
            self._acquired.forget_lost(self._now())

    def _polls_at_the_end(self, poll: Callable[[], None]) -> bool:
        """Call a function that polls. Returns False if it fails."""
        try:
            poll()
        except Exception as error:  # user code, such as a deserializer; the run ends already
            log.warning("a poll failed while the run ended: %s", error)
            return False
        return True

    def _commit(self) -> None:
        results = self._call(partial(self._consumer.commit, timeout=self._state.commit_timeout_s))
        for tp, error in (results or {}).items():
            if error is not None:
                log.warning("records of %s were not acknowledged, and are delivered again: %s", tp, error)

    def _call(self, method: Any) -> Any:
        """Call a method of the consumer. Repeats it after WakeupError. Returns None if it fails."""
        while True:
            try:
                return method()
            except WakeupError:
                self._state._on_wakeup()
            except KafkaError as error:
                log.warning("acknowledgements were not sent, and records may be delivered again: %s", error)
                return None

    def _abort(self) -> Flow[None]:
        self._state.queue.close(self._acquired.trackers, all_work=True)
        yield partial(self._executor.stop, 0.0)

    def _finish(self) -> None:
        self._consumer._engine.driver.wakeup_requested = False
