"""PollLoop: when records are polled, and when offsets are committed, until a run ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from kconsumer._core.record import ConsumerRecord
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import RecordDeserializationError
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.run_state import RunState
from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

MAX_POLL_S = 1.0
ROOM_INTERVAL_S = 0.05  # how often a run polls while handlers are slow, so that it remains a member of its group


class PollLoop:
    """Takes records from the consumer while there is room, and starts commits."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._source, self._queue, self._trackers = state.source, state.queue, state.trackers
        self._settings = state.settings
        self._clock = state.clock
        self._poll_clock = state.consumer._clock  # that of a MockConsumer is virtual
        self._idle_limit_ms = state.consumer._config.consumer_timeout_ms
        self._last_activity = self._poll_clock.now()
        self._next_commit = self._clock.now() + self._settings.commit_interval_s * 1000

    def run(self) -> Flow[None]:
        """Poll until the run ends. Raises the errors of the consumer."""
        while not self._state.reason and self._queue.error is None:
            yield from self._step()

    def _step(self) -> Flow[None]:
        low = self._settings.low_water
        if self._queue.in_flight <= low or (yield partial(self._queue.wait_for_room, low, ROOM_INTERVAL_S)):
            self._source.resume_all()
            yield from self._poll(self._poll_timeout_s())
        elif self._queue.error is None:
            self._source.pause_all()
            yield from self._poll(0.0)
        if self._clock.now() >= self._next_commit:
            self._commit()
        self._check_idle()

    # --- polls -------------------------------------------------------------------------------------------------------

    def _poll_timeout_s(self) -> float:
        timeout_ms = max(ROOM_INTERVAL_S * 1000, self._next_commit - self._clock.now())
        if self._idle_limit_ms is not None:
            idle_ms = self._poll_clock.now() - self._last_activity
            timeout_ms = min(timeout_ms, max(0.0, self._idle_limit_ms - idle_ms))
        return min(MAX_POLL_S, timeout_ms / 1000)

    def _poll(self, timeout_s: float) -> Flow[None]:
        room = max(1, self._settings.max_in_flight - self._queue.in_flight)
        try:
            records = yield from self._source.poll(timeout_s, room)
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
        if self._queue.in_flight:
            self._last_activity = now
        elif self._idle_limit_ms is not None and now >= self._last_activity + self._idle_limit_ms:
            self._state.reason = self._state.reason or "idle"

    # --- records -----------------------------------------------------------------------------------------------------

    def _take(self, records: ConsumerRecords) -> Flow[None]:
        positions = records.next_offsets()
        batches = records.by_partition()
        try:
            yield from self._track(positions, batches)
        except BaseException:  # none of the records was taken
            self._source.seek({tp: batch[0].offset for tp, batch in batches.items()})
            raise
        for tp, position in positions.items():
            self._add(self._trackers[tp], batches.get(tp, ()), position)

    def _track(
        self, positions: Collection[TopicPartition], batches: dict[TopicPartition, list[ConsumerRecord]]
    ) -> Flow[None]:
        """Create trackers for partitions that are new, with what the metadata of their last commits contain."""
        new = [tp for tp in positions if tp not in self._trackers]
        if not new:
            return
        finished = yield from self._source.finished(new)
        for tp, (committed, ranges) in finished.items():
            sought_back = tp in batches and batches[tp][0].offset < committed
            self._trackers[tp] = OffsetTracker(tp, () if sought_back else ranges)

    def _add(self, tracker: OffsetTracker, batch: Sequence[ConsumerRecord], position: OffsetAndMetadata) -> None:
        if not tracker.follows(batch, position.offset):
            tp = tracker.topic_partition
            log.info("the position of %s went back: records of it that were taken before are dropped", tp)
            self._queue.close([tracker])
            tracker = self._trackers[tp] = OffsetTracker(tp)
        remaining = tracker.take(batch, position.offset, position.leader_epoch)
        self._state.restored += len(batch) - len(remaining)
        if remaining:
            self._queue.add(tracker, remaining)

    def _take_poisoned(self, error: RecordDeserializationError) -> Flow[None]:
        """Take a record that a deserializer has refused, with its bytes as key and value. `on_failure` gets it."""
        tp, offset = error.topic_partition, error.offset
        record = ConsumerRecord(
            tp.topic, tp.partition, offset, error.timestamp, key=error.key, value=error.value, headers=error.headers
        )
        yield from self._track([tp], {tp: [record]})
        self._source.seek({tp: offset + 1})
        self._trackers[tp].poisoned[offset] = error
        self._add(self._trackers[tp], [record], OffsetAndMetadata(offset + 1, "", None))
        self._last_activity = self._poll_clock.now()

    # --- commits -----------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        commits = self._state.commits
        self._next_commit = self._clock.now() + self._settings.commit_interval_s * 1000
        commits.start(self._trackers.values(), self._source.commit_async)
        if commits.error is not None:
            raise commits.error
        self._source.block({tp for tp, tracker in self._trackers.items() if tracker.pressed})
