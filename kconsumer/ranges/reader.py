"""read_range and RangeReader: read the records of one partition between two points, and report offsets without records.

`RangeReaderBase` decides what a range contains. Here the calling thread blocks while a step of the reader waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from kconsumer.arrow import RecordBatch
from kconsumer.ranges.client import RangeClient
from kconsumer.ranges.gaps import Gap
from kconsumer.ranges.limits import Limits, OnDataLoss, Schema
from kconsumer.ranges.offset_bounds import Point
from kconsumer.ranges.reader_base import RangeReaderBase
from kconsumer.types import TopicPartition

__all__ = ["Gap", "RangeReader", "read_range"]


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

    Raises OffsetOutOfRangeError or LogTruncationError for offsets that are not in the log, when the range is opened or
    when the iterator reaches them. With `on_data_loss="skip"`, such offsets are listed in `gaps` instead. With
    read_committed, the iterator waits for the last stable offset if the range ends beyond it. Raises TimeoutError if
    there is no progress for `default_api_timeout_ms`. To read many ranges, use a `RangeClient`.
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


class RangeReader(RangeReaderBase):
    """Iterates over the Arrow batches of a range.

    Reading ends after the last batch, in `close()`, or at the end of a `with` block.

    `start_offset` and `end_offset` are looked up when the range is opened. Reading continues at `next_offset`.
    `log_start_offset`, `high_watermark` and (with read_committed) `last_stable_offset` are the values of the last
    fetch.
    """

    def __init__(
        self, client: RangeClient, partition: TopicPartition, start: Point, end: Point, limits: Limits
    ) -> None:
        super().__init__(client, partition, start, end, limits)
        self.owns_client = False
        self._client = client
        client.consumer._run(self._locate())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RecordBatch:
        while self.next_offset < self._readable_end:
            self._check_not_ended()
            with self._client.in_use():
                batch, reached, gaps = self._client.consumer._run(self._read())
            # There must be no call between here and the return: signal handlers, such as Ctrl-C's, raise at calls.
            # If one raises before this line, nothing has changed, and the next call repeats the step. If one raised
            # after it, the batch would be lost.
            self._gaps, self.next_offset = gaps, reached
            if batch is not None:
                return batch
        self._finish()
        self.close()
        raise StopIteration

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
