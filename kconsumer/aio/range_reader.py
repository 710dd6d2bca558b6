"""read_range and RangeReader for asyncio: read the records of one partition between two points.

`RangeReaderBase` decides what a range contains. Here the calling task is suspended while a step of the reader waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kconsumer.aio.range_client import RangeClient
from kconsumer.aio.reader_base import AsyncReader
from kconsumer.arrow import RecordBatch
from kconsumer.errors import StateError
from kconsumer.ranges.limits import Limits, OnDataLoss, Schema
from kconsumer.ranges.offset_bounds import Point
from kconsumer.ranges.reader_base import RangeReaderBase
from kconsumer.types import TopicPartition


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
    """Returns an async iterator over the records of one partition from `start` up to, not including, `end`.

    It yields Arrow batches. Use it in `async with`, which opens the range, or await it to open the range.

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
    reader = RangeReader(client, TopicPartition(*partition), start, end, limits)
    reader.owns_client = True
    return reader


class RangeReader(AsyncReader, RangeReaderBase):
    """Iterates over the Arrow batches of a range: `async with reader: async for batch in reader: …`.

    `async with`, `await reader` and the first step of `async for` open the range. Reading ends after the last batch, in
    `close()`, or at the end of an `async with` block. A cancelled step has read nothing: the next one continues at
    `next_offset`.

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
        self._opened = False

    # --- opening ---------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if self._opened:
            return
        if self.ended:
            raise StateError(f"the reader of {self.partition} was closed")
        await self._client.begin_range(self)
        await self._client.run(self._locate())
        self._opened = True

    # --- reading ---------------------------------------------------------------------------------------------------

    async def __anext__(self) -> RecordBatch:
        self._enter()
        try:
            try:
                await self._open()
            except Exception:  # unless it is cancelled: then the next step opens the range
                await self.close()
                raise
            while self.next_offset < self._readable_end:
                self._check_not_ended()
                batch, reached, gaps = await self._client.run(self._read())
                # There is no await between the end of the operation and the return: a cancelled step changes nothing.
                self._gaps, self.next_offset = gaps, reached
                if batch is not None:
                    return batch
            self._finish()
            await self.close()
            raise StopAsyncIteration
        finally:
            self.reading = False

    # --- ending ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the range. If `read_range` created the client, also closes its connections. Further calls do nothing."""
        self.ended = True
        if self.owns_client:
            await self._client.close()
        else:
            await self._client.close_range(self)

    def __repr__(self) -> str:
        where = f"at {self.next_offset} of {self.end_offset}" if self._opened else "not open yet"
        return f"<RangeReader {self.partition} {where}>"
