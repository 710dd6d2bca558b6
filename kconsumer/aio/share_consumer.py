"""AsyncShareConsumer: a member of a share group (KIP-932). The methods that wait are coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from kconsumer._client.client_base import Timeout
from kconsumer._common.foreign_methods import checked
from kconsumer._core.decode import ShareRecord
from kconsumer._core.lock import Timer
from kconsumer.aio.awaitable_client import AwaitableClient
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.aio.client_engine import AsyncClientEngine
from kconsumer.aio.deserialization import AsyncDeserializers
from kconsumer.aio.driver import AsyncDriver
from kconsumer.aio.turn import Turn
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.environment import Environment
from kconsumer.engine.waiting import Operation
from kconsumer.errors import KafkaError
from kconsumer.share.acknowledgements import AcquiredBatch
from kconsumer.share.collector import Deserialize
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.share.consumer_base import POLL_S, ShareConsumerBase, ShareRecords
from kconsumer.share.engine import AcknowledgeCallback, ShareEngine
from kconsumer.types import K, TopicPartition, V

if TYPE_CHECKING:
    from kconsumer.arrow import RecordBatch
    from kconsumer.config.signature import AsyncDeserializer, Deserializer, Key, ShareKeywords, Value


class AsyncShareEngine(ShareEngine, AsyncClientEngine):
    """One share consumer whose methods wait in an event loop."""

    driver: AsyncDriver
    callbacks: AsyncCallbacks

    def __init__(
        self,
        config: ConsumerConfig,
        environment: Environment,
        group_id: str,
        on_acknowledge: AcknowledgeCallback | None,
    ) -> None:
        super().__init__(config, environment, group_id, on_acknowledge, AsyncDriver, AsyncCallbacks)
        self.turn = Turn(self.components.clock, self.driver)

    def _deserializers(self, config: ConsumerConfig) -> Deserialize | None:
        found = AsyncDeserializers.of(config)
        return None if found is None else lambda run: found.operation(self.turn, run)

    def _check_not_collecting(self) -> None:
        """Do nothing: while a deserializer waits, other tasks may commit. The records of the poll are left out."""

    def _run_callbacks_now(self) -> None:
        """Do nothing: callbacks may have to be awaited. A later poll, commit or close runs them."""

    def closing(self, timer: Timer) -> Operation[None]:
        """Send acknowledgements, end the share sessions, leave the group, and close the connections.

        Each step runs, all of them within the timer. The first error is raised at the end.
        """
        self._leaving = True
        self.driver.close_began()
        yield from self._close_steps(timer, interrupted=self._release_interrupted())


class AsyncShareConsumer(ShareConsumerBase[K, V], AwaitableClient):
    """The `ShareConsumer` for asyncio: the same options, results and errors. Methods that wait are coroutines.

    It subscribes to the `topics`, if there are any. Heartbeats are sent by a thread, also while the event loop is
    blocked. The callback `on_acknowledge` and deserializers may be coroutine functions. Tasks of a loop may call
    methods at the same time, but only one of them may `poll`. If a poll is cancelled, the group delivers its records
    again. Timeouts are float seconds or `timedelta`; None means `default_api_timeout_ms`.

    Raises ConfigError for an option that is unknown, out of range, or has no meaning for a share group.
    """

    _engine: AsyncShareEngine
    _how_to_close = "use `async with AsyncShareConsumer(…)` or await close()"

    if TYPE_CHECKING:  # the last one is for `**options` of a dict, whose keys and types checkers do not know

        @overload
        def __init__(
            self: AsyncShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: AsyncDeserializer[Key] | None = ...,
            value_deserializer: AsyncDeserializer[Value] | None = ...,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: AsyncDeserializer[Value],
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: AsyncDeserializer[Key],
            value_deserializer: Deserializer[Value],
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Any, Value],
            *topics: str,
            key_deserializer: str,
            value_deserializer: Deserializer[Value] | None = ...,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Key, Any],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = ...,
            value_deserializer: str,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Any, Any],
            *topics: str,
            key_deserializer: Deserializer[Any] | str | None,
            value_deserializer: Deserializer[Any] | str | None,
            **options: Unpack[ShareKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncShareConsumer[Any, Any],
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

    def _create_engine(self, config: ShareConsumerConfig, group_id: str) -> AsyncShareEngine:
        return AsyncShareEngine(config, Environment(), group_id, config.on_acknowledge)

    # --- subscription ------------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Leave the group. Records that were not acknowledged are released."""
        await self._finish(self._unsubscribe())

    # --- reading -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: Timeout = POLL_S) -> ShareRecords[K, V]:
        """Returns records that were acquired for this consumer, about `max_poll_records` of them (Java `poll`).

        Waits up to `timeout` for the first ones; the result is empty (and falsy) after that. The records are
        `ShareRecord` objects with a `delivery_count`. Raises StateError without a subscription, and in explicit mode if
        a record of the last poll is not acknowledged; WakeupError, CorruptRecordError, RecordDeserializationError, and
        group or authorization errors.
        """
        taken: list[AcquiredBatch] = []
        try:
            records = await self._poll(timeout, taken)
        except BaseException:  # as after Ctrl-C: records that do not reach the caller must not be accepted
            self._engine.release(taken)
            raise
        self._engine.unreturned = None  # as in ShareConsumer.poll
        return records

    async def _poll(
        self, timeout: Timeout, taken: list[AcquiredBatch], *, deserialize: bool = True
    ) -> ShareRecords[K, V]:
        self._check_poll()
        self._polling = True
        try:
            await self._wait_for_turn()
            records = await self._engine.run_async(self._poll_steps(timeout, taken, deserialize=deserialize))
            if not records:
                await self._check_open()
            return records
        finally:
            self._polling = False

    async def poll_arrow(self, timeout: Timeout = POLL_S, columns: Iterable[str] | None = None) -> RecordBatch:
        """Returns the records of a `poll` as Arrow columns, in implicit mode.

        `columns` are the names of the columns to build, by default all (see `kconsumer.arrow`). Deserializers do not
        run: keys and values are bytes. Raises the errors of `poll`, ValueError for a column that does not exist, and
        StateError in explicit mode, because rows have no methods to acknowledge them.
        """
        chosen = self._arrow_columns(columns)
        taken: list[AcquiredBatch] = []
        try:
            batch = (await self._poll(timeout, taken, deserialize=False)).to_arrow(chosen)
        except BaseException:  # a cancellation, or no memory
            self._engine.release(taken)
            raise
        self._engine.unreturned = None  # as in ShareConsumer.poll
        return batch

    async def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        """Yield records one by one, without end. With `consumer_timeout_ms`, ends if no record arrives for this time.

        A loop that stops early has received only the records that it reached. The others are released.
        """
        while await self._next_batch():
            for record in self._iteration:
                yield cast("ShareRecord[K, V]", record)

    async def _next_batch(self) -> bool:
        """Poll until there are records. Returns False if none arrived for `consumer_timeout_ms`."""
        limit_ms = self._config.consumer_timeout_ms
        timer = Timer(self._clock, float("inf") if limit_ms is None else float(limit_ms))
        while True:
            records = await self.poll(min(POLL_S, timer.remaining_ms() / 1000))
            if records:
                self._iteration.start(records)
                return True
            if timer.expired:
                return False

    # --- acknowledging -----------------------------------------------------------------------------------------------

    @checked
    async def commit(self, timeout: Timeout = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for the results (Java `commitSync`).

        In implicit mode, accepts the records of the last poll first, without those that a `for` loop has not reached.
        Returns the error of each partition that had acknowledgements, or None where they succeeded. Retries retriable
        errors until the timeout; then the error of a partition is a TimeoutError.
        """
        return await self._run(self._commit(timeout))

    # --- telemetry ---------------------------------------------------------------------------------------------------

    async def client_instance_id(self, timeout: Timeout = None) -> str:
        """Returns the id that a broker has assigned to this client for telemetry (Java `clientInstanceId`, KIP-714).

        Waits until a broker has done so. The text is in the form of Java's `Uuid`, as in logs of brokers. Raises
        StateError if `enable_metrics_push` is False or telemetry has ended, UnsupportedVersionError if the brokers have
        no plugin for client telemetry, and TimeoutError.
        """
        return await self._run(self._client_instance_id(timeout))

    # --- ending ------------------------------------------------------------------------------------------------------

    @checked
    async def close(self, timeout: Timeout = 30.0) -> None:
        """Send all acknowledgements, end the share sessions, leave the group, and close the connections.

        Records that are not acknowledged are released, and the group delivers them again. In implicit mode these are
        the records of the last poll, unless `commit` has accepted them. All steps run, and end within `timeout`. The
        first error is raised at the end. Further calls do nothing.
        """
        await self._close_once(timeout, self._engine.closing)
