"""RangeReaderBase: where a range starts and ends, what happens if records were deleted, why an offset has no record.

The steps of a reader are operations (see `engine/waiting.py`). `kconsumer.ranges` blocks while they wait, and
`kconsumer.aio.ranges` awaits. An interrupted step has changed nothing: the reader assigns the results of a step after
its end. If the step has moved the position of the consumer, the next step moves it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kconsumer._client.consumer_base import ConsumerBase
from kconsumer._core.lock import Timer
from kconsumer._internal.managers import timed_out
from kconsumer.arrow import RecordBatch, SparkBatch
from kconsumer.errors import LogTruncationError, OffsetOutOfRangeError, StateError
from kconsumer.ranges import offset_bounds
from kconsumer.ranges.gaps import Gap, Gaps
from kconsumer.ranges.limits import Limits
from kconsumer.ranges.offset_bounds import Point
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.engine.waiting import Operation

MAX_POLL_MS = 500.0
Step: TypeAlias = tuple[RecordBatch | None, int, Gaps]


class RangeSource(Protocol):
    """The part of a range client that its readers use."""

    read_committed: bool
    timeout_ms: float

    @property
    def consumer(self) -> ConsumerBase:
        """The consumer that reads ranges and looks up offsets."""


class RangeReaderBase:
    """The part of a range reader that does not depend on how its methods wait."""

    start_offset: int
    end_offset: int
    next_offset: int
    log_start_offset: int
    high_watermark: int

    def __init__(
        self, client: RangeSource, partition: TopicPartition, start: Point, end: Point, limits: Limits
    ) -> None:
        for point in (start, end):
            offset_bounds.check(point)
        if isinstance(start, int) and isinstance(end, int) and start > end:
            raise ValueError(f"not a range of offsets: {start} to {end}")
        self.partition = partition
        self.ended = False
        self.last_stable_offset: int | None = None
        self._source = client
        self._limits = limits
        self._bounds = start, end
        self._gaps = Gaps()
        self._end_reason = "missing"  # why offsets from `_readable_end` to `end_offset` have no record
        self._readable_end = 0  # the offset up to which there may be records
        self._must_seek = True  # the position of the consumer is not in the log, or was never set

    # --- start -----------------------------------------------------------------------------------------------------

    def _locate(self) -> Operation[None]:
        """Look up the offsets of the range and of the log, and seek to the start.

        Raises OffsetOutOfRangeError if `on_data_loss` is "error" and offsets of the range are not in the log.
        """
        tp, consumer, (start, end) = self.partition, self._source.consumer, self._bounds
        first = yield from consumer._beginning_offsets([tp], None)
        last = yield from consumer._end_offsets([tp], None)
        starts = yield from offset_bounds.resolve(consumer, start, first, last)
        ends = yield from offset_bounds.resolve(consumer, end, first, last)
        self.log_start_offset, self.high_watermark = first[tp], last[tp]
        if self._source.read_committed:
            self.last_stable_offset = last[tp]
        self.start_offset = self.next_offset = starts[tp]
        self.end_offset = self._readable_end = ends[tp]
        if self.start_offset > self.end_offset and not isinstance(start, int):
            self.start_offset = self.next_offset = self.end_offset  # `end` is before the start that was looked up
        if self.next_offset < self.end_offset:
            self._check_log(isinstance(end, int))
            self._seek(consumer)
        elif self.next_offset > self.high_watermark:
            self._check_data_loss(self.next_offset)
        elif self.next_offset > self.end_offset:
            self.end_offset = self._readable_end = self.next_offset  # the end that was looked up is before `start`

    def _check_log(self, fixed_end: bool) -> None:
        """Skip offsets of the range that are not in the log.

        `fixed_end` is True if the user gave `end` as an offset. Raises OffsetOutOfRangeError if there are such offsets
        and `on_data_loss` is "error".
        """
        if self.next_offset < self.log_start_offset:
            self._skip_deleted(min(self.log_start_offset, self.end_offset))
        if fixed_end and not self._source.read_committed and self.end_offset > self.high_watermark:
            self._check_data_loss(self.end_offset)
            self._readable_end = max(self.next_offset, self.high_watermark)

    def _check_data_loss(self, offset: int) -> None:
        """Raise OffsetOutOfRangeError for `offset`, which is beyond the end of the log.

        Does nothing if `on_data_loss` is "skip".
        """
        if self._limits.on_data_loss == "error":
            raise OffsetOutOfRangeError(
                f"{self.partition} ends at offset {self.high_watermark}, so it has no offset {offset}; end the range"
                ' there, or set on_data_loss="skip"',
                {self.partition: offset},
            )

    def _skip_deleted(self, until: int) -> None:
        """Skip the offsets from `next_offset` to `until`, whose records were deleted, and add them to `gaps`.

        `until` itself is not skipped. Raises OffsetOutOfRangeError if `on_data_loss` is "error".
        """
        tp = self.partition
        if self._limits.on_data_loss == "error":
            raise OffsetOutOfRangeError(
                f"{tp} begins at offset {self.log_start_offset}: the records from {self.next_offset} on have been"
                ' deleted; start there, or set on_data_loss="skip"',
                {tp: self.next_offset},
            )
        gaps = self._gaps.copy()
        gaps.add(self.next_offset, until, "retention")
        self._gaps, self.next_offset = gaps, until

    def _seek(self, consumer: ConsumerBase) -> None:
        if self.next_offset < self._readable_end:
            consumer.assign([self.partition])
            consumer.seek(self.partition, self.next_offset)
            consumer.resume(self.partition)
            self._must_seek = False

    # --- results ---------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of every batch, as in `kconsumer.arrow`."""
        return self._limits.names

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The offsets before `next_offset` that have no record, with the reasons.

        Adjacent offsets with the same reason are one gap. Only the first 10,000 gaps are listed; `skipped` counts the
        offsets of all gaps.
        """
        return tuple(self._gaps.first)

    @property
    def skipped(self) -> dict[str, int]:
        """A dict of reason -> the number of offsets without a record for this reason. `Gap` lists the reasons."""
        return dict(self._gaps.counts)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _check_not_ended(self) -> None:
        """Raise StateError if the range was closed before its end."""
        if self.ended:
            raise StateError(
                f"the range of {self.partition} was closed at offset {self.next_offset}, or another one was opened on"
                " the same client"
            )

    def _read(self) -> Operation[Step]:
        """Poll once. Returns a batch or None, the offset where reading continues, and the gaps before it."""
        consumer = self._source.consumer
        if self._must_seek or not self._is_positioned(consumer):
            self._seek(consumer)
        try:
            records = yield from polled(consumer, self._limits, self._source.timeout_ms, self._where)
        except OffsetOutOfRangeError as error:
            out_of_range, self._must_seek = error, True
        else:
            return self._step_of(records, consumer)
        yield from self._recover(consumer, out_of_range)
        return None, self.next_offset, self._gaps

    def _is_positioned(self, consumer: ConsumerBase) -> bool:
        """Returns True if the next poll of the consumer continues at `next_offset`.

        Returns False after an interrupted step that has moved the position, and for a new consumer.
        """
        parts = consumer._engine.components
        with parts.lock:
            state = parts.assignment.find(self.partition)
            if state is None or state.position is None or state.paused:
                return False
            return state.position.offset == self.next_offset

    def _where(self) -> str:
        return f"{self.partition} at offset {self.next_offset} of {self._readable_end}"

    def _step_of(self, records: ConsumerRecords, consumer: ConsumerBase) -> Step:
        """Returns the results of a step that has polled these records."""
        tp = self.partition
        batch = records.to_arrow(self._limits.names, ends={tp: self._readable_end})
        next_position = records.next_offsets().get(tp)
        reached = self.next_offset if next_position is None else min(next_position.offset, self._readable_end)
        gaps, passed_over = self._gaps, batch.gaps(self.next_offset, reached)
        if passed_over:
            gaps = gaps.copy()
            gaps.explain(passed_over, records.skipped().get(tp, ()))
        self._update_log_offsets(consumer)
        if reached >= self._readable_end:
            consumer.pause(tp)
        if not batch:
            return None, reached, gaps
        return SparkBatch(batch) if self._limits.schema == "spark" else batch, reached, gaps

    def _update_log_offsets(self, consumer: ConsumerBase) -> None:
        engine = consumer._engine
        with engine.lock:
            state = engine.components.assignment.get(self.partition)
        self.high_watermark = _or_else(state.high_watermark, self.high_watermark)
        self.log_start_offset = _or_else(state.log_start_offset, self.log_start_offset)
        if self._source.read_committed:
            self.last_stable_offset = state.last_stable_offset

    def _recover(self, consumer: ConsumerBase, error: OffsetOutOfRangeError) -> Operation[None]:
        """Skip the offsets that the log has lost. `error` means that the consumer's position is not in the log.

        Raises OffsetOutOfRangeError if `on_data_loss` is "error". Also raises `error` if the log has lost nothing: it
        contains the rest of the range and was not truncated.
        """
        tp, truncated = self.partition, isinstance(error, LogTruncationError)
        first = yield from consumer._beginning_offsets([tp], None)
        last = yield from consumer._end_offsets([tp], None)
        self.log_start_offset, end = first[tp], last[tp]
        if self.log_start_offset > self.next_offset:
            self._skip_deleted(min(self.log_start_offset, self._readable_end))
        elif self._limits.on_data_loss == "error" or not (truncated or end < self._readable_end):
            raise error
        if end < self._readable_end:
            self._readable_end, self._end_reason = max(self.next_offset, end), "truncated"
        self._seek(consumer)  # without a leader epoch: a truncated log that has grown again is read as it is now

    def _finish(self) -> None:
        """Add the offsets beyond the last readable one to `gaps`. Called after the last batch."""
        gaps, end = self._gaps.copy(), max(self.next_offset, self.end_offset)
        gaps.add(max(self._readable_end, self.next_offset), self.end_offset, self._end_reason)
        self._gaps, self.next_offset, self._readable_end = gaps, end, end


def polled(
    consumer: ConsumerBase, limits: Limits, timeout_ms: float, where: Callable[[], str]
) -> Operation[ConsumerRecords]:
    """Poll until there are records, or a position has moved past offsets without records.

    Returns the result of the last poll. Raises TimeoutError if this takes longer than `timeout_ms`. Its message
    contains the result of `where`, and the last errors of the brokers.
    """
    timer = Timer(consumer._clock, timeout_ms)
    while True:
        records = yield from consumer._engine.poll_steps(MAX_POLL_MS, limits.max_rows, limits.max_bytes)
        if records or records.next_offsets():
            return records
        if timer.expired:
            text = f"no data for {timeout_ms / 1000:g} s while reading {where()}"
            raise timed_out(
                text, consumer._engine.driver.known_errors(consumer._engine.components.assignment.assigned())
            )


def _or_else(found: int | None, before: int) -> int:
    return before if found is None else found
