"""ShareConsumer: a member of a share group (KIP-932), whose methods block the calling thread.

Decides which arguments are valid, and which records a `for` loop has reached. `ShareEngine` does the rest.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kconsumer._core.record import ConsumerRecord
from kconsumer._core.share_record import ShareRecord
from kconsumer.clock import Timer
from kconsumer.consumer_base import Timeout, timeout_in_ms, topic_names
from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.access_guard import AccessGuard, guarded
from kconsumer.engine.environment import Environment
from kconsumer.errors import KafkaError, StateError
from kconsumer.records import ConsumerRecords
from kconsumer.share.acknowledgements import AcquiredBatch
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.share.engine import ShareEngine
from kconsumer.share.types import AcknowledgeType
from kconsumer.types import MetricName, TopicPartition

if TYPE_CHECKING:
    from kconsumer.arrow import RecordBatch
    from kconsumer.config.signature import ConsumerOptions

POLL_S = 1.0


class ShareConsumer:
    """A member of a share group, with the semantics of Java's `KafkaShareConsumer` of Kafka 4.4.

    The members of a share group share the records of a topic, and not its partitions: there can be more members than
    partitions. Each record is locked for the member that receives it, until the member acknowledges it, or until the
    acquisition lock times out. Then the group delivers it again.

    With `share_acknowledgement_mode="implicit"`, the next `poll` or `commit` accepts the records of the last poll, and
    `close` releases them. With "explicit", each record must be acknowledged, with `acknowledge` or a method of the
    record, before the next poll. Use a consumer from one thread at a time. Only `wakeup` may be called from another
    thread. Timeouts are float seconds or `timedelta`; None means `default_api_timeout_ms`.

    Raises ConfigError for an option that is unknown, out of range, or has no meaning for a share group.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._set_up(ShareConsumerConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, **options), topics)

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any], *topics: str) -> Self:
        """Create a consumer from a mapping of options.

        Keys are dotted Java names or snake_case names. Values are typed or text.
        """
        consumer = cls.__new__(cls)
        consumer._set_up(ShareConsumerConfig(**mapping), topics)
        return consumer

    def _set_up(self, config: ShareConsumerConfig, topics: Sequence[str]) -> None:
        assert config.group_id is not None
        self._config = config
        self._engine = ShareEngine(config, Environment(), config.group_id, config.on_acknowledge)
        parts = self._engine.components
        self._clock = parts.clock
        self._unreached: Iterator[ConsumerRecord] = iter(())
        self._closing = False
        self._guard = AccessGuard(parts.step, parts.end_wait)
        parts.collector.acknowledger = _acknowledger(self)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:  # the user does not get this consumer, and cannot close it
                self._guard.closed = True
                self._engine.abandon()
                raise

    # --- subscription ------------------------------------------------------------------------------------------------

    @guarded
    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics, in place of earlier ones. An empty list unsubscribes. The next poll joins."""
        names = topic_names(topics)
        if names:
            self._engine.subscribe(names)
        else:
            self._engine.run(self._engine.unsubscribe())

    @guarded
    def unsubscribe(self) -> None:
        """Leave the group. Records that were not acknowledged are released."""
        self._unreached = iter(())
        self._engine.run(self._engine.unsubscribe())

    @guarded
    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics."""
        subscription = self._engine.components.subscription
        with self._engine.components.lock:
            return subscription.subscribed_topics() if subscription.is_group_managed else frozenset()

    # --- reading -----------------------------------------------------------------------------------------------------

    def poll(self, timeout: Timeout = POLL_S) -> ConsumerRecords:
        """Returns records that were acquired for this consumer, about `max_poll_records` of them (Java `poll`).

        Waits up to `timeout` for the first ones; the result is empty (and falsy) after that. The records are
        `ShareRecord` objects with a `delivery_count`. Raises StateError without a subscription, and in explicit mode if
        a record of the last poll is not acknowledged; WakeupError, CorruptRecordError, RecordDeserializationError, and
        group or authorization errors.
        """
        taken: list[AcquiredBatch] = []
        try:
            return self._poll(timeout, taken)
        except BaseException:  # as after Ctrl-C: records that do not reach the caller must not be accepted
            self._engine.release(taken)
            raise

    @guarded
    def _poll(self, timeout: Timeout, taken: list[AcquiredBatch], *, deserialize: bool = True) -> ConsumerRecords:
        timer, unreached = self._timer(timeout), self._take_unreached()
        return self._engine.run(self._engine.poll(timer, unreached, taken, deserialize=deserialize))

    def poll_arrow(self, timeout: Timeout = POLL_S, columns: Iterable[str] | None = None) -> RecordBatch:
        """Returns the records of a `poll` as Arrow columns, in implicit mode.

        `columns` are the names of the columns to build, by default all (see `kconsumer.arrow`). Deserializers do not
        run: keys and values are bytes. Raises the errors of `poll`, ValueError for a column that does not exist, and
        StateError in explicit mode, because rows have no methods to acknowledge them.
        """
        from kconsumer.arrow import choose  # imported when used

        chosen = choose(columns)
        if self._engine.explicit:
            raise StateError("poll_arrow() needs share_acknowledgement_mode='implicit'; use poll().to_arrow()")
        taken: list[AcquiredBatch] = []
        try:
            return self._poll(timeout, taken, deserialize=False).to_arrow(chosen)
        except BaseException:  # Ctrl-C, or no memory
            self._engine.release(taken)
            raise

    def __iter__(self) -> Iterator[ShareRecord]:
        """Yield records one by one, without end. With `consumer_timeout_ms`, ends if no record arrives for this time.

        A loop that stops early has received only the records that it reached. The others are released.
        """
        limit_ms = self._config.consumer_timeout_ms
        timer = Timer(self._clock, float("inf") if limit_ms is None else float(limit_ms))
        while not timer.expired:
            unreached = self._next_batch(min(POLL_S, timer.remaining_ms() / 1000))
            for record in unreached:
                assert isinstance(record, ShareRecord)
                yield record
                timer = Timer(self._clock, float("inf") if limit_ms is None else float(limit_ms))

    def _next_batch(self, timeout: float) -> Iterator[ConsumerRecord]:
        """Returns the records of a poll, as those that the loop has not reached."""
        # After Ctrl-C between the poll and the assignment, all records would count as reached, and be accepted.
        holds = SIGNALS.hold(self._guard.end_wait)
        try:
            self._unreached = iter(self.poll(timeout))
            return self._unreached
        finally:
            if holds:
                SIGNALS.release()

    def _take_unreached(self) -> list[ShareRecord]:
        """Returns the records that the last `for` loop has not reached, and ends that loop."""
        left, self._unreached = self._unreached, iter(())
        return [record for record in left if isinstance(record, ShareRecord)]

    # --- acknowledging -----------------------------------------------------------------------------------------------

    @guarded
    def acknowledge(self, record: ConsumerRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last poll (Java `acknowledge`). The next `poll` or `commit` sends it.

        Raises StateError in implicit mode, and if the record is not one of the last poll, or if its acknowledgement was
        sent already.
        """
        self._engine.acknowledge(record, AcknowledgeType(type))

    @guarded
    def commit(self, timeout: Timeout = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for the results (Java `commitSync`).

        In implicit mode, accepts the records of the last poll first, without those that a `for` loop has not reached.
        Returns the error of each partition that had acknowledgements, or None where they succeeded. Retries retriable
        errors until the timeout; then the error of a partition is a TimeoutError.
        """
        return self._engine.run(self._engine.commit(self._timer(timeout), self._peek_unreached()))

    @guarded
    def commit_async(self) -> None:
        """Send all acknowledgements without waiting (Java `commitAsync`). `on_acknowledge` receives the results."""
        self._engine.commit_async(self._peek_unreached())

    def _peek_unreached(self) -> list[ShareRecord]:
        """Returns the records that the running `for` loop has not reached. The loop continues with them."""
        left = self._take_unreached()
        self._unreached = iter(left)
        return left

    @guarded
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Returns how long received records are locked (ms), or None before the first response of a broker."""
        with self._engine.components.lock:
            return self._engine.components.fetch.lock_timeout_ms

    # --- metrics -----------------------------------------------------------------------------------------------------

    @guarded
    def metrics(self) -> dict[MetricName, float]:
        """Returns all metrics, under the names and groups of the Java client."""
        return self._engine.metrics()

    @guarded
    def client_instance_id(self, timeout: Timeout = None) -> str:
        """Raise StateError, because without client telemetry there is no client instance id (KIP-714)."""
        raise StateError("client telemetry is not part of this version, so there is no client instance id")

    # --- ending ------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the running blocking call raise WakeupError. If none is running, the next one raises it.

        Any thread or signal handler may call this.
        """
        self._engine.driver.wakeup()

    def close(self, timeout: Timeout = 30.0) -> None:
        """Send all acknowledgements, end the share sessions, leave the group, and close the connections.

        Records that are not acknowledged are released, and the group delivers them again. In implicit mode these are
        the records of the last poll, unless `commit` has accepted them. All steps run, and end within `timeout`. The
        first error is raised at the end. Further calls do nothing.
        """
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
                self._unreached = iter(())
                self._engine.close(timer)
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
        """Close the consumer. If the body raised, an error of `close` is added to that error as a note."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except KafkaError as close_error:
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
            message = f"unclosed {self._name()}; use `with ShareConsumer(…)` or close()"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
        finally:  # a filter may turn the warning into an exception
            self._engine.abandon()

    def _timer(self, timeout: Timeout) -> Timer:
        return Timer(self._clock, timeout_in_ms(timeout, self._config.default_api_timeout_ms))

    def _name(self) -> str:
        return f"<ShareConsumer {self._config.client_id!r} group={self._config.group_id!r}>"

    def __repr__(self) -> str:
        state = "closed" if self._guard.closed else self._engine.components.member.state.value
        return f"{self._name()[:-1]} {state}>"


def _acknowledger(consumer: ShareConsumer) -> Any:
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
