"""RangeReader for asyncio: reads the records of one partition between two points.

`RangeReaderBase` decides what a range contains. Here the calling task is suspended while a step of the reader waits.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from kconsumer.aio.reader_base import AsyncReader
from kconsumer.arrow import RecordBatch
from kconsumer.engine.waiting import Operation
from kconsumer.errors import StateError
from kconsumer.ranges.limits import Limits
from kconsumer.ranges.offset_bounds import Point
from kconsumer.ranges.reader_base import RangeReaderBase, RangeSource
from kconsumer.types import TopicPartition

T = TypeVar("T")


class ReaderClient(RangeSource, Protocol):
    """The part of a RangeClient that a RangeReader uses."""

    async def begin_range(self, reader: RangeReader) -> None:
        """End the open range, and let this reader open its own."""

    async def close_range(self, reader: RangeReader) -> None:
        """End the open range if it belongs to this reader."""

    async def run(self, operation: Operation[T]) -> T:
        """Drive an operation of the consumer in the calling task. Returns its result."""

    async def close(self) -> None:
        """Close the connections."""


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
        self,
        client: ReaderClient,
        partition: TopicPartition,
        start: Point,
        end: Point,
        limits: Limits,
        *,
        owns_client: bool = False,
    ) -> None:
        super().__init__(client, partition, start, end, limits)
        self.owns_client = owns_client
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
