"""AsyncEngine: an engine whose operations run in tasks of an event loop, and whose polls use the fast path."""

from __future__ import annotations

from collections.abc import Collection

from kconsumer._core.record_run import AwaitableResultError
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.aio.client_engine import AsyncClientEngine, drive
from kconsumer.aio.deserialization import AsyncDeserializers
from kconsumer.aio.driver import AsyncDriver
from kconsumer.aio.fast_path import AsyncFastPath
from kconsumer.assignors import Assignor
from kconsumer.clock import Timer
from kconsumer.config.options import ConsumerConfig
from kconsumer.deferred_calls import get_logger
from kconsumer.engine.base import ARMED, Engine
from kconsumer.engine.close_sequence import CloseSequence
from kconsumer.engine.environment import Environment
from kconsumer.engine.fast_path import COROUTINE_DESERIALIZERS
from kconsumer.engine.waiting import Operation
from kconsumer.errors import RecordDeserializationError
from kconsumer.fetching.collector import NO_LIMIT
from kconsumer.managers import FOREVER
from kconsumer.records import ConsumerRecords

log = get_logger(__name__)


class AsyncEngine(Engine, AsyncClientEngine):
    """One consumer whose methods wait in an event loop."""

    driver: AsyncDriver
    callbacks: AsyncCallbacks

    def __init__(self, config: ConsumerConfig, environment: Environment, assignors: Collection[Assignor]) -> None:
        self._error: RecordDeserializationError | None = None  # the next poll raises it
        self.deserializers = AsyncDeserializers.of(config)
        deferred = self.deserializers is not None
        super().__init__(config, environment, assignors, AsyncDriver, AsyncCallbacks, deferred=deferred)
        self.components.collector.any_awaitable = True

    def _make_fast_path(self) -> AsyncFastPath:
        self._async_path = AsyncFastPath(self.components, self.driver, self._metrics)
        return self._async_path

    async def poll_async(self, timeout_ms: float, max_records: int, max_bytes: int | None) -> ConsumerRecords:
        """Returns the result of `poll`. Suspends the calling task where it waits."""
        control = self._async_path
        if control.path.armed:
            records = await self._poll_fast_async(timeout_ms, max_records, max_bytes)
            if records is not None:
                return records
            if not self._ready_to_poll:  # another task unsubscribed
                return ConsumerRecords.EMPTY
            timeout_ms = max(0.0, timeout_ms - (self._clock.now() - control.path.last_poll))
        records = self.poll_without_wait(timeout_ms, max_records, max_bytes)
        if records is not None:
            return records
        if timeout_ms <= 0:
            return await drive(self.poll_operation(timeout_ms, max_records, max_bytes), self.driver)
        timer = Timer(self._clock, timeout_ms)
        in_flight = self._quiet and not control.arm(self._clock.now())
        while True:
            if control.path.armed:
                records = await self._poll_fast_async(timer.remaining_ms(), max_records, max_bytes)
                if records is not None:
                    return records
            steps = self._poll_in_flight if in_flight else self._poll_full
            records = await drive(steps(timer, max_records, max_bytes, control), self.driver)
            if records is not ARMED:
                return records
            in_flight = False

    async def _poll_fast_async(
        self, timeout_ms: float, max_records: int, max_bytes: int | None
    ) -> ConsumerRecords | None:
        """Returns the result of `poll` if the fast path finds it, else None. The fast path is then disarmed."""
        try:
            records = await self._async_path.poll(timeout_ms, max_records, NO_LIMIT if max_bytes is None else max_bytes)
            if self._runs_user_code and records is not None and records is not ConsumerRecords.EMPTY:
                return self._complete_fast(self._async_path, records, max_bytes)
        except BaseException:  # such as CancelledError: records that are not returned must not count as consumed
            self.rollback_last_poll()
            raise
        if records is None:
            with self.changing():  # this disarms it
                return None
        return records

    def await_deserializers(self, error: RecordDeserializationError) -> bool:
        """Await the results of the deserializers from now on, if one of them failed because it returned an awaitable.

        Returns False if `error` has another reason. A function that is not `async def` may return an awaitable, such as
        a lambda that calls a coroutine function. Only its result shows this. No record was returned then.
        """
        if not isinstance(error.__cause__, AwaitableResultError):
            return False
        self.deserializers = AsyncDeserializers.create(self._config)  # before `defer`, which an interrupt may prevent
        with self.changing():
            self.components.collector.defer()
            self._async_path.refuse(COROUTINE_DESERIALIZERS)
        return True

    async def deserialize(self, deserializers: AsyncDeserializers, records: ConsumerRecords) -> ConsumerRecords:
        """Run deserializers that are coroutine functions on the records of a poll. Returns the records.

        If one raises, returns the records before that one, and the next poll raises RecordDeserializationError. If the
        task is cancelled in a deserializer, the positions are moved back.
        """
        collector = self.components.collector
        if not collector.collected:  # such as the records of poll_arrow()
            return records
        complete, failed = 0, None
        try:
            for run in collector.collected:
                self._error = await deserializers.deserialize(run)
                self.driver.check_poll()
                if self._error is not None:
                    failed = run
                    break
                complete += 1
            with self.changing():
                records = collector.finish(complete, failed)
                self.driver.request_manager_poll()
            if not records:
                self.raise_deserialization_error()
            elif self.interceptors is not None:
                records = self.interceptors.consumed(records)
        except BaseException:  # such as CancelledError: records that are not returned must not count as consumed
            self.rollback_last_poll()
            raise
        return records

    def raise_deserialization_error(self) -> None:
        """Raise the error of the last poll's deserializers, unless the position has moved since."""
        error, self._error = self._error, None
        if error is None:
            return
        with self.lock:
            state = self.components.subscription.find(error.topic_partition)
            if state is None or state.position is None or not state.fetchable:
                return
            raised = state.position.offset == error.offset
        if raised:
            raise error

    def closing(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> Operation[None]:
        """Run the steps of CloseSequence: commit, leave the group, close the connections.

        The timer limits the total duration of the steps. Every step runs, and the first error is raised at the end. If
        an exception has interrupted an earlier change of the state, nothing is sent.
        """
        self._closing = True
        self._async_path.close()
        self.driver.close_began()
        if self.components.step.unfinished:
            self.components.release_lock()
            yield from self.driver.end_threads()
            self.driver.close_connections()
            self.ended()
            return
        closing = CloseSequence(self, self.driver, timer).run(leave_group, auto_commit=auto_commit)
        yield from self.after_callbacks(closing, timer.deadline)

    def after_callbacks(self, operation: Operation[None], deadline: float = FOREVER) -> Operation[None]:
        """Wait for rebalance callbacks that are running, at most until `deadline` (ms), and then run the operation.

        Does not wait if it is called by such a callback.
        """
        if self.callbacks.unfinished and not self.callbacks.inside:
            try:
                yield from self.callbacks.settle(deadline)
            except Exception as error:  # a poll raises it, if one waits for the callback
                log.warning("a rebalance callback failed: %s", error)
        yield from operation
