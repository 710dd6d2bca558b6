"""ShareRun: a run with a share consumer, which acknowledges each record when it is finished."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.decode import ShareRecord
from kconsumer.errors import ConfigError, KafkaError, RecordDeserializationError
from kconsumer.parallel.acquire_limit import AcquireLimit
from kconsumer.parallel.acquired_records import AcquiredRecords
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.handover import EXIT_TIMEOUT_S, KEEP_ALIVE_INTERVAL_S
from kconsumer.parallel.processor import ProcessorBase
from kconsumer.records import ConsumerRecords
from kconsumer.share.types import AcknowledgeType

log = get_logger(__name__)

MAX_POLL_S = 1.0
WAIT_S = 0.05  # how often finished records are acknowledged


class ShareRun(ProcessorBase):
    """The part of a run with a share consumer that does not depend on how it waits.

    It polls whenever its workers have little left to do, and acquires no more than they can process. Earlier records
    stay locked: their locks are renewed until they are finished.
    """

    def _prepare(self) -> None:
        """Begin the run. Raises ConfigError for an order."""
        state, settings = self._state, self._state.settings
        if settings.order != "none":
            raise ConfigError("the records of a share group have no order: use order='none'")
        self._consumer = state.consumer
        self._engine = self._consumer._engine
        self._acquired = AcquiredRecords(self._acknowledge, state.queue.unfinished_handlers)
        self._limit = AcquireLimit(settings.max_running, settings.max_in_flight, careful=settings.on_failure == "stop")
        self._renews = True
        self._now = state.clock.now
        self._idle_limit_ms: float | None = self._consumer._config.consumer_timeout_ms

    def _process(self) -> Flow[None]:
        self._idle_since = self._now()
        try:
            while not self._state.reason and self._state.queue.error is None:
                yield from self._step()
        except Exception:
            yield from self._end(polls=False)
            raise
        yield from self._end(polls=True)

    def _step(self) -> Flow[None]:
        """Acknowledge what is finished, poll if the workers can have more records, and renew locks."""
        queue, now = self._state.queue, self._now()
        if self._acquired.acknowledge_finished():
            self._idle_since = now
        self._limit.finished(queue.processed + queue.failed, now)
        queue.expire()
        if self._state.commit_due():
            self._state.update_metrics()
        next_renewal = self._keep_locks()
        if self._has_room():
            room = min(self._limit.value(now) - queue.runnable, self._limit.with_retries(now) - self._acquired.count)
            yield from self._poll(self._poll_timeout_s(next_renewal), room)
        else:
            yield from queue.wait_until(self._has_room, WAIT_S)
            yield from self._poll(0.0, 0)  # sends acknowledgements, and keeps the member in its group
        self._check_idle()

    def _has_room(self) -> bool:
        """Returns True if workers will soon have no records, and more may be acquired."""
        queue, now = self._state.queue, self._now()
        few = self._acquired.count < self._limit.with_retries(now) and queue.runnable <= self._limit.low(now)
        return few and not queue.suspended

    def _poll_timeout_s(self, next_renewal: float) -> float:
        now = self._now()
        until = min(next_renewal, now + 1000 * (MAX_POLL_S if self._acquired.empty else WAIT_S))
        if self._idle_limit_ms is not None:
            until = min(until, self._idle_since + self._idle_limit_ms)
        return max(0.0, until - now) / 1000

    def _poll(self, timeout_s: float, room: int) -> Flow[None]:
        """Poll for at most about `room` records, and let workers process them."""
        self._engine.runs.set_room(room)
        try:
            records = yield from self._state.source.poll(timeout_s)
        except RecordDeserializationError as error:
            if self._state.settings.on_failure == "stop":
                raise
            self._take_refused(error)
            return
        if records:
            self._take(records)

    def _take(self, records: ConsumerRecords) -> None:
        self._idle_since = now = self._now()
        found: list[Any] = list(records)
        self._limit.received((record.delivery_count for record in found), now)
        for tracker, batch in self._acquired.add(found).items():
            self._state.queue.add(tracker, batch)

    def _take_refused(self, error: RecordDeserializationError) -> None:
        """Take a record that a deserializer has refused, with its bytes as key and value. `on_failure` gets it."""
        self._idle_since = self._now()
        record = self._engine.runs.refused_record(error.topic_partition, error.offset)
        if record is not None:
            for tracker, batch in self._acquired.add_refused(record, error).items():
                self._state.queue.add(tracker, batch)

    def _acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self._state.source.call(partial(self._consumer.acknowledge, record, kind))

    def _check_idle(self) -> None:
        if not self._acquired.empty or self._state.queue.suspended:
            self._idle_since = self._now()
        elif self._idle_limit_ms is not None and self._now() >= self._idle_since + self._idle_limit_ms:
            self._state.reason = self._state.reason or "idle"

    def _keep_locks(self) -> float:
        """Renew locks that end soon. Returns when (ms) this must be done again.

        Records whose locks have expired are not started, because the group delivers them again.
        """
        lost = self._acquired.lose(self._engine.runs.lost_records())
        if lost:
            self._state.queue.close(lost)
        self._acquired.release_stopped()
        due: float = self._engine.runs.renew_locks(self._engine.driver)
        if self._renews and self._engine.components.fetch.renewals_refused:
            self._stop_renewing()
        return due

    def _stop_renewing(self) -> None:
        """Release the records that wait for a worker: their locks would expire while they are processed."""
        self._renews = False
        log.warning(
            "the group does not allow to renew locks (share.renew.acknowledge.enable): if a handler takes longer than "
            "share.record.lock.duration.ms, the group delivers its record again"
        )
        self._limit.without_renewals()
        self._state.queue.close(self._acquired.trackers)
        self._acquired.release_stopped()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, *, polls: bool) -> Flow[None]:
        """Release what was not started, wait for handlers, and acknowledge what they have finished."""
        state, trackers = self._state, self._acquired.trackers
        state.queue.close(trackers, all_work=True)
        state.begin_drain()
        while state.drain_left_s(state.settings.drain_timeout_s) > 0:
            polls = polls and (yield from self._poll_at_the_end())
            if (yield from state.queue.wait_for_handlers(trackers, KEEP_ALIVE_INTERVAL_S)):
                break
        before = state.abandoned
        state.count_abandoned(trackers)
        yield partial(self._executor.stop, EXIT_TIMEOUT_S if state.abandoned == before else 0.0)
        self._finish_records()
        yield from self._commit()

    def _poll_at_the_end(self) -> Flow[bool]:
        """Renew locks, and send acknowledgements by a poll. Returns False if it fails.

        Records that were acquired before the run ended are released.
        """
        self._keep_locks()
        try:
            yield from self._poll(0.0, 0)
        except Exception as error:  # user code, such as a deserializer; the run ends already
            log.warning("a poll failed while the run ended: %s", error)
            return False
        self._state.queue.close(self._acquired.trackers, all_work=True)
        self._acquired.release_stopped()
        return True

    def _finish_records(self) -> None:
        """Acknowledge all records: as their handlers have decided, or as released."""
        self._acquired.acknowledge_finished()
        self._acquired.release()
        self._engine.runs.set_room(None)

    def _commit(self) -> Flow[None]:
        results = yield from self._call(partial(self._consumer.commit, timeout=self._state.commit_timeout_s))
        for tp, error in (results or {}).items():
            if error is not None:
                log.warning("records of %s were not acknowledged, and are delivered again: %s", tp, error)

    def _call(self, method: Callable[[], Any]) -> Flow[Any]:
        """Call a method of the consumer. Returns None if it fails."""
        try:
            return (yield from self._state.source.wait(method))
        except KafkaError as error:
            log.warning("acknowledgements were not sent, and records may be delivered again: %s", error)
            return None

    def _abort(self) -> Flow[None]:
        """End without waiting for handlers, after an exception such as KeyboardInterrupt or a cancellation."""
        self._state.queue.close(self._acquired.trackers, all_work=True)
        yield partial(self._executor.stop, 0.0)
        self._finish_records()
        yield from self._call(self._consumer.commit_async)

    def _finish(self) -> None:
        self._engine.runs.set_room(None)
        self._engine.driver.wakeup_requested = False
