"""RangeReader: reads the records of one partition between two points, and reports offsets without records.

`RangeReaderBase` decides what a range contains. Here the calling thread blocks while a step of the reader waits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, Self

from kconsumer._common.closing import Closing
from kconsumer.arrow import RecordBatch
from kconsumer.consumer import Consumer
from kconsumer.ranges.gaps import Gap
from kconsumer.ranges.limits import Limits
from kconsumer.ranges.offset_bounds import Point
from kconsumer.ranges.reader_base import RangeReaderBase, RangeSource
from kconsumer.types import TopicPartition

__all__ = ["Gap", "RangeReader"]


class ReaderClient(RangeSource, Protocol):
    """The part of a RangeClient that a RangeReader uses."""

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads ranges and looks up offsets."""

    def in_use(self) -> AbstractContextManager[None]:
        """Reserve the client for the calling thread during a `with` block."""

    def close_range(self, reader: RangeReader) -> None:
        """End the open range if it belongs to this reader."""

    def start_idle_timer(self) -> None:
        """Start the timer that closes the connections, if the client is idle now."""

    def close(self) -> None:
        """Close the connections."""


class RangeReader(RangeReaderBase, Closing):
    """Iterates over the Arrow batches of a range.

    Reading ends after the last batch, in `close()`, or at the end of a `with` block.

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

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None and not self.ended and not self.owns_client:
            self.ended = True
            client.start_idle_timer()  # the range will never be closed, so the idle timer must not wait for this

    def __repr__(self) -> str:
        return f"<RangeReader {self.partition} at {self.next_offset} of {self.end_offset}>"
