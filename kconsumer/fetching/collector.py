"""Turns buffered fetches into the records that a poll returns (Java `FetchCollector`).

Decides whether buffered data may still be returned. Before data is read, it is dropped if its partition was revoked or
the position was changed, and set aside if its partition is paused. Positions move as records are taken. If an error
occurs after records were taken, these records are returned, and the next call raises the error.

Filters and deserializers are user code. They run without the engine's lock, so that heartbeats continue while they run.
Meanwhile the group may revoke a partition, and a signal handler may seek, pause, commit or close. Therefore the
position of a partition moves only after its records are deserialized, and a commit does not include the new position
before the poll has ended (`Delivery`). At its end, `collect` drops the records of partitions that were revoked, paused
or sought since it took them. `recheck` does the same if other user code has run between `collect` and the end of the
poll.

The deserializers of an AsyncConsumer run after `collect`, and before `finish`, which does the same at its end.

Records that a filter drops are consumed. If `collect` has only such records, the poll continues to wait. The positions
behind them are part of the batch that the poll returns at last, also if that is empty (`passed`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from kconsumer._common.backoff import ExponentialBackoff
from kconsumer._core.cycle import RecordTaker
from kconsumer.config.option_groups import FetchConfig
from kconsumer.deserializers import adapt
from kconsumer.errors import KafkaError, OffsetOutOfRangeError
from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer
from kconsumer.fetching.error_actions import ERROR_ACTIONS, RESET, fetch_error
from kconsumer.records import ConsumerRecords
from kconsumer.state.partition import FetchPosition
from kconsumer.state.position_errors import truncation_error
from kconsumer.state.positions import Positions
from kconsumer.types import OffsetReset, TopicPartition

if TYPE_CHECKING:
    from kconsumer._core.decode import RecordRun
    from kconsumer._core.metrics import FetchEvents

Skipped = dict[TopicPartition, Sequence[tuple[int, int, str]]]


class Collector(RecordTaker[ConsumerRecords]):
    """Takes records from the buffer in order of arrival."""

    def __init__(
        self,
        config: FetchConfig,
        positions: Positions,
        buffer: FetchBuffer,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        rng: random.Random | None = None,
        *,
        deferred: bool = False,
        metrics: FetchEvents | None = None,
    ) -> None:
        self._key = None if key_deserializer is None else adapt(key_deserializer, "key")
        self._value = None if value_deserializer is None else adapt(value_deserializer, "value")
        super().__init__(
            positions.assignment,
            positions.delivery,
            buffer,
            metrics,
            ConsumerRecords,
            deserializes=self._key is not None or self._value is not None,
            deferred=deferred,
            auto_store=positions.auto_store,
            record_filter=config.record_filter,
        )
        self._positions = positions
        self._pass_over = positions.pass_over
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._unlocked: Callable[[], AbstractContextManager[object]] = nullcontext

    def finish(self, complete: int, failed: RecordRun | None) -> ConsumerRecords:
        """Returns `collected` records, after the deserializers have run: the first `complete` runs, and `failed`.

        `failed` is the next run, cut off before the record that a deserializer has failed on, or None. Records that are
        not returned are fetched again. The records of partitions that were revoked, paused or sought meanwhile are
        dropped.
        """
        runs, moved_to = self._finished(complete, failed)
        self._record(runs, moved_to)
        return ConsumerRecords.from_runs(runs, moved_to, self._skipped)

    def _finished(
        self, complete: int, failed: RecordRun | None
    ) -> tuple[list[RecordRun], dict[TopicPartition, FetchPosition]]:
        """Returns the records that `finish` returns, and the positions after them."""
        if not self._delivery.open:  # a poll of user code has taken these records over
            self.collected = ()
            return [], {}
        runs = [*self.collected[:complete], *([failed] if failed else [])]
        unreturned = {run.topic_partition for run in self.collected[complete:]}
        ends = {run.topic_partition: run for run in runs}
        delivery, self.collected = self._delivery, ()
        moved_to = delivery.after
        runs = self._drop_moved(runs, self._skipped)
        for tp in unreturned.intersection(moved_to):
            reached, end = moved_to[tp], ends.get(tp)
            if end is None:
                self._put_back(tp, delivery.before.pop(tp), reached)
                del moved_to[tp]
                self._skipped.pop(tp, None)
            else:
                moved_to[tp] = FetchPosition(end.next_offset, end.leader_epoch, reached.leader)
                self._put_back(tp, moved_to[tp], reached)
                self._skipped[tp] = [batch for batch in self._skipped.get(tp, ()) if batch[1] <= end.next_offset]
        return runs, moved_to

    def shorten(self, offsets: Mapping[TopicPartition, int], records: ConsumerRecords) -> None:
        """End the open batch, `records`, at these offsets. The records from there on are not returned, and are fetched
        again."""
        self.record_cut(offsets, records)
        for tp, offset in offsets.items():
            reached = self._delivery.after.get(tp)
            if reached is not None:
                end = FetchPosition(offset, None, reached.leader)
                self._put_back(tp, end, reached)
                self._delivery.end_at(tp, end)

    def recheck(self, records: ConsumerRecords) -> ConsumerRecords:
        """Returns those records of a batch that may still be returned, after user code has run since it was taken.

        The records of partitions that were revoked, paused or sought are dropped. The result is empty if the user code
        has polled: its poll has restored the positions and taken the records itself.
        """
        if not self._delivery.open:
            return ConsumerRecords.EMPTY
        skipped = dict(records._skipped)
        runs = self._drop_moved(list(records._runs), skipped)
        if len(runs) == len(records._runs):
            return records
        self._record_unreturned(self._delivery.after)
        kept = ConsumerRecords.from_runs(runs, self._delivery.after, skipped)
        kept._taken = records._taken
        return kept

    def _drop_moved(self, runs: list[RecordRun], skipped: Skipped) -> list[RecordRun]:
        """Drop the records of partitions that were revoked, paused or sought while user code ran without the lock.

        Restores the positions of these partitions. Returns the runs of records that may be returned. A partition whose
        leader has changed keeps its records: the position behind them is validated before more are fetched.
        """
        delivery = self._delivery
        for tp, reached in list(delivery.after.items()):
            state = self._assignment.find(tp)
            position = None if state is None or not state.returnable else state.position
            if position is None or position.offset != reached.offset:
                self._put_back(tp, delivery.before.pop(tp), reached)
                del delivery.after[tp]
                skipped.pop(tp, None)
        return [run for run in runs if run.topic_partition in delivery.after]

    def set_unlocked(self, unlocked: Callable[[], AbstractContextManager[object]]) -> None:
        """Set the context manager that releases the engine's lock while deserializers run."""
        self._unlocked = unlocked

    def rollback(self) -> None:
        """Restore the positions from before the last `collect`, because its records did not reach the caller.

        An example is a Ctrl-C before `poll` returned. The buffered data of these partitions is dropped, and everything
        from the old positions is fetched again.
        """
        delivery = self._delivery
        for tp, position in delivery.before.items():
            reached = delivery.after.get(tp)
            if reached is not None:  # else an exception, such as Ctrl-C, came before the position was moved
                self._put_back(tp, position, reached)
        delivery.begin()
        self._record_unreturned(())
        self.collected = ()
        self.busy = False

    def record_cut(self, offsets: Mapping[TopicPartition, int], records: ConsumerRecords) -> None:
        """Record that those of the last poll's `records` are taken again that begin at these offsets."""
        if self._metrics is not None:
            for run in records._taken or records._runs:
                offset = offsets.get(run.topic_partition)
                if offset is not None and offset < run.next_offset:
                    self._metrics.record_cut(run, offset, self._changes.now)

    def _record_unreturned(self, kept: Container[TopicPartition]) -> None:
        """Record that the records of the last poll are returned only for the partitions in `kept`."""
        if self._metrics is not None:
            self._metrics.record_unreturned(kept, self._changes.now)

    def _put_back(self, tp: TopicPartition, position: FetchPosition, reached: FetchPosition) -> None:
        """Set a partition's position back to `position`. Does nothing if the current position is no longer
        `reached`."""
        if self._positions.restore(tp, position, reached):
            state = self._assignment.get(tp)
            self._buffer.drop_stale(tp, state, state.position)

    def _processed(self, run: RecordRun, fetch: CompletedFetch, position: FetchPosition, deserializes: bool) -> bool:
        """Run the filter and, if `deserializes` is True, the deserializers, without the lock.

        Returns False if the records must no longer be returned.
        """
        chain = fetch.chain
        state = chain.state
        self.busy = self._delivery.open = True
        try:
            with self._unlocked():
                if self._filter is not None:
                    run.keep(self._filter)
                if deserializes:
                    run.deserialize(self._key, self._value)
        finally:
            self.busy = False
        if self._buffer.find(chain.topic_partition) is not chain:
            return False
        if state.fetchable and state.position is not None and state.position.offset == position.offset:
            return True
        self._buffer.drop(chain)
        return False

    def _handle_error(self, fetch: CompletedFetch, *, first: bool) -> None:
        """Handle an error at the head of the buffer: move or reset the position by policy, or raise the error.

        A raised error stays in the buffer until the user acts or another response replaces it. `first` is True if this
        `collect` has moved no position yet. Then `collect` raises the error, and the error moves behind the data of
        other partitions. If `first` is False, `collect` returns the records that it has taken. The error stays at the
        head, and the next `collect` raises it.
        """
        tp = fetch.chain.topic_partition
        error = self._error_of(tp, fetch)
        if error is None:
            self._buffer.pop(fetch)
            return
        fetch.fail(str(error), self._changes.now)
        if first:
            self._buffer.requeue(fetch)
        raise error

    def _error_of(self, tp: TopicPartition, fetch: CompletedFetch) -> KafkaError | None:
        """Returns the error to raise for a failed fetch, or None if the position was moved or reset instead."""
        if fetch.diverging_epoch is not None:
            truncation = self._positions.truncate(tp, fetch.diverging_epoch)
            return None if truncation is None else truncation_error({tp: truncation})
        if ERROR_ACTIONS[fetch.error_code] is not RESET:
            return fetch_error(tp, fetch.fetch_offset, fetch.error_code)
        if self._positions.default_reset != OffsetReset.NONE:
            self._positions.reset_out_of_range(tp, self._backoff.delay_ms)
            return None
        return OffsetOutOfRangeError(
            f"offset {fetch.fetch_offset} of {tp} is outside the partition's log and auto_offset_reset is none: seek()"
            " to an offset in range, or set auto_offset_reset",
            {tp: fetch.fetch_offset},
        )
