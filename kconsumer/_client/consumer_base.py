"""ConsumerBase: what `Consumer` and `AsyncConsumer` share: the checks of arguments, and the methods that never wait.

Decides which arguments are valid, and how iteration changes positions. For each method that waits, this class has an
operation (see `engine/waiting.py`); the subclasses decide how to wait for it. The engine and the managers decide
everything else.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, SupportsIndex, TypeAlias, TypeVar

from kconsumer import assignors
from kconsumer._client.client_base import ClientBase, Timeout, topic_names
from kconsumer._client.offset_arguments import (
    at_least_one,
    checked_text,
    offsets_to_commit,
    records_to_store,
    seek_target,
    topic_partitions,
)
from kconsumer._client.offset_arguments import timestamp as time_to_look_up
from kconsumer._client.offset_arguments import timestamps as times_to_look_up
from kconsumer._client.offset_arguments import topic_partition as _partition
from kconsumer._common.foreign_methods import CONSUMER, takes_mapping, without
from kconsumer._core.decode import ConsumerRecord, deserialization_error
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.access_guard import guarded
from kconsumer.engine.shared_calls import shared, shared_read
from kconsumer.errors import StateError
from kconsumer.listener import RebalanceListener, chosen_listener
from kconsumer.records import ConsumerRecords
from kconsumer.types import (
    GroupMetadata,
    K,
    MetricValues,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetReset,
    PartitionInfo,
    PartitionStatus,
    SubscriptionPattern,
    TopicPartition,
    V,
)

if TYPE_CHECKING:
    from datetime import datetime

    from kconsumer._client.decoded_columns import Decoders
    from kconsumer._internal.status import ConsumerStatus
    from kconsumer.arrow import RecordBatch
    from kconsumer.assignors import Assignor
    from kconsumer.engine.base import Engine
    from kconsumer.engine.callbacks import CommitCallback
    from kconsumer.engine.waiting import Operation
    from kconsumer.formats.decoders import Decoder
    from kconsumer.listener import Callback

Partition = tuple[str, SupportsIndex]  # (topic, partition), such as a TopicPartition
P = TypeVar("P", bound=Partition)  # the type of all keys of a mapping: pairs or TopicPartitions
Offsets = Mapping[P, "SupportsIndex | OffsetAndMetadata"]
Time: TypeAlias = "SupportsIndex | datetime"
ARROW_ROWS, ARROW_BYTES = 20_000, 4 << 20
# With these limits, no column of a batch reaches 2 GiB, not even the column of topic names of up to 249 bytes.
MAX_ARROW_ROWS, MAX_ARROW_BYTES = 8_000_000, 1 << 29
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


@without(CONSUMER)
class ConsumerBase(ClientBase, Generic[K, V]):
    """The part of a consumer that does not depend on how its methods wait.

    It has as many methods as Java's interface `Consumer`, because users call all of them on one object. Each of them
    calls the engine.
    """

    _engine: Engine

    @classmethod
    @takes_mapping
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
        engine = self._create_engine(config, loaded)
        engine.callbacks.set_consumer(self)
        self._start(config, engine, topics)

    @abstractmethod
    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> Engine:
        """Returns the engine of this consumer."""

    def _check_listener(self, listener: RebalanceListener) -> None:
        """Raise TypeError if the consumer cannot call the methods of this listener."""
        return

    # --- subscription ------------------------------------------------------------------------------------------------

    @guarded
    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        *,
        listener: RebalanceListener | None = None,
        on_assign: Callback[Self] | None = None,
        on_revoke: Callback[Self] | None = None,
        on_lost: Callback[Self] | None = None,
    ) -> None:
        """Replace the subscription by these topics. `poll` joins the group (Java `subscribe`).

        `topics` are names, or a pattern that must match the whole name of a topic. An empty list unsubscribes.
        Raises StateError after `assign` or without a group_id, and ValueError for an empty name.
        """
        self._check_change()
        if self._config.group_id is None:
            raise StateError("subscribe() needs a consumer group: give group_id=… to Consumer, or assign() partitions")
        chosen = chosen_listener(listener, on_assign, on_revoke, on_lost)
        if chosen is not None:
            self._check_listener(chosen)
        if isinstance(topics, SubscriptionPattern):
            self._subscribe_broker_pattern(topics, chosen)
            return
        if isinstance(topics, re.Pattern):
            self._subscribe_pattern(topics, chosen)
            return
        names = topic_names(topics)
        if not names:
            self._drop_subscription()
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

        Partitions that were assigned before keep their positions. If an auto-commit is due, commits the positions of
        the old assignment without waiting. Raises StateError after `subscribe`.
        """
        self._check_change()
        chosen = topic_partitions(partitions)
        if not chosen:
            self._drop_subscription()
            return
        with self._engine.changing():
            self._rewind()
            self._engine.assign(chosen)

    @shared_read
    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the assigned partitions."""
        with self._engine.lock:
            return frozenset(self._engine.components.assignment.assigned())

    @shared_read
    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics. For a pattern, these are the matching topics."""
        subscription = self._engine.components.subscription
        with self._engine.lock:
            return subscription.subscribed_topics() if subscription.is_group_managed else frozenset()

    def _rewind(self) -> None:
        """Drop the records that a `for` loop over the consumer has not reached, so that later polls return them again.

        Moves the position of each partition back to the first of its records that the loop has not reached.
        """
        records, unseen = self._iteration.records, self._iteration.unseen()
        self._iteration.stop()
        if records is None or not unseen:
            return
        with self._engine.changing():
            self._engine.rewind(unseen, records)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def commit_async(
        self,
        offsets: Offsets[P] | ConsumerRecords | ConsumerRecord | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit offsets without waiting and without retries (Java `commitAsync`). `offsets` is as in `commit`.

        `callback(offsets, error)` runs inside a later `poll`, `commit` or `close`, on the thread that calls that
        method. The default is the callback of the option `on_commit`. At most ten asynchronous commits are in flight at
        a time. Further commits wait and are sent together.

        Any thread may call this while another thread polls. It should pass `offsets`: without them, records count as
        consumed that the other thread is about to receive.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"a commit callback must be callable: callback(offsets, error), not {callback!r}")
        self._commit_async(None if offsets is None else offsets_to_commit(offsets), callback)

    @shared
    def _commit_async(
        self, offsets: dict[TopicPartition, OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> None:
        chosen = self._offsets(None) if offsets is None else offsets
        self._engine.operations.commit_async(chosen, callback)

    def store_offsets(self, offsets: ConsumerRecord | Iterable[ConsumerRecord] | Offsets[P]) -> None:
        """Store what is processed, to be committed by auto-commits, before a rebalance, on close, and by `commit()`.

        This is for `enable_auto_offset_store=False`. Stored records are done, in any order: a partition is committed up
        to its first record that a poll has returned and that is not stored. A mapping is as in `commit`, and sets the
        offsets to commit. Ignores partitions that are no longer assigned, and records that were returned before a
        `seek`. Does not wait. Any thread may call this while another thread polls.

        Raises StateError with `enable_auto_offset_store=True` and without a group.
        """
        if isinstance(offsets, Mapping):
            self._store((), offsets_to_commit(offsets))
        else:
            self._store(records_to_store(offsets), {})

    @shared_read  # a running poll of another thread waits for nothing that this changes
    def _store(self, records: Iterable[ConsumerRecord], offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._store_locked(records, offsets)

    def _store_locked(
        self, records: Iterable[ConsumerRecord], offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        positions = self._engine.components.positions
        self._engine.operations.group()
        if positions.auto_store:
            raise StateError("store_offsets() needs enable_auto_offset_store=False")
        with self._engine.lock:
            positions.store_records(records)
            positions.store_offsets(offsets)

    @guarded
    def seek(self, tp: Partition, offset: SupportsIndex | OffsetAndMetadata) -> None:
        """Set the position to `offset` (Java `seek`).

        If `offset` has a leader epoch, the log is checked for truncation before records are fetched. Raises StateError
        if the partition is not assigned, and ValueError for a negative offset.
        """
        target = seek_target(offset)
        tp = _partition(tp)
        with self._engine.changing():
            self._engine.components.assignment.get(tp)
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
        parts = self._engine.components
        with self._engine.changing():
            chosen = [_partition(tp) for tp in partitions] or list(parts.assignment.assigned())
            for tp in chosen:
                parts.assignment.get(tp)
            self._rewind()
            for tp in chosen:
                parts.positions.request_reset(tp, strategy)
                self._engine.delivery.forget(tp)
            self._engine.assignment_changed()

    def current_lag(self, tp: Partition) -> int | None:
        """Returns the end offset minus the position, or None while the end offset is unknown. Never blocks.

        Any thread may call this while another thread polls.
        """
        return self._current_lag(_partition(tp))

    @shared
    def _current_lag(self, tp: TopicPartition) -> int | None:
        return self._engine.current_lag(tp)

    # --- flow --------------------------------------------------------------------------------------------------------

    def pause(self, *partitions: Partition) -> None:
        """Pause these partitions: `poll` returns no records of them until `resume`. Their buffered data is kept.

        Any thread may call this while another thread polls. The running poll returns none of their records either,
        unless it is about to end.
        """
        self._pause([_partition(tp) for tp in partitions])

    @shared
    def _pause(self, partitions: Sequence[TopicPartition]) -> None:
        with self._engine.changing():
            for tp in partitions:
                self._engine.components.assignment.pause(tp)

    def resume(self, *partitions: Partition) -> None:
        """Let `poll` return records of these partitions again after `pause`. A running poll returns them, too.

        Any thread may call this while another thread polls.
        """
        self._resume([_partition(tp) for tp in partitions])

    @shared
    def _resume(self, partitions: Sequence[TopicPartition]) -> None:
        with self._engine.changing():
            for tp in partitions:
                self._engine.components.assignment.resume(tp)
            self._engine.resumed()

    @shared_read
    def paused(self) -> frozenset[TopicPartition]:
        """Returns the paused partitions."""
        with self._engine.lock:
            return self._engine.components.assignment.paused()

    # --- group, metrics ----------------------------------------------------------------------------------------------

    @shared_read
    def group_metadata(self) -> GroupMetadata:
        """Returns the group, generation and member id of this consumer. Raises StateError without a group."""
        return self._engine.group_metadata()

    @guarded
    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Make the next `poll` rejoin the group. Raises StateError without a group (KIP-568)."""
        given = None if reason is None else checked_text(reason, "the reason of a rebalance")
        self._engine.enforce_rebalance(given or "the application asked for a rebalance")

    @shared_read
    def metrics(self) -> MetricValues:
        """Returns all metrics, under the names and groups of the Java client.

        The keys are MetricNames; `metrics()["records-lag-max"]` finds the one of the whole consumer by its plain name.
        """
        return self._engine.metrics()

    @shared_read
    def partition_states(self) -> dict[TopicPartition, PartitionStatus]:
        """Returns the state of each assigned partition, and the reason why it is or is not fetched."""
        return self._engine.status.partition_states()

    def _read_status(self) -> ConsumerStatus:
        return self._engine.status.consumer_status(self._name())

    # --- methods that wait -------------------------------------------------------------------------------------------

    # Each of these is an operation: arguments are checked when it starts, which is inside the guard.

    def _unsubscribe(self) -> Operation[None]:
        self._rewind()
        yield from self._engine.operations.unsubscribe()

    def _client_instance_id(self, timeout: Timeout) -> Operation[str]:
        return (yield from self._engine.operations.client_instance_id(self._timer(timeout)))

    def _commit(
        self, offsets: Offsets[P] | ConsumerRecords | ConsumerRecord | None, timeout: Timeout
    ) -> Operation[None]:
        yield from self._engine.operations.commit(self._offsets(offsets), self._timer(timeout))

    def _committed(
        self, partitions: Iterable[Partition], timeout: Timeout
    ) -> Operation[dict[TopicPartition, OffsetAndMetadata | None]]:
        wanted = topic_partitions(partitions)
        return (yield from self._engine.operations.committed(wanted, self._timer(timeout)))

    def _position(self, tp: Partition, timeout: Timeout) -> Operation[int]:
        tp, timer = _partition(tp), self._timer(timeout)
        unseen = self._iteration.unseen().get(tp)
        if unseen is not None:
            return unseen
        return (yield from self._engine.operations.position(tp, timer))

    def _beginning_offsets(
        self, partitions: Iterable[Partition], timeout: Timeout
    ) -> Operation[dict[TopicPartition, int]]:
        return (yield from self._ends(partitions, EARLIEST_TIMESTAMP, "finding beginning offsets", timeout))

    def _end_offsets(self, partitions: Iterable[Partition], timeout: Timeout) -> Operation[dict[TopicPartition, int]]:
        return (yield from self._ends(partitions, LATEST_TIMESTAMP, "finding end offsets", timeout))

    def _ends(
        self, partitions: Iterable[Partition], timestamp: int, what: str, timeout: Timeout
    ) -> Operation[dict[TopicPartition, int]]:
        wanted = dict.fromkeys(topic_partitions(partitions), timestamp)
        found = yield from self._engine.operations.list_offsets(wanted, self._timer(timeout), what)
        return {tp: found_at.offset for tp, found_at in found.items() if found_at is not None}

    def _offsets_for_times(
        self, timestamps: Mapping[P, Time], timeout: Timeout
    ) -> Operation[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted = times_to_look_up(timestamps)
        what = "finding offsets for times"
        return (yield from self._engine.operations.list_offsets(wanted, self._timer(timeout), what))

    def _seek_to_time(self, time: Time, partitions: Sequence[Partition], timeout: Timeout) -> Operation[None]:
        assignment, timer = self._engine.components.assignment, self._timer(timeout)
        wanted = time_to_look_up(time, "the time of seek_to_time()")
        chosen = [_partition(tp) for tp in partitions] or list(assignment.assigned())
        for tp in chosen:
            assignment.get(tp)
        # The end offsets are looked up first: with the end after the second look-up, records of the time between the
        # two would be skipped.
        targets = []
        for timestamp in (LATEST_TIMESTAMP, wanted):
            times, what = dict.fromkeys(chosen, timestamp), "finding offsets for times"
            targets.append((yield from self._engine.operations.list_offsets(times, timer, what)))
        with self._engine.changing():
            for tp in chosen:
                assignment.get(tp)
            self._rewind()
            for tp in chosen:
                target = targets[1][tp] or targets[0][tp]
                assert target is not None  # every partition has an end
                self._engine.seek(tp, OffsetAndMetadata(target.offset))

    def _partitions_for(self, topic: str, timeout: Timeout) -> Operation[tuple[PartitionInfo, ...]]:
        topics = yield from self._engine.operations.topics([checked_text(topic, "a topic")], self._timer(timeout))
        return topics.get(topic, ())

    def _list_topics(self, timeout: Timeout) -> Operation[dict[str, tuple[PartitionInfo, ...]]]:
        return (yield from self._engine.operations.topics(None, self._timer(timeout)))

    # --- ending ------------------------------------------------------------------------------------------------------

    def _observe_rebalances(self, observer: RebalanceListener | None) -> None:
        """Set a listener that is called before that of the subscription, and stays when the subscription changes."""
        self._engine.callbacks.observer = observer

    def _forget_wakeup(self) -> None:
        """Let a wakeup that no call has raised yet raise nothing."""
        self._engine.driver.wakeup_requested = False

    def _check_leave_group(self, leave_group: bool | None) -> None:
        """Raise TypeError unless the argument `leave_group` of `close` is a bool or None."""
        if not (leave_group is None or isinstance(leave_group, bool)):
            raise TypeError(f"leave_group must be True, False or None, not {leave_group!r}")

    def _drop_unreached(self) -> None:
        if not self._guard.step.unfinished:
            self._rewind()

    def __repr__(self) -> str:
        if self._guard.closed:
            return f"<{self._name()} closed>"
        return f"<{self._name()} {self._engine.status.summary()}>"

    # --- arguments ---------------------------------------------------------------------------------------------------

    def _offsets(
        self, offsets: Offsets[P] | ConsumerRecords | ConsumerRecord | None
    ) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """Returns the offsets to commit, or None to commit all positions.

        If `offsets` is None while a `for` loop is in the middle of a batch, records that the loop has not reached are
        not committed. While `kconsumer.parallel` processes the records, nothing is: it commits what is finished.
        """
        if offsets is None:
            if self._engine.callbacks.observer is not None:
                return {}
            return self._engine.consumed_before(self._iteration.unseen()) if self._iteration.active else None
        return offsets_to_commit(offsets)

    def _max_records(self, max_records: int | None, timeout_ms: float | None, num_messages: object) -> int:
        """Returns the checked argument `max_records` of a poll. Raises TypeError if one of the others is given."""
        if num_messages is not None:
            raise TypeError(f"poll() takes max_records={num_messages!r}, not num_messages=")
        if timeout_ms is not None:
            instead = f"{timeout_ms / 1000:g}" if isinstance(timeout_ms, int | float) else "…"
            raise TypeError(f"poll() takes seconds: write poll(timeout={instead}), not timeout_ms=")
        return self._config.max_poll_records if max_records is None else at_least_one("max_records", max_records)

    def _arrow_limits(
        self, max_rows: int | None, max_bytes: int | None, columns: Iterable[str] | None
    ) -> tuple[int, int, tuple[str, ...]]:
        """Returns the checked arguments of `poll_arrow`: the limits of rows and bytes, and the columns to build."""
        from kconsumer.arrow import choose  # imported when used

        chosen = choose(columns)
        if max_rows is None:
            max_rows = self._config.max_poll_records if "max_poll_records" in self._config.explicit else ARROW_ROWS
        rows = min(at_least_one("max_rows", max_rows), MAX_ARROW_ROWS)
        return (
            rows,
            min(at_least_one("max_bytes", ARROW_BYTES if max_bytes is None else max_bytes), MAX_ARROW_BYTES),
            chosen,
        )

    def _column_decoders(self, decode: Decoders | None, columns: tuple[str, ...]) -> dict[str, Decoder]:
        """Returns the checked argument `decode` of `poll_arrow`."""
        if decode is None:
            return {}
        from kconsumer._client.decoded_columns import checked  # imported when used

        return checked(decode, columns)

    def _columns(self, records: ConsumerRecords, columns: tuple[str, ...], decoders: dict[str, Decoder]) -> RecordBatch:
        """Returns the records of a poll as Arrow columns, decoded if there are decoders.

        If a record cannot be decoded, returns the records before it, and moves the positions back to where these end.
        Raises RecordDeserializationError if this is the first record of its partition. So, as with `poll`, the position
        is at this record when the error is raised, and a seek to the offset after it skips no other record.
        """
        if not decoders:
            return records.to_arrow(columns)
        from kconsumer._client.decoded_columns import BadRow, decode_records  # imported when used

        found = decode_records(records, columns, decoders)
        if not isinstance(found, BadRow):
            return found
        every = list(records)
        before, bad, rest = every[: found.row], every[found.row], every[found.row :]
        if all(record.topic_partition != bad.topic_partition for record in before):
            raise deserialization_error(found.column, bad, ValueError(found.reason))
        batch = decode_records(ConsumerRecords(before), columns, decoders)
        assert not isinstance(batch, BadRow)  # it was decoded above
        self._engine.shorten({record.topic_partition: record.offset for record in reversed(rest)}, records)
        return batch
