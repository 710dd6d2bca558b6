"""AsyncConsumer: the methods that wait are coroutines. `ConsumerBase` has all other methods.

Decides which calls may run at the same time: any number, but only one `poll`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from kconsumer._client.client_base import Timeout
from kconsumer._client.consumer_base import ConsumerBase, Offsets, P, Partition, Time
from kconsumer._common.foreign_methods import checked
from kconsumer._core.decode import ConsumerRecord
from kconsumer._core.lock import Timer
from kconsumer.aio.awaitable_client import AwaitableClient
from kconsumer.aio.engine import AsyncEngine
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.environment import Environment
from kconsumer.engine.waiting import Operation
from kconsumer.errors import ConfigError
from kconsumer.records import ConsumerRecords
from kconsumer.types import K, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition, V

if TYPE_CHECKING:
    from kconsumer._client.decoded_columns import Decoders
    from kconsumer.arrow import RecordBatch
    from kconsumer.assignors import Assignor
    from kconsumer.config.signature import AsyncDeserializer, ConsumerKeywords, Deserializer, Key, Value

T = TypeVar("T")


class AsyncConsumer(ConsumerBase[K, V], AwaitableClient):
    """The `Consumer` for asyncio: the same options, results, errors and guarantees. Methods that wait are coroutines.

    It subscribes to the `topics`, if there are any. Heartbeats are sent by a thread, also while the event loop is
    blocked. Callbacks and deserializers may be coroutine functions. Tasks of one event loop may call methods at the
    same time, but only one of them may `poll`. If a call is cancelled, no record is lost or skipped. Timeouts are float
    seconds or `timedelta`; None means `default_api_timeout_ms`.

    Raises ConfigError for an option that is unknown, out of range, or contradicts another option.
    """

    _engine: AsyncEngine
    _how_to_close = "use `async with AsyncConsumer(…)` or await close()"

    if TYPE_CHECKING:  # the last one is for `**options` of a dict, whose keys and types checkers do not know

        @overload
        def __init__(
            self: AsyncConsumer[Key, Value],
            *topics: str,
            key_deserializer: AsyncDeserializer[Key] | None = ...,
            value_deserializer: AsyncDeserializer[Value] | None = ...,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: AsyncDeserializer[Value],
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Key, Value],
            *topics: str,
            key_deserializer: AsyncDeserializer[Key],
            value_deserializer: Deserializer[Value],
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Any, Value],
            *topics: str,
            key_deserializer: str,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Key, Any],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: str,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Any, Any],
            *topics: str,
            key_deserializer: Deserializer[Any] | str | None,
            value_deserializer: Deserializer[Any] | str | None,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncConsumer[Any, Any], *topics: str, bootstrap_servers: Any, _in_a_dict: Any, **options: Any
        ) -> None: ...

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str | None = None,
        **options: Any,
    ) -> None:
        self._set_up(ConsumerConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, **options), topics)

    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> AsyncEngine:
        if config.engine == "classic":
            raise ConfigError('AsyncConsumer has a network thread: engine="classic" is an option of Consumer')
        return AsyncEngine(config, Environment(), loaded)

    # --- subscription ----------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment. Runs on_revoke or on_lost. Does not auto-commit."""
        await self._finish(self._engine.after_callbacks(self._unsubscribe()))

    # --- reading ---------------------------------------------------------------------------------------------------

    async def poll(
        self,
        timeout: Timeout = 1.0,
        max_records: int | None = None,
        *,
        timeout_ms: None = None,
        num_messages: None = None,
    ) -> ConsumerRecords[K, V]:
        """Returns records of the assigned partitions, at most `max_records` (default `max_poll_records`).

        Waits up to `timeout` for the first records. The result is empty (and falsy) after the timeout. It may be empty
        earlier if a position moved over control records. Also joins the group, runs callbacks and auto-commits (Java
        `poll`).

        Raises StateError without a subscription or assignment, WakeupError, NoOffsetForPartitionError,
        OffsetOutOfRangeError, CorruptRecordError, RecordDeserializationError, and group or authorization errors.
        `timeout_ms` and `num_messages` of other clients raise TypeError.
        """
        records = await self._poll(timeout, self._max_records(max_records, timeout_ms, num_messages), None)
        engine = self._engine
        engine.delivery.open = False  # as in Consumer.poll
        engine.lock.version += 1
        return records

    async def _poll(self, timeout: Timeout, max_records: int, max_bytes: int | None) -> ConsumerRecords[K, V]:
        engine, delivery, lock = self._engine, self._engine.delivery, self._engine.lock
        self._check_poll()
        timeout_ms = self._timeout_ms(timeout)
        self._polling = True
        try:
            await self._wait_for_turn()
            if self._iteration.active:
                self._rewind()
            engine.raise_deserialization_error()
            if engine.driver.has_urgent_io:
                await engine.driver.yield_to_network_async()
            records = await engine.poll_async(timeout_ms, max_records, max_bytes)
            if not records:
                await self._check_open()
            while records and lock.version != delivery.version:
                records = engine.recheck(records)
            return records
        finally:
            self._polling = False

    async def poll_arrow(
        self,
        timeout: Timeout = 1.0,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        columns: Iterable[str] | None = None,
        decode: Decoders | None = None,
    ) -> RecordBatch:
        """Returns the records of a `poll` as Arrow columns, without creating record objects.

        The result has at most `max_rows` rows (default `max_poll_records` if that was given, otherwise 20 000). It ends
        with the row with which the serialized size of the records reaches `max_bytes` (default 4 MiB). `columns` are
        the names of the columns to build, by default all (see `kconsumer.arrow`). Deserializers do not run: keys and
        values are bytes, unless `decode` is a decoder of `kconsumer.registry` for the values, or a dict of decoders for
        `key` and `value`. Commit the result with `commit(batch.next_offsets())`. Raises the errors of `poll`, and
        ValueError for a column that does not exist. If a decoder fails, returns the records before this one; raises
        RecordDeserializationError if it is the first record of its partition.
        """
        rows, size, chosen = self._arrow_limits(max_rows, max_bytes, columns)
        decoders = self._column_decoders(decode, chosen)
        engine = self._engine
        records = await self._poll(timeout, rows, size)
        try:
            batch = self._columns(records, chosen, decoders)
        except BaseException:  # Ctrl-C, or no memory: records that do not reach the caller were not consumed
            engine.rollback_open()
            raise
        engine.delivery.open = False  # as in Consumer.poll
        engine.lock.version += 1
        return batch

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yield records one by one, without end. With `consumer_timeout_ms`, ends if no record arrives for this time.

        A loop that stops early has consumed only the records that it reached. The rest of the batch is neither
        committed nor skipped.
        """
        while records := await self._next_records(1.0):
            self._iteration.start(records)
            for record in self._iteration:
                yield record

    async def batches(self, timeout: Timeout = 1.0) -> AsyncIterator[ConsumerRecords[K, V]]:
        """Yield the results of `poll(timeout)` that are not empty, without end.

        With `consumer_timeout_ms`, ends if no record arrives for this time.
        """
        while records := await self._next_records(timeout):
            yield records

    async def _next_records(self, timeout: Timeout) -> ConsumerRecords[K, V]:
        """Poll until there are records. The result is empty if none arrived for `consumer_timeout_ms`."""
        limit_ms = self._config.consumer_timeout_ms
        timer = Timer(self._clock, float("inf") if limit_ms is None else float(limit_ms))
        while True:
            records = await self.poll(min(self._timeout_ms(timeout), timer.remaining_ms()) / 1000)
            if records or timer.expired:
                return records

    # --- telemetry -------------------------------------------------------------------------------------------------

    async def client_instance_id(self, timeout: Timeout = None) -> str:
        """Returns the id that a broker has assigned to this client for telemetry (Java `clientInstanceId`, KIP-714).

        Waits until a broker has done so. The text is in the form of Java's `Uuid`, as in logs of brokers. Raises
        StateError if `enable_metrics_push` is False or telemetry has ended, UnsupportedVersionError if the brokers have
        no plugin for client telemetry, and TimeoutError.
        """
        return await self._run(self._client_instance_id(timeout))

    # --- offsets ---------------------------------------------------------------------------------------------------

    @checked
    async def commit(
        self, offsets: Offsets[P] | ConsumerRecords | ConsumerRecord | None = None, *, timeout: Timeout = None
    ) -> None:
        """Commit offsets and wait for the response (Java `commitSync`). Retries retriable errors until the timeout.

        If `offsets` is None, all positions are committed, or what is stored with `enable_auto_offset_store=False`.
        `offsets` can be a dict of partition -> next offset to read, or the result of a `poll`, whose `next_offsets()`
        are committed. For a record, the offset after it is committed.

        Raises TypeError or ValueError for invalid offsets, CommitFailedError if the consumer is no longer a member,
        RebalanceInProgressError while the group rebalances, TimeoutError, and StateError without a group.
        """
        await self._run(self._commit(offsets, timeout))

    @checked
    async def committed(
        self, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each partition, or None if it has none (Java `committed`).

        Raises TimeoutError if the coordinator does not respond in time, and StateError without a group.
        """
        return await self._run(self._committed(partitions, timeout))

    @checked
    async def position(self, tp: Partition, timeout: Timeout = None) -> int:
        """Returns the offset of the next record to read (Java `position`). Looks it up if it is not known yet.

        Raises StateError if the partition is not assigned, NoOffsetForPartitionError if it has no committed offset and
        `auto_offset_reset` is "none", and TimeoutError if the offset is not found within the timeout, or if the
        partition does not exist.
        """
        return await self._run(self._position(tp, timeout))

    @checked
    async def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. The partitions need not be assigned (Java `beginningOffsets`).

        Raises TimeoutError if a partition does not exist, or if no leader responds in time. The last error is its
        cause.
        """
        return await self._run(self._beginning_offsets(partitions, timeout))

    @checked
    async def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition. With read_committed, returns the last stable offset.

        Raises TimeoutError if a partition does not exist, or if no leader responds in time (Java `endOffsets`). The
        last error is its cause.
        """
        return await self._run(self._end_offsets(partitions, timeout))

    @checked
    async def offsets_for_times(
        self, timestamps: Mapping[P, Time], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset of the first record at or after a time (Java `offsetsForTimes`).

        A time is an int (ms since 1970) or a `datetime` with a time zone. The value is None if there is no such record.
        Raises ValueError for a negative time and for a `datetime` without a time zone.
        """
        return await self._run(self._offsets_for_times(timestamps, timeout))

    @checked
    async def seek_to_time(self, time: Time, *partitions: Partition, timeout: Timeout = None) -> None:
        """Set the position to the first record at or after a time, or to the end offset if there is none.

        The time is an int (ms since 1970) or a `datetime` with a time zone. Without partitions, applies to all assigned
        ones. Raises StateError for a partition that is not assigned, ValueError as `offsets_for_times`, and
        TimeoutError; then no position has changed.
        """
        await self._run(self._seek_to_time(time, partitions, timeout))

    def _store(self, records: Iterable[ConsumerRecord], offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        with self._engine.lock:  # any thread may call store_offsets(), and not only that of the event loop
            self._guard.check_usable()
            self._store_locked(records, offsets)

    # --- topics ----------------------------------------------------------------------------------------------------

    @checked
    async def partitions_for(self, topic: str, timeout: Timeout = None) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic. The result is empty if the topic does not exist (Java `partitionsFor`).

        Raises TimeoutError if no broker responds in time.
        """
        return await self._run(self._partitions_for(topic, timeout))

    @checked
    async def list_topics(self, timeout: Timeout = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Returns all topics that the principal may describe, with their partitions (Java `listTopics`).

        Raises TimeoutError if no broker responds in time.
        """
        return await self._run(self._list_topics(timeout))

    # --- ending ----------------------------------------------------------------------------------------------------

    @checked
    async def close(self, timeout: Timeout = 30.0, *, leave_group: bool | None = None) -> None:
        """Commit (with auto-commit), run on_revoke, leave the group, and close the connections.

        All steps run, and end within `timeout`. The first error is raised at the end. If `leave_group` is None, a
        dynamic member leaves, and a static member stays in the group until its session times out. Further calls do
        nothing. With a timeout of 0, the commit and LeaveGroup are sent, but a broker may not read them any more.
        """
        await self._close(timeout, leave_group, auto_commit=True)

    async def _close_after_error(self) -> None:
        await self._close(30.0, None, auto_commit=not self._config.enable_auto_offset_store)  # what is stored is done

    async def _close(self, timeout: Timeout, leave_group: bool | None, *, auto_commit: bool) -> None:
        self._check_leave_group(leave_group)
        await self._close_once(timeout, lambda timer: self._engine.closing(timer, leave_group, auto_commit=auto_commit))

    async def _run_poll(self, operation: Operation[T]) -> T:
        """Drive an operation that polls. Returns its result. Readers of ranges use this."""
        self._guard.check()
        if self._engine.turn.over():
            await self._engine.turn.pass_on()
        driver = self._engine.driver
        if driver.has_urgent_io:
            await driver.yield_to_network_async()
        return await self._engine.run_async(operation)
