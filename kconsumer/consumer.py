"""Consumer: the public methods. Each method checks its arguments and calls the engine.

Decides when a thread may call a method (one thread at a time, not after close(), not in a forked child), which
arguments are valid, and how iteration changes positions. The engine and the managers decide everything else.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeAlias, TypeVar, Unpack

from kconsumer import _foreign_methods, assignors
from kconsumer._core.record import ConsumerRecord
from kconsumer.clock import Timer
from kconsumer.config.options import ConsumerConfig
from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.access_guard import AccessGuard, guarded
from kconsumer.engine.iteration import Iteration
from kconsumer.errors import KafkaError, StateError
from kconsumer.listener import CallableListener, RebalanceListener
from kconsumer.offset_arguments import offsets_to_commit, seek_target
from kconsumer.offset_arguments import topic_partition as _partition
from kconsumer.records import ConsumerRecords
from kconsumer.types import (
    GroupMetadata,
    MetricName,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetReset,
    PartitionInfo,
    PartitionStatus,
    SubscriptionPattern,
    TopicPartition,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from kconsumer.arrow import RecordBatch
    from kconsumer.assignors import Assignor
    from kconsumer.config.signature import ConsumerOptions
    from kconsumer.engine.base import Engine
    from kconsumer.engine.callbacks import CommitCallback
    from kconsumer.listener import Callback

Timeout: TypeAlias = "float | timedelta | None"
Partition = tuple[str, SupportsIndex]  # (topic, partition), such as a TopicPartition
P = TypeVar("P", bound=Partition)  # the type of all keys of a mapping: pairs or TopicPartitions
Offsets = Mapping[P, "SupportsIndex | OffsetAndMetadata"]
ARROW_ROWS, ARROW_BYTES = 20_000, 4 << 20
# With these limits, no column of a batch reaches 2 GiB, not even the column of topic names of up to 249 bytes.
MAX_ARROW_ROWS, MAX_ARROW_BYTES = 8_000_000, 1 << 29
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


class Consumer:
    """A Kafka consumer with the semantics of the Java consumer of Kafka 4.4.

    It subscribes to the `topics`, if there are any. Options are the Java keys in snake_case;
    `help(kconsumer.ConsumerConfig)` lists them. Before the first use, the consumer opens no connection and starts no
    thread. Use it from one thread at a time. Only `wakeup` may be called from another thread. Signal handlers may call
    any method. Timeouts are float seconds or `timedelta`; None means `default_api_timeout_ms`.

    Raises ConfigError for an option that is unknown, out of range, or contradicts another option.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._set_up(ConsumerConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, **options), topics)

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any], *topics: str) -> Self:
        """Create a consumer from a mapping of options.

        Keys are dotted Java names or snake_case names. Values are typed or text.
        """
        consumer = cls.__new__(cls)
        consumer._set_up(ConsumerConfig.from_mapping(mapping), topics)
        return consumer

    def _set_up(self, config: ConsumerConfig, topics: Sequence[str]) -> None:
        classic = config.group_protocol == "classic"
        joins = classic and (config.group_id is not None or "assignors" in config.explicit)
        loaded = assignors.load_all(config.assignors, config.as_mapping()) if joins else ()
        self._config = config
        self._engine = self._create_engine(config, loaded)
        self._clock = self._engine.components.clock
        self._engine.callbacks.set_consumer(self)
        self._iteration = Iteration()
        self._closing = False
        parts = self._engine.components
        self._guard = AccessGuard(parts.step, parts.end_wait)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:  # the user does not get this consumer, and cannot close it
                self._guard.closed = True
                self._engine.abandon()
                raise

    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> Engine:
        """Returns the engine of this consumer. `MockConsumer` has another one."""
        # Half of all modules: imported with the first consumer.
        from kconsumer.engine.choice import create_engine
        from kconsumer.engine.environment import Environment

        return create_engine(config, Environment(), loaded)

    # --- subscription ----------------------------------------------------------------------------------------------

    @guarded
    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        *,
        listener: RebalanceListener | None = None,
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Replace the subscription by these topics. `poll` joins the group (Java `subscribe`).

        `topics` are names, or a pattern that must match the whole name of a topic. An empty list unsubscribes.
        Raises StateError after `assign` or without a group_id, and ValueError for an empty name.
        """
        if self._config.group_id is None:
            raise StateError("subscribe() needs a consumer group: give group_id=… to Consumer, or assign() partitions")
        callables = (on_assign, on_revoke, on_lost)
        chosen = listener
        if any(callback is not None for callback in callables):
            if listener is not None:
                raise ValueError("give either listener= or on_assign=/on_revoke=/on_lost=, not both")
            chosen = CallableListener(*callables)
        if isinstance(topics, SubscriptionPattern):
            self._subscribe_broker_pattern(topics, chosen)
            return
        if isinstance(topics, re.Pattern):
            self._subscribe_pattern(topics, chosen)
            return
        names = _topic_names(topics)
        if not names:
            self.unsubscribe()
            return
        with self._engine.changing():
            self._rewind()
            self._engine.components.subscription.subscribe(names)
            self._engine.subscription_changed(chosen)

    def _subscribe_pattern(self, pattern: re.Pattern[str], listener: RebalanceListener | None) -> None:
        if not pattern.pattern:
            raise ValueError("a topic pattern cannot be empty")
        with self._engine.changing():
            self._rewind()
            self._engine.components.subscription.subscribe_pattern(pattern)
            self._engine.subscription_changed(listener)

    def _subscribe_broker_pattern(self, pattern: SubscriptionPattern, listener: RebalanceListener | None) -> None:
        if self._config.group_protocol != "consumer":
            raise StateError(
                'the broker evaluates a SubscriptionPattern: that needs group_protocol="consumer"; or use re.compile(…)'
            )
        with self._engine.changing():
            self._rewind()
            self._engine.components.subscription.subscribe_broker_pattern(pattern)
            self._engine.subscription_changed(listener)

    @guarded
    def assign(self, partitions: Iterable[Partition]) -> None:
        """Assign exactly these partitions, without group management (Java `assign`). An empty list unsubscribes.

        Partitions that were assigned before keep their positions. Raises StateError after `subscribe`.
        """
        chosen = [_partition(tp) for tp in partitions]
        if not chosen:
            self.unsubscribe()
            return
        with self._engine.changing():
            self._rewind()
            self._engine.components.subscription.assign(chosen)
            self._engine.assignment_changed()

    @guarded
    def unsubscribe(self) -> None:
        """Leave the group, or drop the assignment. Runs on_revoke or on_lost. Does not auto-commit."""
        self._rewind()
        self._engine.run(self._engine.operations.unsubscribe())

    @guarded
    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the assigned partitions."""
        with self._engine.lock:
            return frozenset(self._engine.components.subscription.assigned())

    @guarded
    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics. For a pattern, these are the matching topics."""
        subscription = self._engine.components.subscription
        with self._engine.lock:
            return subscription.subscribed_topics() if subscription.is_group_managed else frozenset()

    # --- reading ---------------------------------------------------------------------------------------------------

    def poll(
        self, timeout: Timeout = 1.0, max_records: int | None = None, *, timeout_ms: None = None
    ) -> ConsumerRecords:
        """Returns records of the assigned partitions, at most `max_records` (default `max_poll_records`).

        Waits up to `timeout` for the first records. The result is empty (and falsy) after the timeout. It may be empty
        earlier if a position moved over control records. Also joins the group, runs callbacks and auto-commits (Java
        `poll`).

        Raises StateError without a subscription or assignment, WakeupError, NoOffsetForPartitionError,
        OffsetOutOfRangeError, CorruptRecordError, RecordDeserializationError, and group or authorization errors.
        `timeout_ms` is an option of kafka-python and raises TypeError.
        """
        if timeout_ms is not None:
            raise TypeError(f"poll() takes seconds: write poll(timeout={timeout_ms / 1000:g}), not timeout_ms=")
        if max_records is None:
            return self._poll(timeout, self._config.max_poll_records, None)
        return self._poll(timeout, _positive("max_records", max_records), None)

    def _poll(self, timeout: Timeout, max_records: int, max_bytes: int | None) -> ConsumerRecords:
        guard = self._guard
        outer = guard.enter()  # not @guarded: Ctrl-C between its call and its return would lose records (Python 3.11)
        try:
            # The common case is computed without a call.
            timeout_ms = timeout * 1000.0 if timeout.__class__ is float and timeout >= 0 else self._timeout_ms(timeout)
            if self._iteration.active:
                self._rewind()
            return self._engine.poll(timeout_ms, max_records, max_bytes)
        finally:
            guard.holder = outer

    def poll_arrow(
        self,
        timeout: Timeout = 1.0,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        columns: Iterable[str] | None = None,
    ) -> RecordBatch:
        """Returns the records of a `poll` as Arrow columns, without creating record objects.

        The result has at most `max_rows` rows (default `max_poll_records` if that was given, otherwise 20 000). It ends
        with the row with which the serialized size of the records reaches `max_bytes` (default 4 MiB). `columns` are
        the names of the columns to build, by default all (see `kconsumer.arrow`). Deserializers do not run: keys and
        values are bytes. Commit the result with `commit(batch.next_offsets())`. Raises the errors of `poll`, and
        ValueError for a column that does not exist.
        """
        from kconsumer.arrow import choose  # imported when used

        chosen = choose(columns)
        if max_rows is None:
            max_rows = self._config.max_poll_records if "max_poll_records" in self._config.explicit else ARROW_ROWS
        rows = min(_positive("max_rows", max_rows), MAX_ARROW_ROWS)
        size = min(_positive("max_bytes", ARROW_BYTES if max_bytes is None else max_bytes), MAX_ARROW_BYTES)
        guard = self._guard
        outer = guard.enter()  # see `_poll`
        try:
            records = self._poll(timeout, rows, size)
            try:
                return records.to_arrow(chosen)
            except BaseException:  # Ctrl-C, or no memory: records that do not reach the caller were not consumed
                if records:
                    self._engine.rollback_last_poll()
                raise
        finally:
            guard.holder = outer

    def __iter__(self) -> Iterator[ConsumerRecord]:
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

    def _rewind(self) -> None:
        """Drop the records that a `for` loop over the consumer has not reached, so that later polls return them again.

        Moves the position of each partition back to the first of its records that the loop has not reached.
        """
        unseen = self._iteration.unseen()
        self._iteration.stop()
        if not unseen:
            return
        with self._engine.changing():
            self._engine.rewind(unseen)

    # --- offsets ---------------------------------------------------------------------------------------------------

    @guarded
    def commit(self, offsets: Offsets[P] | ConsumerRecords | None = None, *, timeout: Timeout = None) -> None:
        """Commit offsets and wait for the response (Java `commitSync`). Retries retriable errors until the timeout.

        If `offsets` is None, all positions are committed. `offsets` can be a dict of partition -> next offset to read.
        It can also be the result of a `poll`, whose `next_offsets()` are then committed.

        Raises TypeError or ValueError for invalid offsets, CommitFailedError if the consumer is no longer a member,
        RebalanceInProgressError while the group rebalances, TimeoutError, and StateError without a group.
        """
        engine = self._engine
        engine.run(engine.operations.commit(self._offsets(offsets), self._timer(timeout)))

    @guarded
    def commit_async(
        self, offsets: Offsets[P] | ConsumerRecords | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit offsets without waiting and without retries (Java `commitAsync`). `offsets` is as in `commit`.

        `callback(offsets, error)` runs on this thread inside a later `poll`, `commit` or `close`. The default is the
        callback of the option `on_commit`. At most ten asynchronous commits are in flight at a time. Further commits
        wait and are sent together.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"a commit callback must be callable: callback(offsets, error), not {callback!r}")
        self._engine.operations.commit_async(self._offsets(offsets), callback)

    @guarded
    def committed(
        self, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each partition, or None if it has none (Java `committed`)."""
        engine = self._engine
        wanted = [_partition(tp) for tp in partitions]
        return engine.run(engine.operations.committed(wanted, self._timer(timeout)))

    @guarded
    def position(self, tp: Partition, timeout: Timeout = None) -> int:
        """Returns the offset of the next record to read (Java `position`). Looks it up if it is not known yet.

        Raises StateError if the partition is not assigned, NoOffsetForPartitionError if it has no committed offset and
        `auto_offset_reset` is "none", and TimeoutError if the offset is not found within the timeout.
        """
        tp = _partition(tp)
        unseen = self._iteration.unseen().get(tp)
        if unseen is not None:
            return unseen
        return self._engine.run(self._engine.operations.position(tp, self._timer(timeout)))

    @guarded
    def seek(self, tp: Partition, offset: SupportsIndex | OffsetAndMetadata) -> None:
        """Set the position to `offset` (Java `seek`).

        If `offset` has a leader epoch, the log is checked for truncation before records are fetched. Raises StateError
        if the partition is not assigned, and ValueError for a negative offset.
        """
        target = seek_target(offset)
        tp = _partition(tp)
        with self._engine.changing():
            self._engine.components.subscription.get(tp)
            self._rewind()
            self._engine.seek(tp, target)

    @guarded
    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Set the position to the first offset. The next `poll` or `position` looks this offset up.

        Without arguments, applies to all assigned partitions.
        """
        self._reset(partitions, OffsetReset.EARLIEST)

    @guarded
    def seek_to_end(self, *partitions: Partition) -> None:
        """Set the position to the end offset. The next `poll` or `position` looks this offset up.

        Without arguments, applies to all assigned partitions.
        """
        self._reset(partitions, OffsetReset.LATEST)

    def _reset(self, partitions: Sequence[Partition], strategy: OffsetReset) -> None:
        subscription = self._engine.components.subscription
        with self._engine.changing():
            chosen = [_partition(tp) for tp in partitions] or list(subscription.assigned())
            for tp in chosen:
                subscription.get(tp)
            self._rewind()
            for tp in chosen:
                subscription.request_reset(tp, strategy)
            self._engine.assignment_changed()

    @guarded
    def beginning_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. The partitions need not be assigned."""
        return self._ends(partitions, EARLIEST_TIMESTAMP, "finding beginning offsets", timeout)

    @guarded
    def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition. With read_committed, returns the last stable offset."""
        return self._ends(partitions, LATEST_TIMESTAMP, "finding end offsets", timeout)

    def _ends(
        self, partitions: Iterable[Partition], timestamp: int, what: str, timeout: Timeout
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys((_partition(tp) for tp in partitions), timestamp)
        found = self._list_offsets(wanted, what, timeout)
        return {tp: found_at.offset for tp, found_at in found.items() if found_at is not None}

    @guarded
    def offsets_for_times(
        self, timestamps: Mapping[P, int], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset of the first record at or after a time (ms since the epoch).

        The value is None if there is no such record. Raises ValueError for a negative time (Java `offsetsForTimes`).
        """
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"the time for {tp} is negative: {timestamp}")
        wanted = {_partition(tp): timestamp for tp, timestamp in timestamps.items()}
        return self._list_offsets(wanted, "finding offsets for times", timeout)

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], what: str, timeout: Timeout
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._engine.run(self._engine.operations.list_offsets(wanted, self._timer(timeout), what))

    @guarded
    def current_lag(self, tp: Partition) -> int | None:
        """Returns the end offset minus the position, or None while the end offset is unknown. Never blocks."""
        return self._engine.current_lag(_partition(tp))

    # --- flow ------------------------------------------------------------------------------------------------------

    @guarded
    def pause(self, *partitions: Partition) -> None:
        """Pause these partitions: `poll` returns no records of them until `resume`. Their buffered data is kept."""
        with self._engine.changing():
            for tp in partitions:
                self._engine.components.subscription.pause(_partition(tp))

    @guarded
    def resume(self, *partitions: Partition) -> None:
        """Let `poll` return records of these partitions again after `pause`."""
        with self._engine.changing():
            for tp in partitions:
                self._engine.components.subscription.resume(_partition(tp))
            self._engine.resumed()

    @guarded
    def paused(self) -> frozenset[TopicPartition]:
        """Returns the paused partitions."""
        with self._engine.lock:
            return self._engine.components.subscription.paused()

    # --- topics, group, metrics ------------------------------------------------------------------------------------

    @guarded
    def partitions_for(self, topic: str, timeout: Timeout = None) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic. The result is empty if the topic does not exist (Java `partitionsFor`)."""
        engine = self._engine
        return engine.run(engine.operations.topics([topic], self._timer(timeout))).get(topic, ())

    @guarded
    def list_topics(self, timeout: Timeout = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Returns all topics that the principal may describe, with their partitions (Java `listTopics`)."""
        engine = self._engine
        return engine.run(engine.operations.topics(None, self._timer(timeout)))

    @guarded
    def group_metadata(self) -> GroupMetadata:
        """Returns the group, generation and member id of this consumer. Raises StateError without a group."""
        return self._engine.group_metadata()

    @guarded
    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Make the next `poll` rejoin the group. Raises StateError without a group (KIP-568)."""
        self._engine.enforce_rebalance(reason or "the application asked for a rebalance")

    @guarded
    def client_instance_id(self, timeout: Timeout = None) -> str:
        """Raise StateError, because without client telemetry there is no client instance id (KIP-714)."""
        raise StateError("client telemetry is not part of this version, so there is no client instance id")

    @guarded
    def metrics(self) -> dict[MetricName, float]:
        """Returns all metrics, under the names and groups of the Java client."""
        return self._engine.metrics()

    @guarded
    def partition_states(self) -> dict[TopicPartition, PartitionStatus]:
        """Returns the state of each assigned partition, and the reason why it is or is not fetched."""
        return self._engine.status.partition_states()

    # --- ending ----------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the running blocking call raise WakeupError. If none is running, the next one raises it.

        Any thread or signal handler may call this.
        """
        self._engine.wakeup()

    def close(self, timeout: Timeout = 30.0, *, leave_group: bool | None = None) -> None:
        """Commit (with auto-commit), run on_revoke, leave the group, and close the connections.

        All steps run, and end within `timeout`. The first error is raised at the end. If `leave_group` is None, a
        dynamic member leaves, and a static member stays in the group until its session times out. Further calls do
        nothing.
        """
        self._close(timeout, leave_group, auto_commit=True)

    def _close(self, timeout: Timeout, leave_group: bool | None, *, auto_commit: bool) -> None:
        if self._guard.closed:
            return
        timer = self._timer(timeout)
        outer = self._guard.enter(closing=True)
        if self._closing:  # called by a callback or a signal handler that runs inside close()
            self._guard.holder = outer
            return
        self._closing = True
        try:
            holds = SIGNALS.hold(self._guard.end_wait)
            try:
                if not self._guard.step.unfinished:
                    self._rewind()
                self._engine.close(timer, leave_group, auto_commit=auto_commit)
            finally:
                self._guard.closed = True
                if holds:
                    SIGNALS.release()
        finally:
            self._guard.holder = outer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the consumer. If the body raised, does not commit, so that the records of the body are read again."""
        if kind is None:
            self.close()
            return
        try:
            self._close(30.0, None, auto_commit=False)
        except KafkaError as close_error:
            if error is not None:
                error.add_note(f"closing the consumer failed, too: {close_error}")

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is None or guard.closed:
            return
        if guard.forked:
            self._engine.abandon()
            return
        guard.closed = True
        try:
            message = f"unclosed <{self._name()}>; use `with Consumer(…)` or close()"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
        finally:  # a filter may turn the warning into an exception
            self._engine.abandon()

    def _name(self) -> str:
        group = f" group={self._config.group_id!r}" if self._config.group_id else ""
        return f"Consumer {self._config.client_id!r}{group}"

    if not TYPE_CHECKING:  # a checker would take every name for an attribute

        def __new__(cls, *arguments, **options):
            """Create a consumer. Raises TypeError if the first argument is a mapping of options.

            The consumer of confluent-kafka takes such a mapping. The message names `from_config`, which takes one here.
            """
            if arguments and isinstance(arguments[0], Mapping) and cls.__init__ is Consumer.__init__:
                raise TypeError(
                    "Consumer() takes topics, and options by name; for a mapping of options write "
                    "Consumer.from_config({…}, 'topic')"
                )
            return super().__new__(cls)

        def __getattr__(self, name):
            raise AttributeError(_foreign_methods.explain(self, name, _foreign_methods.CONSUMER), name=name, obj=self)

    def __repr__(self) -> str:
        state = "closed" if self._guard.closed else self._engine.status.summary()
        return f"<{self._name()} {state}>"

    # --- arguments -------------------------------------------------------------------------------------------------

    def _offsets(self, offsets: Offsets[P] | ConsumerRecords | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """Returns the offsets to commit, or None to commit all positions.

        If `offsets` is None while a `for` loop is in the middle of a batch, records that the loop has not reached are
        not committed.
        """
        if offsets is None:
            return self._engine.consumed_before(self._iteration.unseen()) if self._iteration.active else None
        return offsets_to_commit(offsets)

    def _timer(self, timeout: Timeout) -> Timer:
        return Timer(self._clock, self._timeout_ms(timeout))

    def _timeout_ms(self, timeout: Timeout) -> float:
        if timeout is None:
            return float(self._config.default_api_timeout_ms)
        # Not isinstance(): a program that passes no timedelta does not import `datetime`, which takes a millisecond.
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)
        if not seconds >= 0:
            raise ValueError(f"a timeout cannot be negative: {seconds} s")
        return seconds * 1000.0


def _topic_names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise TypeError(f"subscribe() takes a list of topics, not one string; write subscribe([{topics!r}])")
    names = list(topics)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"not a topic name: {name!r}")
        if name.startswith("^"):
            raise ValueError(
                f"not a topic name: {name!r}; for a pattern pass re.compile({name[1:]!r}), which matches whole names"
            )
    return names


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return value
