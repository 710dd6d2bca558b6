"""Reading without a group: an exact range of one partition, or a whole topic, as Arrow columns.

`read_range` gives the batches of one partition's offsets one after the other and accounts for every offset without a
record; `read_topic` gives a topic at once. Both make a `Consumer` of their own that commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from kconsumer.arrow import RecordBatch, Table, choose
from kconsumer.clock import Clock, Timer
from kconsumer.consumer import Consumer
from kconsumer.errors import ConfigError, LogTruncationError, OffsetOutOfRangeError, TimeoutError
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition

__all__ = ["Gap", "RangeReader", "read_range", "read_topic"]

OnDataLoss = Literal["error", "skip"]
Where = str | int | datetime
LONGEST_POLL_S = 0.5
OURS = ("auto_offset_reset", "group_id", "group_instance_id", "enable_auto_commit", "consumer_timeout_ms")


class Gap(NamedTuple):
    """Offsets from `start` up to, not including, `end` that gave no record.

    `reason`: `control` (transaction markers), `aborted` (records of aborted transactions), `retention` (deleted
    before they could be read), `missing` (beyond the end of the log), or `compaction`: none of these, so they were
    compacted away.
    """

    start: int
    end: int
    reason: str


def read_range(
    partition: TopicPartition | tuple[str, int],
    start: int,
    end: int,
    *,
    bootstrap_servers: str | Sequence[str],
    columns: Iterable[str] | None = None,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 4 << 20,
    max_rows: int = 20_000,
    on_data_loss: OnDataLoss = "error",
    **options: Any,
) -> RangeReader:
    """The records of one partition with offsets from `start` up to, not including, `end`, as Arrow batches.

    Offsets that are not in the log (any more) raise OffsetOutOfRangeError, now or when reading comes to them; with
    `on_data_loss="skip"` they are listed in `gaps`. `options` are those of `Consumer`. A range that goes beyond the
    last stable offset with read_committed is waited for; TimeoutError when nothing comes for `default_api_timeout_ms`.
    """
    tp = TopicPartition(*partition)
    if not 0 <= start <= end:
        raise ValueError(f"not a range of offsets: {start} to {end}")
    if on_data_loss not in ("error", "skip"):
        raise ValueError(f"on_data_loss is error or skip, not {on_data_loss!r}")
    chosen = choose(columns)
    reading = _reading(bootstrap_servers, isolation_level, max_rows, max_bytes, options)
    try:
        reader = RangeReader(reading, tp, start, end, chosen, on_data_loss)
        reader._begin(isolation_level)
    except BaseException:
        reading.close()
        raise
    return reader


class RangeReader:
    """Iterates over the Arrow batches of a range; closes itself at the end, or with `close()` or `with`."""

    def __init__(
        self,
        reading: _Reading,
        partition: TopicPartition,
        start: int,
        end: int,
        columns: tuple[str, ...],
        on_data_loss: OnDataLoss,
    ) -> None:
        self.partition = partition
        self.columns = columns
        self.next_offset = start
        self.log_start_offset = self.high_watermark = 0
        self._end = self._asked_end = end
        self._skips = on_data_loss == "skip"
        self._gaps: list[Gap] = []
        self._reading = reading

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The offsets before `next_offset` that gave no record, and why; neighbours of one reason are one gap."""
        return tuple(self._gaps)

    def _begin(self, isolation_level: str) -> None:
        """Look up what there is, and seek."""
        tp, consumer = self.partition, self._reading.consumer
        self.log_start_offset = consumer.beginning_offsets([tp])[tp]
        self.high_watermark = consumer.end_offsets([tp])[tp]
        if self.next_offset == self._end:
            return
        if self.next_offset < self.log_start_offset:
            self._lose(min(self.log_start_offset, self._end))
        if isolation_level != "read_committed" and self._end > self.high_watermark:
            if not self._skips:
                raise OffsetOutOfRangeError(
                    f"{tp} ends at offset {self.high_watermark}, so there is no range up to {self._end}; end it there,"
                    ' or give on_data_loss="skip"',
                    {tp: self._end},
                )
            self._asked_end, self._end = self._end, max(self.next_offset, self.high_watermark)
        self._reading.seek({tp: (self.next_offset, self._end)})

    def _lose(self, until: int) -> None:
        """What lies before `until` was deleted: note it, or raise."""
        tp = self.partition
        if not self._skips:
            raise OffsetOutOfRangeError(
                f"{tp} begins at offset {self.log_start_offset}: the records from {self.next_offset} on have been"
                ' deleted; start there, or give on_data_loss="skip"',
                {tp: self.next_offset},
            )
        self._add(Gap(self.next_offset, until, "retention"))
        self.next_offset = until

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        while self.next_offset < self._end:
            batch = self._read()
            if batch:
                return batch
        if self._end < self._asked_end:
            self._add(Gap(self._end, self._asked_end, "missing"))
            self.next_offset = self._end = self._asked_end
        self.close()
        raise StopIteration

    def _read(self) -> RecordBatch | None:
        """One poll; None if only the position moved."""
        tp, reading = self.partition, self._reading
        try:
            records = reading.poll()
        except LogTruncationError:
            raise
        except OffsetOutOfRangeError:
            self.log_start_offset = reading.consumer.beginning_offsets([tp])[tp]
            if self.log_start_offset <= self.next_offset:
                raise
            self._lose(min(self.log_start_offset, self._end))
            reading.seek({tp: (self.next_offset, self._end)})
            return None
        batch = records.to_arrow(self.columns, ends={tp: self._end})
        reached = min(reading.reached(tp, records, self.next_offset), self._end)
        self._explain(batch.gaps(self.next_offset, reached), records.skipped().get(tp, ()))
        self.next_offset = reached
        self.high_watermark = reading.high_watermark(tp) or self.high_watermark
        reading.settle(records)
        return batch or None

    def _explain(self, gaps: Iterable[tuple[int, int]], skipped: Iterable[tuple[int, int, str]]) -> None:
        known = sorted(set(skipped))
        for start, end in gaps:
            at = start
            for first, after, reason in known:
                if first < end and after > at:
                    if first > at:
                        self._add(Gap(at, first, "compaction"))
                    self._add(Gap(max(at, first), min(after, end), reason))
                    at = min(after, end)
            if at < end:
                self._add(Gap(at, end, "compaction"))

    def _add(self, gap: Gap) -> None:
        last = self._gaps[-1] if self._gaps else None
        if last is not None and (last.end, last.reason) == (gap.start, gap.reason):
            self._gaps[-1] = Gap(last.start, gap.end, gap.reason)
        else:
            self._gaps.append(gap)

    def close(self) -> None:
        """Close the connections. May be called again; iterating on is not possible afterwards."""
        self._reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RangeReader {self.partition} at {self.next_offset} of {self._end}>"


def read_topic(
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str],
    start: Where = "earliest",
    end: Where = "latest",
    columns: Iterable[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 16 << 20,
    max_rows: int = 200_000,
    **options: Any,
) -> Table:
    """All records of a topic's partitions between two points, as a table in memory.

    `start` and `end` are `earliest`, `latest` (as of now), an offset (clipped to what each partition holds) or a
    `datetime` with a time zone: the first record of that time or later. `progress(done, total)` is called with offsets
    after each batch. `options` are those of `Consumer`. Records of one partition come in order.

    Raises OffsetOutOfRangeError if records are deleted while they are being read, TimeoutError if nothing comes for
    `default_api_timeout_ms`, ValueError if there is no such topic.
    """
    chosen = choose(columns)
    reading = _reading(bootstrap_servers, isolation_level, max_rows, max_bytes, options)
    try:
        consumer = reading.consumer
        found = consumer.partitions_for(topic)
        if not found:
            raise ValueError(f"there is no topic {topic!r} on {bootstrap_servers}")
        partitions = sorted(TopicPartition(topic, info.partition) for info in found)
        first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        starts, ends = (_resolve(consumer, point, first, last) for point in (start, end))
        total = sum(max(ends[tp] - starts[tp], 0) for tp in partitions)
        reading.seek({tp: (starts[tp], ends[tp]) for tp in partitions if starts[tp] < ends[tp]})
        parts: list[RecordBatch] = []
        while reading.left:
            records = reading.poll()
            batch = records.to_arrow(chosen, ends=ends)
            if batch:
                parts.append(batch)
            reading.settle(records)
            if progress is not None:
                progress(total - reading.remaining(), total)
        return Table(chosen, parts)
    finally:
        reading.close()


def _resolve(
    consumer: Consumer, point: Where, first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset in each partition that a point stands for."""
    if point == "earliest":
        return dict(first)
    if point == "latest":
        return dict(last)
    if isinstance(point, datetime):
        if point.tzinfo is None:
            raise ValueError(f"{point!r} has no time zone")
        found = consumer.offsets_for_times(dict.fromkeys(first, int(point.timestamp() * 1000)))
        return {tp: last[tp] if at is None else at.offset for tp, at in found.items()}
    if isinstance(point, int):
        return {tp: min(max(point, first[tp]), last[tp]) for tp in first}
    raise ValueError(f"{point!r} is neither earliest, latest, an offset nor a datetime")


def _reading(
    bootstrap_servers: str | Sequence[str],
    isolation_level: str,
    max_rows: int,
    max_bytes: int,
    options: Mapping[str, Any],
) -> _Reading:
    if max_rows < 1 or max_bytes < 1:
        raise ValueError(f"max_rows and max_bytes must be at least 1, not {max_rows} and {max_bytes}")
    for name in OURS:
        if name in options:
            raise ConfigError(f"{name} has no place here: ranges are read without a group, from where you say")
    consumer = Consumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level=isolation_level,
        auto_offset_reset="none",
        **{"allow_auto_create_topics": False, **options},
    )
    return _Reading(consumer, max_rows, max_bytes, float(options.get("default_api_timeout_ms", 60_000)))


class _Reading:
    """Polls a consumer over ranges of several partitions, each until its end."""

    def __init__(self, consumer: Consumer, max_rows: int, max_bytes: int, patience_ms: float) -> None:
        self.consumer = consumer
        self.left: dict[TopicPartition, tuple[int, int]] = {}  # where each goes on, and ends
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._patience_ms = patience_ms
        self._clock = Clock()

    def seek(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read these, all of them."""
        self.left = dict(ranges)
        self.consumer.assign(ranges)
        for tp, (start, _) in ranges.items():
            self.consumer.seek(tp, start)

    def poll(self) -> ConsumerRecords:
        """Records, or a position that moved. TimeoutError when there is neither for too long."""
        timer = Timer(self._clock, self._patience_ms)
        while True:
            records = self.consumer._poll(LONGEST_POLL_S, self._max_rows, self._max_bytes)
            if records or records.next_offsets():
                return records
            if timer.expired:
                where = ", ".join(f"{tp} at offset {at} of {end}" for tp, (at, end) in self.left.items())
                raise TimeoutError(f"nothing came for {self._patience_ms / 1000:g} s while reading {where}")

    def settle(self, records: ConsumerRecords) -> None:
        """Note where partitions are, and ask for no more of those at their end."""
        for tp in records.next_offsets():
            if tp in self.left:
                start, end = self.left[tp]
                reached = self.reached(tp, records, start)
                if reached < end:
                    self.left[tp] = reached, end
                else:
                    del self.left[tp]
                    self.consumer.pause(tp)

    def reached(self, tp: TopicPartition, records: ConsumerRecords, before: int) -> int:
        """Where the partition is after these records."""
        found = records.next_offsets().get(tp)
        return before if found is None else found.offset

    def remaining(self) -> int:
        """How many offsets are still to be read."""
        return sum(end - at for at, end in self.left.values())

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The end of the partition as of the last fetch, if known."""
        return self.consumer.partition_states()[tp].high_watermark

    def close(self) -> None:
        self.consumer.close()
