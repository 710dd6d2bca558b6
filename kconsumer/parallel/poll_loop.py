"""PollLoop: when records are polled, and when offsets are committed, until a run ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.decode import ConsumerRecord
from kconsumer.errors import RecordDeserializationError
from kconsumer.parallel.finished_offsets import max_span
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.retry_topics import RetryTopics
from kconsumer.parallel.run_state import RunState
from kconsumer.parallel.transactions import Transactions
from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

MAX_POLL_S = 1.0
ROOM_INTERVAL_S = 0.05  # how often a run polls while handlers are slow, so that it remains a member of its group
MIN_INTERVAL_S = 0.001  # how often it checks at most whether a blocked partition has room again
TRANSACTION_INTERVAL_S = 0.02  # how often a run with transactions checks whether there are records to hand over
MIN_POLL_RECORDS, MAX_POLL_RECORDS = 100, 2000


class PollLoop:
    """Takes records from the consumer while there is room, and starts commits."""

    def __init__(self, state: RunState, transactions: Transactions) -> None:
        self._state, self._transactions = state, transactions
        self._source, self._queue, self._trackers = state.source, state.queue, state.trackers
        self._settings = state.settings
        on_failure = state.settings.on_failure
        self._retry_topics = on_failure if isinstance(on_failure, RetryTopics) else None
        self._clock = state.clock
        self._poll_clock = state.consumer._clock  # that of a MockConsumer is virtual
        self._idle_limit_ms = state.consumer._config.consumer_timeout_ms
        self._last_activity = self._poll_clock.now()
        self._crowded: set[OffsetTracker] = set()  # partitions that are paused because too many of their records wait
        self._blocked_interval_s = ROOM_INTERVAL_S

    def run(self) -> Flow[None]:
        """Poll until the run ends. Raises the errors of the consumer."""
        while not self._state.reason and self._queue.error is None:
            yield from self._step()
            self._queue.expire()

    def _step(self) -> Flow[None]:
        more = self._max_records()
        blocked = self._block(more)
        if blocked and self._source.all_blocked:
            if not (yield from self._queue.wait_until(self._has_drained, ROOM_INTERVAL_S)):
                yield from self._poll(0.0, more)
        elif self._has_room() or (yield from self._queue.wait_until(self._has_room, ROOM_INTERVAL_S)):
            self._source.resume_all()
            yield from self._poll(self._poll_timeout_s(blocked=blocked), more)
        elif self._queue.error is None:
            self._source.pause_all()
            yield from self._poll(0.0, more)
        yield from self._transactions.run()
        if self._state.commit_due():
            self._state.update_metrics()
            self._state.start_commit()
        self._check_idle()

    # --- partitions that wait ----------------------------------------------------------------------------------------

    def _max_records(self) -> int:
        """Returns how many records a poll may return: no more than fit into the metadata, unless these are tiny."""
        fitting = max(MIN_POLL_RECORDS, min(MAX_POLL_RECORDS, max_span(self._state.commits.limit)))
        return max(1, min(fitting, self._settings.max_in_flight - self._queue.runnable))

    def _has_room(self) -> bool:
        return not self._queue.suspended and self._queue.runnable <= self._settings.low_water

    def _block(self, more: int) -> bool:
        """Pause the partitions of which no more records can be taken, and resume the others.

        Too many of their records wait behind one record or for retries, or all those that wait need too much memory,
        or their finished records might not fit into the metadata of a commit after a poll of `more` records. Returns
        True if there are such partitions.
        """
        trackers = list(self._trackers.values())
        before, self._crowded = self._crowded, {tracker for tracker in trackers if self._is_crowded(tracker)}
        interval_s = self._blocked_interval_s * (0.5 if before - self._crowded else 1.5)
        self._blocked_interval_s = min(ROOM_INTERVAL_S, max(MIN_INTERVAL_S, interval_s))
        limit = self._state.commits.limit
        blocked = [t for t in trackers if t in self._crowded or not t.fits(more, limit)]
        self._source.block({tracker.topic_partition for tracker in blocked})
        return bool(blocked)

    def _is_crowded(self, tracker: OffsetTracker) -> bool:
        """Returns True if too many records of the partition wait. It stays so until there are less than half."""
        share = 2 if tracker in self._crowded else 1
        max_waiting = max(1, self._settings.max_waiting // share)
        return tracker.crowded(max_waiting, self._state.consumer._config.buffer_memory / len(self._trackers) / share)

    def _has_drained(self) -> bool:
        return not all(self._is_crowded(tracker) for tracker in self._crowded)

    # --- polls -------------------------------------------------------------------------------------------------------

    def _poll_timeout_s(self, *, blocked: bool) -> float:
        timeout_ms = max(ROOM_INTERVAL_S * 1000, self._state.next_commit - self._clock.now())
        if self._settings.handler_timeout_s is not None:
            timeout_ms = min(timeout_ms, max(ROOM_INTERVAL_S, self._settings.handler_timeout_s / 4) * 1000)
        if self._transactions.enabled:
            timeout_ms = min(timeout_ms, TRANSACTION_INTERVAL_S * 1000)
        if blocked:
            timeout_ms = min(timeout_ms, self._blocked_interval_s * 1000)
        if self._idle_limit_ms is not None:
            idle_ms = self._poll_clock.now() - self._last_activity
            timeout_ms = min(timeout_ms, max(0.0, self._idle_limit_ms - idle_ms))
        return min(MAX_POLL_S, timeout_ms / 1000)

    def _poll(self, timeout_s: float, max_records: int) -> Flow[None]:
        try:
            records = yield from self._source.poll(timeout_s, max_records)
        except RecordDeserializationError as error:
            if self._settings.on_failure == "stop":
                raise
            yield from self._take_poisoned(error)
            return
        if records:
            self._last_activity = self._poll_clock.now()
        yield from self._take(records)

    def _check_idle(self) -> None:
        now = self._poll_clock.now()
        if self._queue.in_flight or self._queue.suspended:
            self._last_activity = now
        elif self._idle_limit_ms is not None and now >= self._last_activity + self._idle_limit_ms:
            self._state.reason = self._state.reason or "idle"

    # --- records -----------------------------------------------------------------------------------------------------

    def _take(self, records: ConsumerRecords) -> Flow[None]:
        positions = records.next_offsets()
        batches = records.by_partition()
        try:
            if (yield from self._track(positions, batches)):
                for tp, position in positions.items():
                    self._add(self._trackers[tp], batches.pop(tp, ()), position)
        finally:  # the records that are left were not taken; `order` may raise anything for those of one
            self._source.seek({tp: batch[0].offset for tp, batch in batches.items()})

    def _track(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], batches: dict[TopicPartition, list[ConsumerRecord]]
    ) -> Flow[bool]:
        """Create trackers for partitions that are new, with what the metadata of their last commits contain.

        Returns False if the run ends before these are known.
        """
        new = [tp for tp in positions if tp not in self._trackers]
        if not new:
            return True
        finished = yield from self._source.finished(new)
        if finished is None:
            return False
        for tp, (committed, ranges) in finished.items():
            first = batches[tp][0].offset if tp in batches else positions[tp].offset
            self._trackers[tp] = OffsetTracker(tp, () if first < committed else ranges)  # it was sought back
        return True

    def _add(
        self,
        tracker: OffsetTracker,
        batch: Sequence[ConsumerRecord],
        position: OffsetAndMetadata,
        refused: tuple[RecordDeserializationError, ConsumerRecord] | None = None,
    ) -> None:
        if not tracker.follows(batch, position.offset):
            tp = tracker.topic_partition
            log.info("the position of %s went back: records of it that were taken before are dropped", tp)
            self._queue.close([tracker])
            tracker = self._trackers[tp] = OffsetTracker(tp)
        remaining = tracker.take(batch, position.offset, position.leader_epoch)
        self._state.restored += len(batch) - len(remaining)
        if self._retry_topics is not None:
            remaining = self._retry_topics.admit(tracker, remaining)
        if remaining and refused is not None:
            error, ordered_as = refused
            tracker.poisoned[error.offset] = error
            self._queue.add(tracker, remaining, ordered_as)
        elif remaining:
            self._queue.add(tracker, remaining)

    def _take_poisoned(self, error: RecordDeserializationError) -> Flow[None]:
        """Take a record that a deserializer has refused, with its bytes as key and value. `on_failure` gets it.

        Its order is that of the records whose key has the same bytes, which the key deserializer may have changed.
        """
        tp, offset = error.topic_partition, error.offset
        key = yield from self._source.key_of(error)
        record, ordered_as = (
            ConsumerRecord(
                tp.topic, tp.partition, offset, error.timestamp, key=key, value=error.value, headers=error.headers
            )
            for key in (error.key, key)
        )
        position = OffsetAndMetadata(offset + 1, "", None)
        if not (yield from self._track({tp: position}, {tp: [record]})):
            return
        self._source.seek({tp: offset + 1})
        self._add(self._trackers[tp], [record], position, (error, ordered_as))
        self._last_activity = self._poll_clock.now()
