"""RangeClient and read_range for asyncio: read ranges over reused connections, look up offsets and topics, commit.

Decides when connections are made (at the first use, and again after `close`), and which reader has the open range.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from kconsumer._client.client_base import Timeout
from kconsumer._client.consumer_base import Offsets, P, Partition
from kconsumer._common.closing import AsyncClosing
from kconsumer.aio.consumer import AsyncConsumer
from kconsumer.aio.range_reader import RangeReader
from kconsumer.engine.waiting import Operation
from kconsumer.errors import ConcurrentAccessError, KafkaError, StateError
from kconsumer.ranges.client_base import (
    CLOSE_S,
    RangeClientBase,
    TopicListing,
    abandon,
    commit_for,
    listed_topics,
    options_of,
    topic_names,
)
from kconsumer.ranges.limits import Limits, OnDataLoss, Schema
from kconsumer.ranges.offset_bounds import Point
from kconsumer.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")


class RangeClient(RangeClientBase, AsyncClosing):
    """Reads ranges one after the other over the same connections and fetch sessions.

    The client connects at its first use. It closes its connections in `close()`, and at the end of an `async with`
    block; the next use connects again. It belongs to the event loop that uses it first. Several tasks may look up
    offsets at the same time, but only one range is open at a time.

    `options` are those of `Consumer`; dotted Java keys are accepted. Raises ConfigError for options that do not apply
    to ranges, such as `group_id`.
    """

    _warn = staticmethod(warnings.warn)  # without the GIL, a finalizer at the end of the process finds no modules

    def __init__(
        self, *, bootstrap_servers: str | Sequence[str], isolation_level: str = "read_uncommitted", **options: Any
    ) -> None:
        self._reading: AsyncConsumer | None = None
        self._committing: dict[str, AsyncConsumer] = {}
        self._reader: weakref.ref[RangeReader] | None = None
        self._set_up(bootstrap_servers, isolation_level, options)

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns a client with the options of a mapping.

        Keys are dotted Java names or snake_case names. Values have the type of the option, or are text that is
        converted. Raises ConfigError if `bootstrap_servers` is missing, and for options that do not apply to ranges.
        """
        return cls(**options_of(mapping))

    def with_options(self, **options: Any) -> RangeClient:
        """Returns a new client with `options` changed and all other options kept."""
        return RangeClient(**{**self.options, **options})

    # --- ranges ----------------------------------------------------------------------------------------------------

    def read_range(
        self,
        partition: TopicPartition | tuple[str, int],
        start: Point,
        end: Point,
        *,
        columns: Iterable[str] | None = None,
        schema: Schema = "kconsumer",
        max_bytes: int = 4 << 20,
        max_rows: int = 20_000,
        on_data_loss: OnDataLoss = "error",
    ) -> RangeReader:
        """Returns a reader for a range, like the function `kconsumer.aio.read_range`.

        Ends the range that is still open on this client, if there is one.

        This happens when the reader is opened.
        """
        limits = Limits(columns, schema, max_rows, max_bytes, on_data_loss)
        return RangeReader(self, TopicPartition(*partition), start, end, limits)

    async def begin_range(self, reader: RangeReader) -> None:
        """End the open range, and let this reader open its own. Raises StateError while a task reads the open one."""
        before = self._reader() if self._reader is not None else None
        if before is not None and before is not reader:
            if before.reading:
                raise StateError(
                    f"a task is reading {before!r} over this client: read one range after the other, or use one client"
                    " for each task"
                )
            before.ended = True
        self._reader = weakref.ref(reader)
        if self._reading is not None:
            await self.run(self._reading._unsubscribe())

    async def close_range(self, reader: RangeReader) -> None:
        """End the open range if it belongs to this reader."""
        if self._reader is not None and self._reader() is reader:
            if self._reading is not None:
                await self.run(self._reading._unsubscribe())
            self._reader = None

    # --- offsets and topics ----------------------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self.run(self.consumer._beginning_offsets(partitions, timeout))

    async def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition. With read_committed, returns the last stable offset."""
        return await self.run(self.consumer._end_offsets(partitions, timeout))

    async def offsets_for_times(
        self, timestamps: Mapping[P, int], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset and timestamp of the first record at or after a time (ms since 1970).

        The value is None if there is no such record.
        """
        return await self.run(self.consumer._offsets_for_times(timestamps, timeout))

    async def topics(self, names: Iterable[str] | None = None, timeout: Timeout = None) -> dict[str, TopicListing]:
        """Request metadata of the topics with these names (None: all topics). Returns the topics that exist."""
        return await self.run(listed_topics(self.consumer, topic_names(names), timeout))

    # --- committed offsets of a group without members --------------------------------------------------------------

    async def commit(self, group_id: str, offsets: Offsets[P], *, timeout: Timeout = None) -> None:
        """Commit offsets for a group without joining it. Raises CommitFailedError if the group has members."""
        committer = self._committer(group_id)
        await committer._run(commit_for(committer, group_id, offsets, timeout))

    async def committed(
        self, group_id: str, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of a group for each partition, or None if the partition has none."""
        return await self._committer(group_id).committed(partitions, timeout)

    def _committer(self, group_id: str) -> AsyncConsumer:
        consumer = self._committing.get(group_id)
        if consumer is None:
            consumer = AsyncConsumer(**self.committer_options(group_id))
            self._committing[group_id] = consumer
        return consumer

    # --- access and ending -----------------------------------------------------------------------------------------

    @property
    def consumer(self) -> AsyncConsumer:
        """The consumer that reads ranges and looks up offsets. It is created at the first use."""
        if self._reading is None:
            self._reading = AsyncConsumer(**self.options, auto_offset_reset="none")
        return self._reading

    async def run(self, operation: Operation[T]) -> T:
        """Drive an operation of the consumer in the calling task. Returns its result.

        If an exception has interrupted a change of the consumer's state, such as a MemoryError, the consumer is
        discarded, and the next use connects again.
        """
        consumer = self.consumer
        try:
            return await consumer._run_poll(operation)
        finally:
            if consumer._guard.step.unfinished and self._reading is consumer:
                self._reading = None
                abandon(consumer)

    @property
    def connected(self) -> bool:
        """True if the client has consumers, and so may have open connections."""
        return self._reading is not None or bool(self._committing)

    async def close(self) -> None:
        """Close the connections and end the open range. The next use connects again.

        If the caller is cancelled, a further call continues.
        """
        reader = self._reader() if self._reader is not None else None
        self._reader = None
        if reader is not None:
            reader.ended = True
        while self._committing:
            group_id, committer = next(iter(self._committing.items()))
            await _close(committer)
            self._committing.pop(group_id, None)
        if self._reading is not None:
            await _close(self._reading)
            self._reading = None

    def __del__(self) -> None:
        consumers = [] if self._reading is None else [self._reading]
        unclosed = [found for found in (*self._committing.values(), *consumers) if not found._guard.closed]
        if not unclosed:
            return
        try:
            message = f"unclosed {self!r}; use `async with` or await close()"
            self._warn(message, ResourceWarning, stacklevel=2, source=self)
        finally:  # a filter may turn the warning into an exception
            for consumer in unclosed:
                abandon(consumer)

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<RangeClient of {self.options['bootstrap_servers']} {state}>"


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
    return RangeReader(client, TopicPartition(*partition), start, end, limits, owns_client=True)


async def _close(consumer: AsyncConsumer) -> None:
    try:
        await consumer.close(CLOSE_S)
    except ConcurrentAccessError:  # another event loop
        raise
    except KafkaError as error:  # such as a broker that cannot be reached; the consumer is not used again
        log.info("closing %r: %s", consumer, error)
