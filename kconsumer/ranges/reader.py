"""read_range and RangeReader: read the records of one partition between two points, and report offsets without records.

Decides where a range starts and ends, what happens if records were deleted, and why an offset has no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from kconsumer.arrow import RecordBatch, SparkBatch, choose, choose_spark
from kconsumer.clock import Clock, Timer
from kconsumer.consumer import Consumer
from kconsumer.errors import LogTruncationError, OffsetOutOfRangeError, StateError, TimeoutError
from kconsumer.ranges import offset_bounds
from kconsumer.ranges.client import RangeClient
from kconsumer.ranges.gaps import Gap, Gaps
from kconsumer.ranges.offset_bounds import Point
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition

__all__ = ["Gap", "RangeReader", "read_range"]

OnDataLoss = Literal["error", "skip"]
Schema = Literal["kconsumer", "spark"]
MAX_POLL_S = 0.5


@dataclass(frozen=True)
class Limits:
    """The checked arguments of a range reader. Raises ValueError for illegal values."""

    columns: Iterable[str] | None = None
    schema: Schema = "kconsumer"
    max_rows: int = 20_000
    max_bytes: int = 4 << 20
    on_data_loss: OnDataLoss = "error"
    names: tuple[str, ...] = field(init=False)  # the names of the columns to read

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.max_bytes < 1:
            raise ValueError(f"max_rows and max_bytes must be at least 1, not {self.max_rows} and {self.max_bytes}")
        if self.on_data_loss not in ("error", "skip"):
            raise ValueError(f"on_data_loss is error or skip, not {self.on_data_loss!r}")
        if self.schema not in ("kconsumer", "spark"):
            raise ValueError(f"schema is kconsumer or spark, not {self.schema!r}")
        chosen = choose_spark(self.columns) if self.schema == "spark" else choose(self.columns)
        object.__setattr__(self, "names", chosen)


def read_range(
    partition: TopicPartition | tuple[str, int],
    start: Point,
    end: Point,
    *,
    bootstrap_servers: str | Sequence[str],
    columns: Iterable[str] | None = None,
    schema: Schema = "kconsumer",
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 4 << 20,
    max_rows: int = 20_000,
    on_data_loss: OnDataLoss = "error",
    **options: Any,
) -> RangeReader:
    """Returns an iterator over the records of one partition from `start` up to, not including, `end`, as Arrow batches.

    `start` and `end` are each an offset, `EARLIEST`, `LATEST` or a `datetime` with a time zone. `LATEST` is the current
    end of the log (with read_committed the last stable offset). A `datetime` means the first record of that time or
    later. `columns` are columns of `kconsumer.arrow`. With `schema="spark"`, they are columns of Spark's Kafka source,
    with its types. A batch ends with the row that reaches `max_bytes`. `options` are those of `Consumer`.

    Raises OffsetOutOfRangeError or LogTruncationError for offsets that are not in the log, in this call or when the
    iterator reaches them. With `on_data_loss="skip"`, such offsets are listed in `gaps` instead. With read_committed,
    the iterator waits for the last stable offset if the range ends beyond it. Raises TimeoutError if there is no
    progress for `default_api_timeout_ms`. To read many ranges, use a `RangeClient`.
    """
    limits = Limits(columns, schema, max_rows, max_bytes, on_data_loss)
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    try:
        reader = client.open_range(TopicPartition(*partition), start, end, limits)
    except BaseException:
        client.close()
        raise
    reader.owns_client = True
    return reader


class RangeReader:
    """Iterates over the Arrow batches of a range.

    Reading ends after the last batch, in `close()`, or at the end of a `with` block.

    `start_offset` and `end_offset` are looked up when the range is opened. Reading continues at `next_offset`.
    `log_start_offset`, `high_watermark` and (with read_committed) `last_stable_offset` are the values of the last
    fetch.
    """

    def __init__(
        self, client: RangeClient, partition: TopicPartition, start: Point, end: Point, limits: Limits
    ) -> None:
        self.partition = partition
        self.owns_client = False
        self.ended = False
        self.last_stable_offset: int | None = None
        self._client = client
        self._limits = limits
        self._gaps = Gaps()
        self._end_reason = "missing"  # why offsets from `_readable_end` to `end_offset` have no record
        self._positioned: Consumer | None = None  # the consumer if its position is `next_offset`, else None
        self._clock = Clock()
        self._locate(start, end)

    # --- start -----------------------------------------------------------------------------------------------------

    def _locate(self, start: Point, end: Point) -> None:
        """Look up the offsets of the range and of the log, and seek to the start.

        Raises ValueError for illegal points. Raises OffsetOutOfRangeError if `on_data_loss` is "error" and offsets of
        the range are not in the log.
        """
        tp, consumer = self.partition, self._client.consumer
        for point in (start, end):
            offset_bounds.check(point)
        if isinstance(start, int) and isinstance(end, int) and start > end:
            raise ValueError(f"not a range of offsets: {start} to {end}")
        first = consumer.beginning_offsets([tp])
        last = consumer.end_offsets([tp])
        self.log_start_offset, self.high_watermark = first[tp], last[tp]
        if self._client.read_committed:
            self.last_stable_offset = last[tp]
        self.start_offset = self.next_offset = offset_bounds.resolve(consumer, start, first, last)[tp]
        self.end_offset = self._readable_end = offset_bounds.resolve(consumer, end, first, last)[tp]
        if self.start_offset > self.end_offset and not isinstance(start, int):
            self.start_offset = self.next_offset = self.end_offset  # `end` is before the start that was looked up
        if self.next_offset < self.end_offset:
            self._check_log(isinstance(end, int))
            self._seek()
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
        if fixed_end and not self._client.read_committed and self.end_offset > self.high_watermark:
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

    def _seek(self) -> None:
        consumer = self._client.consumer
        if self.next_offset < self._readable_end:
            consumer.assign([self.partition])
            consumer.seek(self.partition, self.next_offset)
            consumer.resume(self.partition)
            self._positioned = consumer

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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RecordBatch:
        while self.next_offset < self._readable_end:
            if self.ended:
                raise StateError(
                    f"the range of {self.partition} was closed at offset {self.next_offset}, or another one was opened"
                    " on the same client"
                )
            with self._client.in_use():
                batch, reached, gaps, consumer = self._read()
            # There must be no call between here and the return: signal handlers, such as Ctrl-C's, raise at calls.
            # If one raises before this line, nothing has changed, and the next call repeats the step. If one raised
            # after it, the batch would be lost.
            self._gaps, self._positioned, self.next_offset = gaps, consumer, reached
            if batch is not None:
                return batch
        gaps, end = self._gaps.copy(), max(self.next_offset, self.end_offset)
        gaps.add(max(self._readable_end, self.next_offset), self.end_offset, self._end_reason)
        self._gaps, self.next_offset, self._readable_end = gaps, end, end
        self.close()
        raise StopIteration

    def _read(self) -> tuple[RecordBatch | None, int, Gaps, Consumer]:
        """Poll once. Returns a batch or None, the offset where reading continues, the gaps before it, and the consumer.

        The position of the consumer is the offset where reading continues.
        """
        tp, consumer = self.partition, self._client.consumer
        if self._positioned is not consumer:  # the last step was interrupted after the consumer's position had moved
            self._seek()
        self._positioned = None
        try:
            records = self._poll()
        except OffsetOutOfRangeError as error:
            self._recover(error)
            return None, self.next_offset, self._gaps, consumer
        batch = records.to_arrow(self._limits.names, ends={tp: self._readable_end})
        next_position = records.next_offsets().get(tp)
        reached = self.next_offset if next_position is None else min(next_position.offset, self._readable_end)
        gaps, passed_over = self._gaps, batch.gaps(self.next_offset, reached)
        if passed_over:
            gaps = gaps.copy()
            gaps.explain(passed_over, records.skipped().get(tp, ()))
        self._update_log_offsets()
        if reached >= self._readable_end:
            consumer.pause(tp)
        if not batch:
            return None, reached, gaps, consumer
        return SparkBatch(batch) if self._limits.schema == "spark" else batch, reached, gaps, consumer

    def _poll(self) -> ConsumerRecords:
        """Poll until there are records, or the position has moved past offsets without records.

        Returns the result of the last poll. Raises TimeoutError if this takes longer than `default_api_timeout_ms`.
        """
        timer = Timer(self._clock, self._client.timeout_ms)
        while True:
            records = self._client.consumer._poll(MAX_POLL_S, self._limits.max_rows, self._limits.max_bytes)
            if records or records.next_offsets():
                return records
            if timer.expired:
                raise TimeoutError(
                    f"no data for {self._client.timeout_ms / 1000:g} s while reading {self.partition} at offset"
                    f" {self.next_offset} of {self._readable_end}"
                )

    def _update_log_offsets(self) -> None:
        engine = self._client.consumer._engine
        with engine.lock:
            state = engine.components.subscription.get(self.partition)
        self.high_watermark = _or_else(state.high_watermark, self.high_watermark)
        self.log_start_offset = _or_else(state.log_start_offset, self.log_start_offset)
        if self._client.read_committed:
            self.last_stable_offset = state.last_stable_offset

    def _recover(self, error: OffsetOutOfRangeError) -> None:
        """Skip the offsets that the log has lost. `error` means that the consumer's position is not in the log.

        Raises OffsetOutOfRangeError if `on_data_loss` is "error". Also raises `error` if the log has lost nothing: it
        contains the rest of the range and was not truncated.
        """
        tp, consumer = self.partition, self._client.consumer
        truncated = isinstance(error, LogTruncationError)
        self.log_start_offset = consumer.beginning_offsets([tp])[tp]
        end = consumer.end_offsets([tp])[tp]
        if self.log_start_offset > self.next_offset:
            self._skip_deleted(min(self.log_start_offset, self._readable_end))
        elif self._limits.on_data_loss == "error" or not (truncated or end < self._readable_end):
            raise error
        if end < self._readable_end:
            self._readable_end, self._end_reason = max(self.next_offset, end), "truncated"
        self._seek()  # without a leader epoch: a truncated log that has grown again is read as it is now

    def close(self) -> None:
        """End the range. If `read_range` created the client, also closes its connections. Further calls do nothing."""
        if self.owns_client:
            self._client.close()
        else:
            self._client.close_range(self)
        self.ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None and not self.ended and not self.owns_client:
            self.ended = True
            client.start_idle_timer()  # the range will never be closed, so the idle timer must not wait for this

    def __repr__(self) -> str:
        return f"<RangeReader {self.partition} at {self.next_offset} of {self.end_offset}>"


def _or_else(found: int | None, before: int) -> int:
    return before if found is None else found
