"""read_range and RangeReader: the records of one partition between two points, and what became of every other offset.

Decides where a range begins and ends, what is done about records that are gone, and why an offset gave no record.
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
LONGEST_POLL_S = 0.5


@dataclass(frozen=True)
class Limits:
    """How a range is to be read. Raises ValueError for what makes no sense."""

    columns: Iterable[str] | None = None
    schema: Schema = "kconsumer"
    max_rows: int = 20_000
    max_bytes: int = 4 << 20
    on_data_loss: OnDataLoss = "error"
    names: tuple[str, ...] = field(init=False)

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
    """The records of one partition with offsets from `start` up to, not including, `end`, as Arrow batches.

    Both ends are offsets, `EARLIEST`, `LATEST` (as of now; with read_committed the last stable offset) or a `datetime`
    with a time zone (the first record of that time or later). `columns` of `kconsumer.arrow`, or with `schema="spark"`
    those of Spark's Kafka source, to the letter of its types. A batch ends with the row that reaches `max_bytes`.

    Offsets that are not in the log (any more) raise OffsetOutOfRangeError or LogTruncationError, now or when reading
    comes to them; with `on_data_loss="skip"` they are listed in `gaps`. A range that goes beyond the last stable offset
    with read_committed is waited for; TimeoutError when nothing comes for `default_api_timeout_ms`. `options` are those
    of `Consumer`. To read many ranges, take a `RangeClient`.
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
    """Iterates over the Arrow batches of a range; ends itself after the last one, or with `close()` or `with`.

    `start_offset` and `end_offset` are the range as found at the beginning, `next_offset` is where reading goes on.
    `log_start_offset`, `high_watermark` and (with read_committed) `last_stable_offset` are as of the last fetch.
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
        self._rest = "missing"  # why the range ends before its end
        self._positioned: Consumer | None = None  # the consumer that is known to be positioned at `next_offset`
        self._clock = Clock()
        self._find(start, end)

    # --- beginning -------------------------------------------------------------------------------------------------

    def _find(self, start: Point, end: Point) -> None:
        """Look up what there is, and seek."""
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
        self.end_offset = self._reachable = offset_bounds.resolve(consumer, end, first, last)[tp]
        if self.start_offset > self.end_offset and not isinstance(start, int):
            self.start_offset = self.next_offset = self.end_offset  # the latest record is later than a fixed end
        if self.next_offset < self.end_offset:
            self._check_log(isinstance(end, int))
            self._seek()
        elif self.next_offset > self.end_offset:
            self._beyond(self.next_offset)

    def _check_log(self, fixed_end: bool) -> None:
        """Find out what of the range is not there, and lose it or raise."""
        if self.next_offset < self.log_start_offset:
            self._lose(min(self.log_start_offset, self.end_offset))
        if fixed_end and not self._client.read_committed and self.end_offset > self.high_watermark:
            self._beyond(self.end_offset)
            self._reachable = max(self.next_offset, self.high_watermark)

    def _beyond(self, offset: int) -> None:
        if self._limits.on_data_loss == "error":
            raise OffsetOutOfRangeError(
                f"{self.partition} ends at offset {self.high_watermark}, so there is no range with {offset} as one of"
                ' its ends; end it there, or give on_data_loss="skip"',
                {self.partition: offset},
            )

    def _lose(self, until: int) -> None:
        """What lies before `until` was deleted: note it, or raise."""
        tp = self.partition
        if self._limits.on_data_loss == "error":
            raise OffsetOutOfRangeError(
                f"{tp} begins at offset {self.log_start_offset}: the records from {self.next_offset} on have been"
                ' deleted; start there, or give on_data_loss="skip"',
                {tp: self.next_offset},
            )
        gaps = self._gaps.copy()
        gaps.add(self.next_offset, until, "retention")
        self._gaps, self.next_offset = gaps, until

    def _seek(self) -> None:
        consumer = self._client.consumer
        if self.next_offset < self._reachable:
            consumer.assign([self.partition])
            consumer.seek(self.partition, self.next_offset)
            consumer.resume(self.partition)
            self._positioned = consumer

    # --- what is known ---------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of every batch, as kconsumer names them."""
        return self._limits.names

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The offsets before `next_offset` that gave no record, and why; neighbours of one reason are one gap.

        The first 10,000 of them; `skipped` counts all.
        """
        return tuple(self._gaps.first)

    @property
    def skipped(self) -> dict[str, int]:
        """How many offsets gave no record, by the reasons of `Gap`."""
        return dict(self._gaps.counts)

    # --- reading ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RecordBatch:
        while self.next_offset < self._reachable:
            if self.ended:
                raise StateError(
                    f"the range of {self.partition} was closed at offset {self.next_offset}, or another one was opened"
                    " on the same client"
                )
            with self._client.in_use():
                batch, reached, gaps, consumer = self._read()
            # No call may stand between here and the return. Ctrl-C and other signal handlers raise at calls: one of
            # them above leaves all as it was, and the step is done again. One in between would lose the batch.
            self._gaps, self._positioned, self.next_offset = gaps, consumer, reached
            if batch is not None:
                return batch
        gaps, end = self._gaps.copy(), max(self.next_offset, self.end_offset)
        gaps.add(max(self._reachable, self.next_offset), self.end_offset, self._rest)
        self._gaps, self.next_offset, self._reachable = gaps, end, end
        self.close()
        raise StopIteration

    def _read(self) -> tuple[RecordBatch | None, int, Gaps, Consumer]:
        """Do one poll. Returns a batch or None, where reading continues, the gaps up to there, and the consumer that
        is positioned there."""
        tp, consumer = self.partition, self._client.consumer
        if self._positioned is not consumer:  # the last step was interrupted after the consumer's position had moved
            self._seek()
        self._positioned = None
        try:
            records = self._poll()
        except OffsetOutOfRangeError as error:
            self._recover(error)
            return None, self.next_offset, self._gaps, consumer
        batch = records.to_arrow(self._limits.names, ends={tp: self._reachable})
        moved = records.next_offsets().get(tp)
        reached = self.next_offset if moved is None else min(moved.offset, self._reachable)
        gaps, passed = self._gaps, batch.gaps(self.next_offset, reached)
        if passed:
            gaps = gaps.copy()
            gaps.explain(passed, records.skipped().get(tp, ()))
        self._look_at_log()
        if reached >= self._reachable:
            consumer.pause(tp)
        if not batch:
            return None, reached, gaps, consumer
        return SparkBatch(batch) if self._limits.schema == "spark" else batch, reached, gaps, consumer

    def _poll(self) -> ConsumerRecords:
        """Records, or a position that moved. TimeoutError when there is neither for too long."""
        timer = Timer(self._clock, self._client.patience_ms)
        while True:
            records = self._client.consumer._poll(LONGEST_POLL_S, self._limits.max_rows, self._limits.max_bytes)
            if records or records.next_offsets():
                return records
            if timer.expired:
                raise TimeoutError(
                    f"nothing came for {self._client.patience_ms / 1000:g} s while reading {self.partition} at offset"
                    f" {self.next_offset} of {self._reachable}"
                )

    def _look_at_log(self) -> None:
        engine = self._client.consumer._engine
        with engine.lock:
            state = engine.components.subscription.get(self.partition)
        self.high_watermark = _newer(state.high_watermark, self.high_watermark)
        self.log_start_offset = _newer(state.log_start_offset, self.log_start_offset)
        if self._client.read_committed:
            self.last_stable_offset = state.last_stable_offset

    def _recover(self, error: OffsetOutOfRangeError) -> None:
        """The position is not in the log (any more): lose what is gone and go on behind it, or raise."""
        tp, consumer = self.partition, self._client.consumer
        truncated = isinstance(error, LogTruncationError)
        self.log_start_offset = consumer.beginning_offsets([tp])[tp]
        end = consumer.end_offsets([tp])[tp]
        if self.log_start_offset > self.next_offset:
            self._lose(min(self.log_start_offset, self._reachable))
        elif self._limits.on_data_loss == "error" or not (truncated or end < self._reachable):
            raise error
        if end < self._reachable:
            self._reachable, self._rest = max(self.next_offset, end), "truncated"
        self._seek()  # without the epoch of what was read: a log that grew again is read as it is now

    def close(self) -> None:
        """End the range; a client that was made for it closes its connections. May be called again."""
        if self.owns_client:
            self._client.close()
        else:
            self._client.closed_by(self)
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
            client.watch()  # nobody will end the range, but the connections need not stay for it

    def __repr__(self) -> str:
        return f"<RangeReader {self.partition} at {self.next_offset} of {self.end_offset}>"


def _newer(found: int | None, before: int) -> int:
    return before if found is None else found
