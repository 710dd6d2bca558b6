"""What a poll of a `MockConsumer` reads: where partitions without a position begin, and which records are taken.

Decides nothing about groups. The positions and the rules of resets are those of the library (`state/`).
"""

from __future__ import annotations

import math
import sys

from kconsumer._core.decode import RecordRun, run_of
from kconsumer.engine.components import Components
from kconsumer.errors import OffsetOutOfRangeError
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
        moved_to, keeps = delivery.after, parts.config.record_filter
        with parts.changing():
            for tp in parts.assignment.assigned():
                state, found = parts.assignment.get(tp), self._broker.log(tp)
                if not (state.fetchable and state.position and max_records > 0 and max_bytes > 0):
                    continue
                state.update_offsets(found.end, found.end, found.beginning)
                limit = max_records if keeps is None else sys.maxsize
                taken = found.read(state.position.offset, limit, max_bytes)
                if not taken:
                    continue
                kept = [record for record in taken if keeps is None or keeps(record)][:max_records]
                last = kept[-1] if len(kept) == max_records else taken[-1]
                delivery.before[tp] = state.position
                delivery.open = True
                moved_to[tp] = FetchPosition(last.offset + 1, last.leader_epoch)
                state.set_position(moved_to[tp])
                if kept:
                    runs.append(run_of(kept))
                max_records -= len(kept)
                max_bytes -= sum(map(record_size, kept))
                if not found.read(moved_to[tp].offset, 1, math.inf):
                    parts.assignment.move_to_end(tp)  # as in a consumer, other partitions are read first now
            if not parts.positions.auto_store:
                parts.positions.pass_over(runs)
            delivery.version = parts.lock.version
        if error is not None and not runs:
            raise error
        return ConsumerRecords.from_runs(runs, moved_to)

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


def out_of_range_error(tp: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    """Returns the error for a position outside of the log, for the reset policy OffsetReset.NONE."""
    return OffsetOutOfRangeError(
        f"offset {offset} of {tp} is outside the partition's log and auto_offset_reset is none: seek() to an offset in"
        " range, or set auto_offset_reset",
        {tp: offset},
    )
