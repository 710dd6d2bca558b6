"""ShareConsumer: a member of a share group (KIP-932), whose methods block the calling thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from kconsumer._client.blocking_client import BlockingClient
from kconsumer._client.client_base import Timeout
from kconsumer._common.foreign_methods import checked
from kconsumer._core.decode import ShareRecord
from kconsumer._core.lock import Timer
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.engine.access_guard import guarded
from kconsumer.engine.environment import Environment
from kconsumer.errors import ConfigError, KafkaError
from kconsumer.listener import is_coroutine_function
from kconsumer.records import ConsumerRecords
from kconsumer.share.acknowledgements import AcquiredBatch
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.share.consumer_base import POLL_S, ShareConsumerBase, ShareRecords
from kconsumer.share.engine import ShareEngine
from kconsumer.types import K, TopicPartition, V

if TYPE_CHECKING:
    from kconsumer.arrow import RecordBatch
    from kconsumer.config.signature import Deserializer, Key, ShareKeywords, Value


class ShareConsumer(ShareConsumerBase[K, V], BlockingClient):
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

    _how_to_close = "use `with ShareConsumer(…)` or close()"

    if TYPE_CHECKING:  # the last one is for `**options` of a dict, whose keys and types checkers do not know

        @overload
        def __init__(
            self: ShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: ShareConsumer[Any, Value],
            *topics: str,
            key_deserializer: str,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: ShareConsumer[Key, Any],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: str,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: ShareConsumer[Any, Any],
            *topics: str,
            key_deserializer: Deserializer[Any] | str | None,
            value_deserializer: Deserializer[Any] | str | None,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: ShareConsumer[Any, Any],
            *topics: str,
            bootstrap_servers: Any,
            group_id: Any,
            _in_a_dict: Any,
            **options: Any,
        ) -> None: ...

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        **options: Any,
    ) -> None:
        self._set_up(ShareConsumerConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, **options), topics)

    def _create_engine(self, config: ShareConsumerConfig, group_id: str) -> ShareEngine:
        if is_coroutine_function(config.on_acknowledge):
            raise ConfigError(
                "on_acknowledge is a coroutine function, which only kconsumer.aio.AsyncShareConsumer can call"
            )
        return ShareEngine(config, Environment(), group_id, config.on_acknowledge)

    def _drop_subscription(self) -> None:
        self.unsubscribe()

    # --- subscription ------------------------------------------------------------------------------------------------

    @guarded
    def unsubscribe(self) -> None:
        """Leave the group. Records that were not acknowledged are released."""
        self._engine.run(self._unsubscribe())

    # --- reading -----------------------------------------------------------------------------------------------------

    def poll(self, timeout: Timeout = POLL_S) -> ShareRecords[K, V]:
        """Returns records that were acquired for this consumer, about `max_poll_records` of them (Java `poll`).

        Waits up to `timeout` for the first ones; the result is empty (and falsy) after that. The records are
        `ShareRecord` objects with a `delivery_count`. Raises StateError without a subscription, and in explicit mode if
        a record of the last poll is not acknowledged; WakeupError, CorruptRecordError, RecordDeserializationError, and
        group or authorization errors.
        """
        taken: list[AcquiredBatch] = []
        try:
            records = self._poll(timeout, taken)
        except BaseException:  # as after Ctrl-C: records that do not reach the caller must not be accepted
            self._engine.release(taken)
            raise
        engine = self._engine
        if engine.unreturned is not taken:  # a signal handler has polled
            engine.release(taken)
            return ConsumerRecords.EMPTY
        engine.unreturned = None
        return records

    @guarded
    def _poll(self, timeout: Timeout, taken: list[AcquiredBatch], *, deserialize: bool = True) -> ShareRecords[K, V]:
        return self._engine.run(self._poll_steps(timeout, taken, deserialize=deserialize))

    def poll_arrow(self, timeout: Timeout = POLL_S, columns: Iterable[str] | None = None) -> RecordBatch:
        """Returns the records of a `poll` as Arrow columns, in implicit mode.

        `columns` are the names of the columns to build, by default all (see `kconsumer.arrow`). Deserializers do not
        run: keys and values are bytes. Raises the errors of `poll`, ValueError for a column that does not exist, and
        StateError in explicit mode, because rows have no methods to acknowledge them.
        """
        chosen = self._arrow_columns(columns)
        taken: list[AcquiredBatch] = []
        try:
            batch = self._poll(timeout, taken, deserialize=False).to_arrow(chosen)
            empty = ConsumerRecords.EMPTY.to_arrow(chosen)
        except BaseException:  # Ctrl-C, or no memory
            self._engine.release(taken)
            raise
        engine = self._engine
        if engine.unreturned is not taken:
            engine.release(taken)
            return empty
        engine.unreturned = None  # as in `poll`
        return batch

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        """Yield records one by one, without end. With `consumer_timeout_ms`, ends if no record arrives for this time.

        A loop that stops early has received only the records that it reached. The others are released.
        """
        while self._next_batch():
            yield from cast("Iterator[ShareRecord[K, V]]", iter(self._iteration))

    def _next_batch(self) -> bool:
        """Poll until there are records. Returns False if none arrived for `consumer_timeout_ms`."""
        limit_ms = self._config.consumer_timeout_ms
        timer = Timer(self._clock, float("inf") if limit_ms is None else float(limit_ms))
        # After Ctrl-C between poll() and start(), all records would count as reached, and be accepted.
        holds = SIGNALS.hold(self._guard.end_wait)
        try:
            while True:
                records = self.poll(min(POLL_S, timer.remaining_ms() / 1000))
                if records:
                    self._iteration.start(records)
                    return True
                if timer.expired:
                    return False
        finally:
            if holds:
                SIGNALS.release()

    # --- acknowledging -----------------------------------------------------------------------------------------------

    @guarded
    def commit(self, timeout: Timeout = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for the results (Java `commitSync`).

        In implicit mode, accepts the records of the last poll first, without those that a `for` loop has not reached.
        Returns the error of each partition that had acknowledgements, or None where they succeeded. Retries retriable
        errors until the timeout; then the error of a partition is a TimeoutError.
        """
        return self._engine.run(self._commit(timeout))

    # --- telemetry ---------------------------------------------------------------------------------------------------

    @guarded
    def client_instance_id(self, timeout: Timeout = None) -> str:
        """Returns the id that a broker has assigned to this client for telemetry (Java `clientInstanceId`, KIP-714).

        Waits until a broker has done so. The text is in the form of Java's `Uuid`, as in logs of brokers. Raises
        StateError if `enable_metrics_push` is False or telemetry has ended, UnsupportedVersionError if the brokers have
        no plugin for client telemetry, and TimeoutError.
        """
        return self._engine.run(self._client_instance_id(timeout))

    # --- ending ------------------------------------------------------------------------------------------------------

    @checked
    def close(self, timeout: Timeout = 30.0) -> None:
        """Send all acknowledgements, end the share sessions, leave the group, and close the connections.

        Records that are not acknowledged are released, and the group delivers them again. In implicit mode these are
        the records of the last poll, unless `commit` has accepted them. All steps run, and end within `timeout`. The
        first error is raised at the end. Further calls do nothing.
        """
        self._close_once(timeout, self._engine.close)
