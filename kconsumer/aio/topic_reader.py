"""read_topic, scan_topic and TopicReader for asyncio: read all partitions of a topic with one consumer.

The network thread of the consumer fetches all partitions ahead. There are no other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kconsumer.aio.range_client import RangeClient
from kconsumer.aio.reader_base import AsyncReader
from kconsumer.arrow import RecordBatch, Table
from kconsumer.errors import StateError
from kconsumer.ranges import offset_bounds
from kconsumer.ranges.limits import Limits, Schema
from kconsumer.ranges.offset_bounds import EARLIEST, LATEST, Point
from kconsumer.ranges.progress import ProgressLine
from kconsumer.ranges.topic_steps import Progress, RangesInTurn, find_ranges, progress_callback, topic_names


async def read_topic(
    topic: str | Iterable[str],
    *,
    bootstrap_servers: str | Sequence[str],
    start: Point = EARLIEST,
    end: Point = LATEST,
    columns: Iterable[str] | None = None,
    progress: Progress = None,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 4 << 20,
    max_rows: int = 20_000,
    **options: Any,
) -> Table:
    """Returns all records of a topic, or of several topics, between two points, as a table in memory.

    `start` and `end` are each `earliest`, `latest` (the current end), an offset, or a `datetime` with a time zone (the
    first record of that time or later). An offset outside a partition is replaced by the partition's first or end
    offset. The records of one partition are in order. `options` are those of `Consumer`.

    While a batch is decoded, other tasks do not run: `max_rows` and `max_bytes` limit how long that is.

    By default, a progress line is written to stderr if stderr is a terminal. With `progress` True, it is always
    written, and with False never. If `progress` is a function, it is called with the number of offsets that were read,
    and the number of all offsets.

    Raises OffsetOutOfRangeError if records are deleted while they are being read, TimeoutError if there is no progress
    for `default_api_timeout_ms`, and ValueError if a topic does not exist.
    """
    async with scan_topic(
        topic,
        bootstrap_servers=bootstrap_servers,
        start=start,
        end=end,
        columns=columns,
        progress=progress,
        isolation_level=isolation_level,
        max_bytes=max_bytes,
        max_rows=max_rows,
        **options,
    ) as reader:
        return Table(reader.columns, [batch async for batch in reader])


def scan_topic(
    topic: str | Iterable[str],
    *,
    bootstrap_servers: str | Sequence[str],
    start: Point = EARLIEST,
    end: Point = LATEST,
    columns: Iterable[str] | None = None,
    schema: Schema = "kconsumer",
    progress: Progress = False,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 4 << 20,
    max_rows: int = 20_000,
    **options: Any,
) -> TopicReader:
    """Returns an async iterator over the records that `read_topic` would return, as Arrow batches in bounded memory.

    The arguments are those of `read_topic`, and `schema` is that of `read_range`. Use the iterator in `async with`,
    which looks up the offsets, or await it to look them up. To end reading early, await `close()` or leave the
    `async with` block.
    """
    topics, limits = topic_names(topic), Limits(columns, schema, max_rows, max_bytes)
    for point in (start, end):
        offset_bounds.check(point)
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    return TopicReader(client, topics, (start, end), limits, progress_callback(progress, topics))


class TopicReader(AsyncReader):
    """Iterates over the Arrow batches of a topic: `async with reader: async for batch in reader: …`.

    `async with`, `await reader` and the first step of `async for` look up the offsets to read. Reading ends after the
    last batch, in `close()`, or at the end of an `async with` block. A cancelled step has read nothing: the next one
    continues.
    """

    def __init__(
        self,
        client: RangeClient,
        topics: tuple[str, ...],
        bounds: tuple[Point, Point],
        limits: Limits,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self.total = 0  # the number of offsets to read; known when the offsets were looked up
        self.done = 0  # the number of offsets read until now
        self._client = client
        self._topics = topics
        self._bounds = bounds
        self._limits = limits
        self._progress = progress
        self._ranges: RangesInTurn | None = None
        self._incomplete = ""  # why reading ended early; empty if it did not

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as in `kconsumer.arrow`."""
        return self._limits.names

    # --- opening ---------------------------------------------------------------------------------------------------

    async def _open(self) -> RangesInTurn:
        if self._ranges is None:
            found = await self._client.run(find_ranges(self._client, self._topics, *self._bounds))
            self._ranges = RangesInTurn(self._client, found, self._limits)
            self.total = sum(after - at for at, after in found.values())
        return self._ranges

    def _enter(self) -> None:
        super()._enter()
        if self._incomplete:
            self.reading = False
            raise StateError(
                f"{self._incomplete} at {self.done} of {self.total} offsets: the rest was not read; call"
                " scan_topic() again to read it"
            )

    # --- reading ---------------------------------------------------------------------------------------------------

    async def __anext__(self) -> RecordBatch:
        self._enter()
        try:
            try:
                ranges = await self._open()
                while ranges.left:
                    batch, offsets = await self._client.run(ranges.read())
                    self.done += offsets
                    if self._progress is not None:
                        self._progress(self.done, self.total)
                    if batch:
                        return batch
            except asyncio.CancelledError:  # raised only while the step waited, so it has read nothing
                raise
            except BaseException as error:
                self._incomplete = "reading was ended by an exception"
                if isinstance(error, Exception):
                    await self.close()
                raise
            await self.close()
            raise StopAsyncIteration
        finally:
            self.reading = False

    # --- ending ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End reading, and close the connections. May be called repeatedly."""
        if not self._incomplete and (self._ranges is None or self._ranges.left):
            self._incomplete = "the reader was closed"
        await self._client.close()
        if isinstance(self._progress, ProgressLine):
            self._progress.end()

    def __repr__(self) -> str:
        return f"<TopicReader of {', '.join(self._topics)} at {self.done} of {self.total} offsets>"
