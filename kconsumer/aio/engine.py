"""AsyncEngine: an engine whose operations run in tasks of an event loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Timer
from kconsumer._internal.managers import FOREVER
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.aio.client_engine import AsyncClientEngine, drive
from kconsumer.aio.deserialization import AsyncDeserializers
from kconsumer.aio.driver import AsyncDriver
from kconsumer.aio.turn import Turn
from kconsumer.assignors import Assignor
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.base import Engine
from kconsumer.engine.close_sequence import CloseSequence
from kconsumer.engine.environment import Environment
from kconsumer.engine.waiting import Operation
from kconsumer.errors import RecordDeserializationError
from kconsumer.records import ConsumerRecords

if TYPE_CHECKING:
    from kconsumer._core.decode import RecordRun

log = get_logger(__name__)


class AsyncEngine(Engine, AsyncClientEngine):
    """One consumer whose methods wait in an event loop."""

    driver: AsyncDriver
    callbacks: AsyncCallbacks

    def __init__(self, config: ConsumerConfig, environment: Environment, assignors: Collection[Assignor]) -> None:
        self._error: RecordDeserializationError | None = None  # the next poll raises it
        self._error_at = -1  # the position of the partition then: its record, or before dropped or missing ones
        self._deserializers = AsyncDeserializers.of(config)
        deferred = self._deserializers is not None
        super().__init__(config, environment, assignors, AsyncDriver, AsyncCallbacks, deferred=deferred)
        self.turn = Turn(self._clock, self.driver)

    async def poll_async(self, timeout_ms: float, max_records: int, max_bytes: int | None) -> ConsumerRecords:
        """Returns the result of `poll`. Suspends the calling task where it waits, and while deserializers run.

        If a deserializer raises, returns the records before that one, and the next poll raises
        RecordDeserializationError. If the task is cancelled in a deserializer, the positions are moved back. The caller
        ends as `AsyncConsumer.poll` does.
        """
        records = await self._take_async(timeout_ms, max_records, max_bytes)
        if not self.components.collector.collected:  # no deserializers, or poll_arrow()
            return records
        return await self._deserialize_collected()

    async def _take_async(self, timeout_ms: float, max_records: int, max_bytes: int | None) -> ConsumerRecords:
        """Returns the records of a poll, before deserializers run."""
        records = self.poll_without_wait(timeout_ms, max_records, max_bytes)
        if records is None:
            records = await drive(self.poll_operation(timeout_ms, max_records, max_bytes), self.driver)
        return records

    async def _deserialize_collected(self) -> ConsumerRecords:
        """Run deserializers and interceptors on the records that `Collector.collect` has taken. Returns their
        results."""
        collector = self.components.collector
        try:
            complete, failed = await self._deserialize(collector.collected)
            with self.changing():
                records = collector.finish(complete, failed)
                self.delivery.version = self.lock.version
                self.driver.request_manager_poll()
            return self._consumed(records)
        except BaseException:  # such as CancelledError: records that are not returned must not count as consumed
            self.rollback_open()
            raise

    async def _deserialize(self, runs: Sequence[RecordRun]) -> tuple[int, RecordRun | None]:
        """Run the deserializers on each run, until one fails. Other tasks may run meanwhile.

        Returns the number of complete runs, and the next run if it was cut off before the record that failed.
        """
        assert self._deserializers is not None
        for index, run in enumerate(runs):
            self._error = await self._deserializers.deserialize(run, self.turn)
            self.driver.check_poll()
            if self._error is not None:
                self._error_at = run.next_offset
                return index, run
        return len(runs), None

    def _consumed(self, records: ConsumerRecords) -> ConsumerRecords:
        """Run interceptors. Without records, raises the error of the deserializers, if there is one."""
        if not records:
            self.raise_deserialization_error()
            return records
        return self._intercepted(records)

    def raise_deserialization_error(self) -> None:
        """Raise the error of the last poll's deserializers, unless the position has moved since."""
        error, self._error = self._error, None
        if error is None:
            return
        with self.lock:
            state = self.components.assignment.find(error.topic_partition)
            if state is None or state.position is None or not state.fetchable:
                return
            raised = state.position.offset == self._error_at
        if raised:
            raise error

    def closing(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> Operation[None]:
        """Run the steps of CloseSequence: commit, leave the group, close the connections.

        The timer limits the total duration of the steps. Every step runs, and the first error is raised at the end. If
        an exception has interrupted an earlier change of the state, nothing is sent.
        """
        self._closing = True
        self.components.fetch.continue_to(0.0)
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
