"""Processor: one run. It polls, gives records to an executor, and commits what is finished.

Decides when records are polled, when offsets are committed, what happens when partitions are revoked, and how a run
ends. The thread that calls `run` does all this. Handlers run elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from kconsumer._core.record import ConsumerRecord
from kconsumer.clock import Clock
from kconsumer.consumer import Consumer
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import KafkaError, RebalanceInProgressError, RecordDeserializationError, StateError
from kconsumer.listener import RebalanceListener
from kconsumer.parallel.checks import check_consumer, check_handler
from kconsumer.parallel.commits import Commits, too_long
from kconsumer.parallel.executors import create_executor
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.runs import registered
from kconsumer.parallel.settings import (
    DEFAULT_RETRY,
    DeadLetters,
    ExecutorName,
    Handler,
    Order,
    Retry,
    Revocation,
    Settings,
    Summary,
)
from kconsumer.parallel.source import Source
from kconsumer.parallel.stop_signals import StopSignals
from kconsumer.parallel.work_queue import WorkQueue
from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

MAX_POLL_S = 1.0
ROOM_INTERVAL_S = 0.05  # how often a run polls while handlers are slow, so that it remains a member of its group
MIN_COMMIT_TIMEOUT_S = 5.0


class Processor:
    """A run of `process` that can be stopped and watched from other threads."""

    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        *,
        workers: int = 8,
        order: Order = "partition",
        executor: ExecutorName = "threads",
        max_in_flight: int = 1000,
        retry: Retry | None = DEFAULT_RETRY,
        on_failure: Literal["stop", "skip"] | DeadLetters = "stop",
        on_revoke: Revocation = "drain",
        drain_timeout_s: float = 30.0,
        commit_interval_s: float = 1.0,
    ) -> None:
        """Check the arguments, which are those of `process`. Starts nothing."""
        self._settings = Settings(
            workers=workers,
            order=order,
            executor=executor,
            max_in_flight=max_in_flight,
            retry=Retry(attempts=1) if retry is None else retry,
            on_failure=on_failure,
            on_revoke=on_revoke,
            drain_timeout_s=drain_timeout_s,
            commit_interval_s=commit_interval_s,
        )
        check_consumer(consumer)
        check_handler(handler, self._settings)
        self._consumer = consumer
        self._clock = Clock()
        self._source = Source(consumer, self._on_wakeup)
        self._queue = WorkQueue(self._settings, self._clock, consumer.wakeup)
        self._executor = create_executor(self._queue, self._settings, handler, self._clock)
        self._commits = Commits()
        self._trackers: dict[TopicPartition, OffsetTracker] = {}
        self._idle_limit_ms = consumer._config.consumer_timeout_ms
        self._max_poll_interval_s = consumer._config.max_poll_interval_ms / 1000
        self._started = False
        self._reason = ""
        self._fatal_commit: KafkaError | None = None  # the last error of a commit, if no later commit can repair it
        self._restored = self._abandoned = 0
        self._next_commit = self._last_activity = 0.0

    def stop(self) -> None:
        """End the run: start no more records, wait for handlers, and commit. Returns at once.

        Any thread, handler or signal handler may call this.
        """
        self._request_stop("stop")

    def summary(self) -> Summary:
        """Returns the figures until now. Any thread may call this."""
        queue = self._queue
        return Summary(
            processed=queue.processed,
            failed=queue.failed,
            retries=queue.retries,
            restored=self._restored,
            abandoned=self._abandoned,
            committed=dict(self._commits.committed),
            reason=self._reason,
        )

    def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        A Processor runs once: another call raises StateError.
        """
        with registered(self, self._consumer):
            if self._started:
                raise StateError("a Processor runs once: make a new one")
            self._started = True
            try:
                with StopSignals(self._request_stop):
                    self._executor.start()
                    self._source.observe(_Rebalances(self))
                    self._process()
            except BaseException:  # also a second Ctrl-C, which does not wait for handlers
                self._queue.close(list(self._trackers.values()), all_work=True)
                self._executor.stop(0.0)
                raise
            finally:
                self._source.end()
        if self._queue.error is not None:
            raise self._queue.error
        return self.summary()

    def _request_stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._queue.stopping = True
        self._consumer.wakeup()

    def _on_wakeup(self) -> None:
        if self._queue.error is None:  # otherwise the queue has called wakeup()
            self._reason = self._reason or "wakeup"
            self._queue.stopping = True

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Poll until the run ends, and end it in order. Raises the error of the consumer that has ended it."""
        self._last_activity = self._consumer._clock.now()
        self._next_commit = self._clock.now() + self._settings.commit_interval_s * 1000
        try:
            while not self._reason and self._queue.error is None:
                self._step()
        except Exception as error:
            self._end(error)
            raise
        self._end(None)

    def _step(self) -> None:
        low = self._settings.low_water
        if self._queue.in_flight <= low or self._queue.wait_for_room(low, ROOM_INTERVAL_S):
            self._source.resume_all()
            self._poll(self._poll_timeout_s())
        elif self._queue.error is None:
            self._source.pause_all()
            self._poll(0.0)
        if self._clock.now() >= self._next_commit:
            self._commit()
        self._check_idle()

    def _poll_timeout_s(self) -> float:
        timeout_ms = max(ROOM_INTERVAL_S * 1000, self._next_commit - self._clock.now())
        if self._idle_limit_ms is not None:
            timeout_ms = min(timeout_ms, max(0.0, self._last_activity + self._idle_limit_ms - self._now()))
        return min(MAX_POLL_S, timeout_ms / 1000)

    def _poll(self, timeout_s: float) -> None:
        try:
            records = self._source.poll(timeout_s, max(1, self._settings.max_in_flight - self._queue.in_flight))
        except RecordDeserializationError as error:
            if self._settings.on_failure == "stop":
                raise
            self._take_poisoned(error)
            return
        if records:
            self._last_activity = self._now()
        self._take(records)

    def _take(self, records: ConsumerRecords) -> None:
        positions = records.next_offsets()
        batches = records.by_partition()
        try:
            self._track(positions, batches)
        except BaseException:  # none of the records was taken
            self._source.seek({tp: batch[0].offset for tp, batch in batches.items()})
            raise
        for tp, position in positions.items():
            self._add(self._trackers[tp], batches.get(tp, ()), position)

    def _track(
        self, positions: Collection[TopicPartition], batches: dict[TopicPartition, list[ConsumerRecord]]
    ) -> None:
        """Create trackers for partitions that are new, with what the metadata of their last commits contain."""
        new = [tp for tp in positions if tp not in self._trackers]
        if not new:
            return
        for tp, (committed, ranges) in self._source.finished(new).items():
            sought_back = tp in batches and batches[tp][0].offset < committed
            self._trackers[tp] = OffsetTracker(tp, () if sought_back else ranges)

    def _add(self, tracker: OffsetTracker, batch: Sequence[ConsumerRecord], position: OffsetAndMetadata) -> None:
        if not tracker.follows(batch, position.offset):
            tp = tracker.topic_partition
            log.info("the position of %s went back: records of it that were taken before are dropped", tp)
            self._queue.close([tracker])
            tracker = self._trackers[tp] = OffsetTracker(tp)
        remaining = tracker.take(batch, position.offset, position.leader_epoch)
        self._restored += len(batch) - len(remaining)
        if remaining:
            self._queue.add(tracker, remaining)

    def _take_poisoned(self, error: RecordDeserializationError) -> None:
        """Take a record that a deserializer has refused, with its bytes as key and value. `on_failure` gets it."""
        tp, offset = error.topic_partition, error.offset
        record = ConsumerRecord(
            tp.topic, tp.partition, offset, error.timestamp, key=error.key, value=error.value, headers=error.headers
        )
        self._track([tp], {tp: [record]})
        self._source.seek({tp: offset + 1})
        self._trackers[tp].poisoned[offset] = error
        self._add(self._trackers[tp], [record], OffsetAndMetadata(offset + 1, "", None))
        self._last_activity = self._now()

    def _check_idle(self) -> None:
        if self._queue.in_flight:
            self._last_activity = self._now()
        elif self._idle_limit_ms is not None and self._now() >= self._last_activity + self._idle_limit_ms:
            self._reason = self._reason or "idle"

    def _now(self) -> float:
        return self._consumer._clock.now()  # that of a MockConsumer is virtual

    # --- commits -----------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        self._next_commit = self._clock.now() + self._settings.commit_interval_s * 1000
        self._commits.start(self._trackers.values(), self._source.commit_async)
        if self._commits.error is not None:
            raise self._commits.error
        self._source.block({tp for tp, tracker in self._trackers.items() if tracker.pressed})

    def _commit_now(self, trackers: Collection[OffsetTracker], timeout_s: float) -> KafkaError | None:
        """Commit what has changed, and wait. Returns the error if it failed."""
        error: KafkaError | None = None
        while (offsets := self._commits.changed(trackers)) and (error is None or too_long(error)):
            try:
                self._source.commit(offsets, timeout_s)
            except KafkaError as failure:
                error = failure
                self._fatal_commit = self._commits.failed(offsets, failure)
            else:
                self._commits.succeeded(offsets)
                return None
        return error

    # --- the end, and rebalances -------------------------------------------------------------------------------------

    def _end(self, error: Exception | None) -> None:
        """Wait for handlers, commit, and set the positions to the first records that were not finished.

        Raises the error of the commit, unless another `error` ends the run.
        """
        settings, trackers = self._settings, self._trackers
        self._queue.close(list(trackers.values()), all_work=True)
        timeout_s = max(MIN_COMMIT_TIMEOUT_S, settings.drain_timeout_s)
        polls = error is None
        if polls:
            self._source.pause_all()
        deadline = self._clock.now() + settings.drain_timeout_s * 1000
        while self._clock.now() < deadline and not self._wait_for_handlers(list(trackers.values()), ROOM_INTERVAL_S):
            polls = polls and self._keep_alive()
        self._abandoned += self._count_running(list(trackers.values()))
        self._executor.stop(0.0 if self._abandoned else MIN_COMMIT_TIMEOUT_S)
        deadline = self._clock.now() + timeout_s * 1000
        failure = self._commit_now(list(trackers.values()), timeout_s)
        while isinstance(failure, RebalanceInProgressError) and polls and self._clock.now() < deadline:
            polls = self._keep_alive(ROOM_INTERVAL_S)  # completes the rebalance, whose callback commits, too
            failure = self._commit_now(list(trackers.values()), timeout_s)
        self._source.seek({tp: t.to_commit() or 0 for tp, t in trackers.items() if t.unfinished})
        if failure is not None:
            log.warning("the last commit of the run failed, so some records will be processed again: %s", failure)
            if error is None and self._queue.error is None and self._fatal_commit is not None:
                raise self._fatal_commit

    def _keep_alive(self, timeout_s: float = 0.0) -> bool:
        """Poll while all partitions are paused. Returns False if the poll failed."""
        try:
            self._source.poll(timeout_s, 1)
        except Exception as error:  # of a listener, too; the run ends already
            log.warning("a poll failed while the run ended: %s", error)
            return False
        return True

    def _wait_for_handlers(self, trackers: Collection[OffsetTracker], timeout_s: float) -> bool:
        return self._queue.wait_for_handlers(trackers, timeout_s)

    def _count_running(self, trackers: Collection[OffsetTracker]) -> int:
        running = self._queue.running(trackers)
        if running:
            log.warning(
                "%d handlers have not returned in time; their records are not committed, and will be processed again",
                running,
            )
        return running

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Give up partitions: wait for their handlers, or do not, and commit. Called inside a rebalance callback."""
        removed = self._remove(partitions)
        if self._settings.on_revoke == "drain":
            # The group waits for this member no longer than the poll interval.
            self._wait_for_handlers(removed, min(self._settings.drain_timeout_s, self._max_poll_interval_s / 2))
        self._abandoned += self._count_running(removed)
        failure = self._commit_now(removed, max(MIN_COMMIT_TIMEOUT_S, self._settings.drain_timeout_s))
        if failure is not None:
            log.warning("offsets of revoked partitions were not committed: %s", failure)
        self._commits.forget(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Give up partitions that another member owns already. Does not wait, and does not commit."""
        self._abandoned += self._count_running(self._remove(partitions))
        self._commits.forget(partitions)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called inside a rebalance callback."""
        self._source.on_assigned(partitions)

    def _remove(self, partitions: Collection[TopicPartition]) -> list[OffsetTracker]:
        removed = [tracker for tp in partitions if (tracker := self._trackers.pop(tp, None)) is not None]
        self._queue.close(removed)
        self._source.on_removed(partitions)
        return removed


class _Rebalances(RebalanceListener):
    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def on_partitions_assigned(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        self._processor.on_assigned(partitions)

    def on_partitions_revoked(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        self._processor.on_revoked(partitions)

    def on_partitions_lost(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        self._processor.on_lost(partitions)
