"""What a poll of a `MockConsumer` reads: where partitions without a position begin, and which records are taken.

Decides nothing about groups. The positions and the rules of resets are those of the library (`state/`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from kconsumer._core.decode import ConsumerRecord, RecordRun, deserialization_error, run_of, selects
from kconsumer.engine.components import Components
from kconsumer.errors import OffsetOutOfRangeError, RecordFilterError
from kconsumer.records import ConsumerRecords
from kconsumer.state.partition import FetchPosition
from kconsumer.testing.mock_broker import MockBroker, record_size
from kconsumer.types import OffsetReset, TopicPartition


class MockReads:
    """Reads the partitions of one consumer, and moves their positions."""

    def __init__(self, parts: Components, broker: MockBroker) -> None:
        self._components = parts
        self._broker = broker

    def take(self, max_records: int, max_bytes: float) -> ConsumerRecords:
        """Returns the next records of the partitions, and advances the positions behind them.

        Partitions are read in the order in which a consumer fetches them. Returns at most `max_records` records, and
        stops after the record with which their size in bytes reaches `max_bytes`.

        Raises NoOffsetForPartitionError if a partition has no position and the reset policy is OffsetReset.NONE. With
        this policy, raises OffsetOutOfRangeError if a position is out of range and no partition has records.
        """
        parts = self._components
        delivery = parts.positions.delivery
        delivery.begin()
        self.find_positions()
        error = self._reset_out_of_range()
        self.find_positions()
        runs: list[RecordRun] = []
        moved_to = delivery.after
        try:
            for tp in tuple(parts.assignment.assigned()):
                if max_records <= 0 or max_bytes <= 0:
                    break
                kept = self._read(tp, max_records, max_bytes)
                if kept:
                    runs.append(run_of(kept))
                max_records -= len(kept)
                max_bytes -= sum(map(record_size, kept))
        except RecordFilterError:
            if not moved_to:  # else the next poll raises it
                raise
        with parts.changing():
            if not parts.positions.auto_store:
                parts.positions.pass_over(runs)
            delivery.version = parts.lock.version
        if error is not None and not runs:
            raise error
        return ConsumerRecords.from_runs(runs, moved_to)

    def _read(self, tp: TopicPartition, max_records: int, max_bytes: float) -> list[ConsumerRecord]:
        """Returns the next records of a partition that the filter selects, and advances its position behind them.

        The filter is called without the lock. It may set the position, or pause the partition: then there are none.
        """
        parts, found, keeps = self._components, self._broker.log(tp), self._components.config.record_filter
        state = parts.assignment.find(tp)
        if state is None or not state.fetchable or not state.position:
            return []
        with parts.changing():
            state.update_offsets(found.end, found.end, found.beginning)
        position = state.position
        taken = found.read(position.offset, max_records if keeps is None else sys.maxsize, max_bytes)
        if not taken:
            return []
        kept, last = (taken, taken[-1]) if keeps is None else _selected(taken, keeps, max_records)
        if parts.assignment.find(tp) is not state or not state.fetchable or state.position is not position:
            return []
        delivery = parts.positions.delivery
        with parts.changing():
            delivery.before[tp], delivery.open = position, True
            delivery.after[tp] = FetchPosition(last.offset + 1, last.leader_epoch)
            state.set_position(delivery.after[tp])
            if not found.read(last.offset + 1, 1, math.inf):
                parts.assignment.move_to_end(tp)  # as in a consumer, other partitions are read first now
        return kept

    def find_positions(self) -> None:
        """Set the position of each partition that has none, to the committed offset or by the reset policy.

        Raises NoOffsetForPartitionError if a partition has no committed offset and the policy is OffsetReset.NONE.
        """
        parts = self._components
        positions = parts.positions
        with parts.changing():
            for tp in positions.partitions_to_initialize():
                committed = self._broker.committed.get(tp) if parts.group is not None else None
                if committed is not None:
                    positions.seek(tp, committed.offset, committed.leader_epoch)
            try:
                positions.reset_initializing()
            finally:
                for tp in positions.partitions_to_reset(math.inf):
                    strategy = parts.assignment.get(tp).reset_strategy or positions.default_reset
                    timestamp = strategy.timestamp(self._components.clock.wall_ms())
                    found = None if timestamp is None else self._broker.log(tp).find(timestamp)
                    offset = self._broker.log(tp).end if found is None else found.offset
                    positions.maybe_seek_after_reset(tp, offset, strategy)

    def _reset_out_of_range(self) -> OffsetOutOfRangeError | None:
        """Drop the positions that are outside of their logs, so that `find_positions` sets them by the reset policy.

        If the reset policy is OffsetReset.NONE, changes nothing, and returns the error for the first such position.
        Returns None in all other cases.
        """
        parts = self._components
        error = None
        with parts.changing():
            for tp in parts.assignment.assigned():
                state, found = parts.assignment.get(tp), self._broker.log(tp)
                if not state.fetchable or not state.position:
                    continue
                offset = state.position.offset
                if found.beginning <= offset <= found.end:
                    continue
                if parts.positions.default_reset != OffsetReset.NONE:
                    parts.positions.reset_out_of_range(tp, lambda _failures: 0.0)
                    continue
                error = error or out_of_range_error(tp, offset)
        return error


def _selected(
    records: Sequence[ConsumerRecord], record_filter: Callable[[ConsumerRecord], object], limit: int
) -> tuple[list[ConsumerRecord], ConsumerRecord]:
    """Returns up to `limit` records that the filter selects, and the last one that it was called for.

    If the filter fails, the record before is the last one. If there is none, raises RecordFilterError.
    """
    kept: list[ConsumerRecord] = []
    last: ConsumerRecord | None = None
    for record in records:
        try:
            selected = selects(record_filter(record))
        except Exception as error:
            if last is None:
                raise deserialization_error("filter", record, error) from error
            break
        last = record
        if selected:
            kept.append(record)
        if len(kept) == limit:
            break
    assert last is not None  # there is at least one record
    return kept, last


def out_of_range_error(tp: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    """Returns the error for a position outside of the log, for the reset policy OffsetReset.NONE."""
    return OffsetOutOfRangeError(
        f"offset {offset} of {tp} is outside the partition's log and auto_offset_reset is none: seek() to an offset in"
        " range, or set auto_offset_reset",
        {tp: offset},
    )
