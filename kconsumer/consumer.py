"""Consumer: the methods that wait block the calling thread. `ConsumerBase` has all other methods.

Decides when a thread may call a method: one thread at a time, not after close(), not in a forked child.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from kconsumer._client.blocking_client import BlockingClient
from kconsumer._client.client_base import Timeout
from kconsumer._client.consumer_base import ConsumerBase, Offsets, P, Partition, Time
from kconsumer._common.foreign_methods import checked
from kconsumer._core.decode import ConsumerRecord
from kconsumer._core.lock import Timer
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.access_guard import guarded
from kconsumer.listener import RebalanceListener, coroutine_function
from kconsumer.records import ConsumerRecords
from kconsumer.types import K, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition, V

if TYPE_CHECKING:
    from kconsumer._client.decoded_columns import Decoders
    from kconsumer.arrow import RecordBatch
    from kconsumer.assignors import Assignor
    from kconsumer.config.signature import ConsumerKeywords, Deserializer, Key, Value
    from kconsumer.engine.base import Engine
    from kconsumer.engine.waiting import Operation

T = TypeVar("T")


class Consumer(ConsumerBase[K, V], BlockingClient):
    """A Kafka consumer with the semantics of the Java consumer of Kafka 4.4.

    It subscribes to the `topics`, if there are any. Options are the Java keys in snake_case;
    `help(kconsumer.ConsumerConfig)` lists them. Before the first use, the consumer opens no connection and starts no
    thread. One thread at a time may poll or call another method that waits. Methods that do not wait, such as `pause`,
    `commit_async` and `metrics`, may be called from any thread meanwhile. Signal handlers may call any method. Timeouts
    are float seconds or `timedelta`; None means `default_api_timeout_ms`.

    Raises ConfigError for an option that is unknown, out of range, or contradicts another option.
    """

    _how_to_close = "use `with Consumer(…)` or close()"

    if TYPE_CHECKING:  # the last one is for `**options` of a dict, whose keys and types checkers do not know

        @overload
        def __init__(
            self: Consumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[Any, Value],
            *topics: str,
            key_deserializer: str,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[Key, Any],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: str,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[Any, Any],
            *topics: str,
            key_deserializer: Deserializer[Any] | str | None,
            value_deserializer: Deserializer[Any] | str | None,
            **options: Unpack[ConsumerKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Consumer[Any, Any], *topics: str, bootstrap_servers: Any, _in_a_dict: Any, **options: Any
        ) -> None: ...

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str | None = None,
        **options: Any,
    ) -> None:
        self._set_up(ConsumerConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, **options), topics)

    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> Engine:
        """Returns the engine of this consumer. `MockConsumer` has another one."""
        # Half of all modules: imported with the first consumer.
        from kconsumer.engine.choice import create_engine
        from kconsumer.engine.environment import Environment

        return create_engine(config, Environment(), loaded)

    def _check_listener(self, listener: RebalanceListener) -> None:
        name = coroutine_function(listener)
        if name is not None:
            raise TypeError(f"{name} is a coroutine function, which only kconsumer.aio.AsyncConsumer can call")

    def _drop_subscription(self) -> None:
        self.unsubscribe()

    # --- subscription ------------------------------------------------------------------------------------------------

    @guarded
    def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment. Runs on_revoke or on_lost. Does not auto-commit."""
        self._engine.run(self._unsubscribe())

    # --- reading -----------------------------------------------------------------------------------------------------

    def poll(
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
        plain = max_records is None and timeout_ms is None and num_messages is None
        limit = self._config.max_poll_records if plain else self._max_records(max_records, timeout_ms, num_messages)
        guard = self._guard
        outer = guard.enter()  # not @guarded: Ctrl-C between its call and its return would lose records (Python 3.11)
        try:
            engine = self._engine
            records = self._poll(timeout, limit, None)
            delivery, lock = engine.delivery, engine.lock
            while records and lock.version != delivery.version:  # user code has used the consumer since
                records = engine.recheck(records)
            # The records are consumed from here on: stores run no signal handler, and neither does the return.
            delivery.open = False
            lock.version += 1
            return records
        except BaseException:  # of a debugger, for example: records that do not reach the caller were not consumed
            self._engine.rollback_open()
            raise
        finally:
            guard.holder = outer

    def _poll(self, timeout: Timeout, max_records: int, max_bytes: int | None) -> ConsumerRecords[K, V]:
        """Returns the result of a poll, whose records do not count as consumed yet. The caller ends as `poll` does."""
        # The common case is computed without a call.
        timeout_ms = timeout * 1000.0 if timeout.__class__ is float and timeout >= 0 else self._timeout_ms(timeout)
        if self._iteration.started and self._iteration.active:
            self._rewind()
        return self._engine.poll(timeout_ms, max_records, max_bytes)

    def poll_arrow(
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
        guard = self._guard
        outer = guard.enter()  # see `poll`
        try:
            engine = self._engine
            delivery, lock = engine.delivery, engine.lock
            records = self._poll(timeout, rows, size)
            batch = self._columns(records, chosen, decoders)
            while records and lock.version != delivery.version:  # a signal handler has used the consumer meanwhile
                records = engine.recheck(records)
                batch = self._columns(records, chosen, decoders)
            delivery.open = False  # as in `poll`
            lock.version += 1
            return batch
        except BaseException:  # Ctrl-C, or no memory: records that do not reach the caller were not consumed
            self._engine.rollback_open()
            raise
        finally:
            guard.holder = outer

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yield records one by one, without end. With `consumer_timeout_ms`, ends if no record arrives for this time.

        A loop that stops early has consumed only the records that it reached. The rest of the batch is neither
        committed nor skipped.
        """
        while self._next_batch():
            yield from self._iteration

    def _next_batch(self) -> bool:
        """Poll until there are records. Returns False if none arrived for `consumer_timeout_ms`."""
        limit_ms = self._config.consumer_timeout_ms
        timer = Timer(self._clock, float("inf") if limit_ms is None else float(limit_ms))
        # A signal handler that commits must not run between poll() and start(): the loop has reached none of the
        # records.
        holds = SIGNALS.hold(self._guard.end_wait)
        try:
            while True:
                records = self.poll(min(1.0, timer.remaining_ms() / 1000))
                try:
                    if records:
                        self._iteration.start(records)
                        return True
                except BaseException:  # the loop has not reached any of them
                    self._iteration.stop()
                    if records:
                        self._engine.rollback_last_poll()
                    raise
                if timer.expired:
                    return False
        finally:
            if holds:
                SIGNALS.release()

    @guarded
    def _run(self, operation: Operation[T]) -> T:
        """Drive an operation on the calling thread. Returns its result. Readers of ranges use this."""
        return self._engine.run(operation)

    # --- telemetry ---------------------------------------------------------------------------------------------------

    @guarded
    def client_instance_id(self, timeout: Timeout = None) -> str:
        """Returns the id that a broker has assigned to this client for telemetry (Java `clientInstanceId`, KIP-714).

        Waits until a broker has done so. The text is in the form of Java's `Uuid`, as in logs of brokers. Raises
        StateError if `enable_metrics_push` is False or telemetry has ended, UnsupportedVersionError if the brokers have
        no plugin for client telemetry, and TimeoutError.
        """
        return self._engine.run(self._client_instance_id(timeout))

    # --- offsets -----------------------------------------------------------------------------------------------------

    @guarded
    def commit(
        self, offsets: Offsets[P] | ConsumerRecords | ConsumerRecord | None = None, *, timeout: Timeout = None
    ) -> None:
        """Commit offsets and wait for the response (Java `commitSync`). Retries retriable errors until the timeout.

        If `offsets` is None, all positions are committed, or what is stored with `enable_auto_offset_store=False`.
        `offsets` can be a dict of partition -> next offset to read, or the result of a `poll`, whose `next_offsets()`
        are committed. For a record, the offset after it is committed.

        Raises TypeError or ValueError for invalid offsets, CommitFailedError if the consumer is no longer a member,
        RebalanceInProgressError while the group rebalances, TimeoutError, and StateError without a group.
        """
        self._engine.run(self._commit(offsets, timeout))

    @guarded
    def committed(
        self, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each partition, or None if it has none (Java `committed`).

        Raises TimeoutError if the coordinator does not respond in time, and StateError without a group.
        """
        return self._engine.run(self._committed(partitions, timeout))

    @guarded
    def position(self, tp: Partition, timeout: Timeout = None) -> int:
        """Returns the offset of the next record to read (Java `position`). Looks it up if it is not known yet.

        Raises StateError if the partition is not assigned, NoOffsetForPartitionError if it has no committed offset and
        `auto_offset_reset` is "none", and TimeoutError if the offset is not found within the timeout, or if the
        partition does not exist.
        """
        return self._engine.run(self._position(tp, timeout))

    @guarded
    def beginning_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. The partitions need not be assigned (Java `beginningOffsets`).

        Raises TimeoutError if a partition does not exist, or if no leader responds in time. The last error is its
        cause.
        """
        return self._engine.run(self._beginning_offsets(partitions, timeout))

    @guarded
    def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition. With read_committed, returns the last stable offset.

        Raises TimeoutError if a partition does not exist, or if no leader responds in time (Java `endOffsets`). The
        last error is its cause.
        """
        return self._engine.run(self._end_offsets(partitions, timeout))

    @guarded
    def offsets_for_times(
        self, timestamps: Mapping[P, Time], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset of the first record at or after a time (Java `offsetsForTimes`).

        A time is an int (ms since 1970) or a `datetime` with a time zone. The value is None if there is no such record.
        Raises ValueError for a negative time and for a `datetime` without a time zone.
        """
        return self._engine.run(self._offsets_for_times(timestamps, timeout))

    @guarded
    def seek_to_time(self, time: Time, *partitions: Partition, timeout: Timeout = None) -> None:
        """Set the position to the first record at or after a time, or to the end offset if there is none.

        The time is an int (ms since 1970) or a `datetime` with a time zone. Without partitions, applies to all assigned
        ones. Raises StateError for a partition that is not assigned, ValueError as `offsets_for_times`, and
        TimeoutError; then no position has changed.
        """
        self._engine.run(self._seek_to_time(time, partitions, timeout))

    # --- topics ------------------------------------------------------------------------------------------------------

    @guarded
    def partitions_for(self, topic: str, timeout: Timeout = None) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic. The result is empty if the topic does not exist (Java `partitionsFor`).

        Raises TimeoutError if no broker responds in time.
        """
        return self._engine.run(self._partitions_for(topic, timeout))

    @guarded
    def list_topics(self, timeout: Timeout = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Returns all topics that the principal may describe, with their partitions (Java `listTopics`).

        Raises TimeoutError if no broker responds in time.
        """
        return self._engine.run(self._list_topics(timeout))

    # --- ending ------------------------------------------------------------------------------------------------------

    @checked
    def close(self, timeout: Timeout = 30.0, *, leave_group: bool | None = None) -> None:
        """Commit (with auto-commit), run on_revoke, leave the group, and close the connections.

        All steps run, and end within `timeout`. The first error is raised at the end. If `leave_group` is None, a
        dynamic member leaves, and a static member stays in the group until its session times out. Further calls do
        nothing. With a timeout of 0, the commit and LeaveGroup are sent, but a broker may not read them any more.
        """
        self._close(timeout, leave_group, auto_commit=True)

    def _close_after_error(self) -> None:
        self._close(30.0, None, auto_commit=not self._config.enable_auto_offset_store)  # what is stored is done

    def _close(self, timeout: Timeout, leave_group: bool | None, *, auto_commit: bool) -> None:
        self._check_leave_group(leave_group)
        self._close_once(timeout, lambda timer: self._engine.close(timer, leave_group, auto_commit=auto_commit))
