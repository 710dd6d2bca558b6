"""ShareConsumerBase: what `ShareConsumer` and `AsyncShareConsumer` share: methods that never wait, and operations.

Decides which arguments are valid, and which records a `for` loop has reached. The engine does the rest.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, overload

from kconsumer._client.client_base import ClientBase, Timeout, topic_names
from kconsumer._client.offset_arguments import record_offset, topic_partition
from kconsumer._common.foreign_methods import SHARE_CONSUMER, takes_mapping, without
from kconsumer._core.decode import ConsumerRecord, ShareRecord
from kconsumer.engine.access_guard import guarded
from kconsumer.errors import KafkaError, StateError
from kconsumer.records import ConsumerRecords
from kconsumer.share.components import ShareComponents
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.share.types import AcknowledgeType
from kconsumer.types import K, MetricValues, PartitionCondition, PartitionStatus, TopicPartition, V

if TYPE_CHECKING:
    from kconsumer._internal.status import ConsumerStatus
    from kconsumer.engine.waiting import Operation
    from kconsumer.share.acknowledgements import AcquiredBatch
    from kconsumer.share.collector import Acknowledger
    from kconsumer.share.engine import ShareEngine


def partition_states(parts: ShareComponents) -> dict[TopicPartition, PartitionStatus]:
    """Returns the status of each assigned partition. It has no position, because the broker has it."""
    now = parts.clock.now()
    return {tp: _status(parts, tp, now) for tp in sorted(parts.assignment.assigned())}


def _status(parts: ShareComponents, tp: TopicPartition, now: float) -> PartitionStatus:
    leader = parts.cluster.leader(tp).leader
    if leader is None:
        reason = parts.metadata.topic_errors.problem_with(tp) or "no leader is known"
        return PartitionStatus(PartitionCondition.NO_LEADER, reason, 0.0, None, None, None)
    error = parts.client.last_error(str(leader.id), now)
    condition, reason = (PartitionCondition.BACKOFF, error) if error else parts.fetch.broker_condition(leader.id, now)
    return PartitionStatus(condition, reason, 0.0, None, None, None)


POLL_S = 1.0
ShareRecords: TypeAlias = "ConsumerRecords[K, V, ShareRecord[K, V]]"  # what a poll returns


@without(SHARE_CONSUMER)
class ShareConsumerBase(ClientBase, Generic[K, V]):
    """The part of a share consumer that does not depend on how its methods wait."""

    _engine: ShareEngine

    @classmethod
    @takes_mapping
    def from_config(cls, mapping: Mapping[str, Any], *topics: str) -> Self:
        """Create a consumer from a mapping of options.

        Keys are dotted Java names or snake_case names. Values are typed or text.
        """
        consumer = cls.__new__(cls)
        consumer._set_up(ShareConsumerConfig(**mapping), topics)
        return consumer

    def _set_up(self, config: ShareConsumerConfig, topics: Sequence[str]) -> None:
        assert config.group_id is not None
        engine = self._create_engine(config, config.group_id)
        engine.components.collector.acknowledger = _acknowledger(self)
        self._start(config, engine, topics)

    @abstractmethod
    def _create_engine(self, config: ShareConsumerConfig, group_id: str) -> ShareEngine:
        """Returns the engine of this consumer."""

    # --- subscription ------------------------------------------------------------------------------------------------

    @guarded
    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics, in place of earlier ones. An empty list unsubscribes. The next poll joins."""
        self._check_change()
        names = topic_names(topics)
        if names:
            self._engine.subscribe(names)
        else:
            self._drop_subscription()

    @guarded
    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics."""
        subscription = self._engine.components.subscription
        with self._engine.components.lock:
            return subscription.subscribed_topics() if subscription.is_group_managed else frozenset()

    # --- acknowledging -----------------------------------------------------------------------------------------------

    @overload
    def acknowledge(self, record: ConsumerRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None: ...

    @overload
    def acknowledge(self, topic: str, partition: int, offset: int, type: AcknowledgeType) -> None: ...

    def acknowledge(self, *arguments: Any, **named: Any) -> None:
        """Acknowledge a record of the last poll (Java `acknowledge`). The next `poll` or `commit` sends it.

        `acknowledge(record, type=AcknowledgeType.ACCEPT)` takes a record. `acknowledge(topic, partition, offset, type)`
        also acknowledges a record for which a poll has raised RecordDeserializationError. Otherwise the next poll or
        commit releases that record. It cannot be renewed.

        Raises StateError in implicit mode, and if the record is not one of the last poll, or if its acknowledgement was
        sent already.
        """
        if "topic" in named or (arguments and isinstance(arguments[0], str)):
            self._acknowledge_offset(*arguments, **named)
        else:
            self._acknowledge_record(*arguments, **named)

    @guarded
    def _acknowledge_record(self, record: ConsumerRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        if not isinstance(record, ConsumerRecord):
            raise TypeError(f"acknowledge() takes a record of the last poll, or a topic, not {record!r}")
        self._engine.acknowledge(record, AcknowledgeType(type))

    @guarded
    def _acknowledge_offset(self, topic: str, partition: int, offset: int, type: AcknowledgeType) -> None:
        tp = topic_partition((topic, partition))
        self._engine.acknowledge_offset(tp, record_offset(offset), AcknowledgeType(type))

    @guarded
    def commit_async(self) -> None:
        """Send all acknowledgements without waiting (Java `commitAsync`). `on_acknowledge` receives the results."""
        self._engine.commit_async(self._iteration.unreached)

    @guarded
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Returns how long received records are locked (ms), or None before the first response of a broker."""
        with self._engine.components.lock:
            return self._engine.components.fetch.lock_timeout_ms

    # --- metrics -----------------------------------------------------------------------------------------------------

    @guarded
    def metrics(self) -> MetricValues:
        """Returns all metrics, under the names and groups of the Java client.

        The keys are MetricNames; `metrics()["records-lag-max"]` finds the one of the whole consumer by its plain name.
        """
        return self._engine.metrics()

    def _read_status(self) -> ConsumerStatus:
        from kconsumer.engine.consumer_status import consumer_status  # imported when used

        parts = self._engine.components
        with parts.lock:
            return consumer_status(parts, self._name(), partition_states(parts))

    # --- methods that wait -------------------------------------------------------------------------------------------

    # Each of these is an operation: arguments are checked when it starts, which is inside the guard.

    def _unsubscribe(self) -> Operation[None]:
        self._iteration.stop()
        yield from self._engine.unsubscribe()

    def _poll_steps(
        self, timeout: Timeout, taken: list[AcquiredBatch], *, deserialize: bool = True
    ) -> Operation[ShareRecords[K, V]]:
        timer = self._timer(timeout)
        return (yield from self._engine.poll(timer, self._take_unreached, taken, deserialize=deserialize))

    def _take_unreached(self) -> list[ConsumerRecord]:
        """Returns the records that the last `for` loop has not reached, and ends that loop."""
        unreached = self._iteration.unreached()
        self._iteration.stop()
        return unreached

    def _commit(self, timeout: Timeout) -> Operation[dict[TopicPartition, KafkaError | None]]:
        if isinstance(timeout, ConsumerRecord | ConsumerRecords):
            raise TypeError("commit() takes no records: acknowledge() each of them, and commit() sends all of that")
        return (yield from self._engine.commit(self._timer(timeout), self._iteration.unreached))

    def _client_instance_id(self, timeout: Timeout) -> Operation[str]:
        return (yield from self._engine.client_instance_id(self._timer(timeout)))

    # --- arguments, names --------------------------------------------------------------------------------------------

    def _arrow_columns(self, columns: Iterable[str] | None) -> tuple[str, ...]:
        """Returns the checked argument `columns` of `poll_arrow`. Raises StateError in explicit mode."""
        from kconsumer.arrow import choose  # imported when used

        chosen = choose(columns)
        if self._engine.explicit:
            raise StateError("poll_arrow() needs share_acknowledgement_mode='implicit'; use poll().to_arrow()")
        return chosen

    def _drop_unreached(self) -> None:
        self._iteration.stop()

    def __repr__(self) -> str:
        if self._guard.closed:
            return f"<{self._name()} closed>"
        parts = self._engine.components
        waits = "".join(f"; {wait.describe(parts.clock.now())}" for wait in parts.progress.waits())
        return f"<{self._name()} {parts.member.state.value}{waits}>"


def _acknowledger(consumer: ShareConsumerBase[Any, Any]) -> Acknowledger:
    """Returns the function that methods of records call. It keeps only a weak reference to the consumer.

    With a strong reference, a consumer that the user forgets to close would stay alive as long as one of its records.
    """
    reference = weakref.ref(consumer)

    def acknowledge(record: ShareRecord, kind: int) -> None:
        found = reference()
        if found is None:
            raise StateError("the consumer of this record does not exist any more")
        found.acknowledge(record, AcknowledgeType(kind))

    return acknowledge
