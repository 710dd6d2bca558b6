"""The program PARALLEL: runs of `kconsumer.parallel` with a handler that is slow and fails now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from kconsumer import Consumer, ConsumerRecord
from kconsumer.parallel import Batch, PartialBatchError, Retry
from kconsumer.parallel.handover import EXIT_TIMEOUT_S
from kconsumer.parallel.run_state import MIN_COMMIT_TIMEOUT_S
from support.simulation.handler_journal import Running
from support.simulation.scheduler import FOREVER

if TYPE_CHECKING:
    from support.simulation.members import MemberProcess

RETRY = Retry(attempts=3, backoff_s=0.2, max_backoff_s=5.0)
ALWAYS_FAILING = 97  # one of this many records always fails, and becomes a dead letter
FAST_MS, USUAL_MS = 5.0, 100.0
MAX_CALL_MS = 15_000.0  # what one call on the consumer may take in addition, after `stop`


class HandlerError(Exception):
    """The error of a handler."""


class DeadLetterError(Exception):
    """The error of `on_failure`, which ends the run."""


class Application:
    """The handler, and `on_failure`, of one run."""

    def __init__(self, member: MemberProcess) -> None:
        self._member = member
        self.workers = member.plan.workers
        self._journal = member.journal

    def handle(self, record: ConsumerRecord) -> None:
        """Process a record."""
        running, pause_ms = self._begin(record)
        if pause_ms:
            self._member.simulation.sleep(pause_ms)
        self._end(running)

    async def handle_async(self, record: ConsumerRecord) -> None:
        """Process a record in an event loop."""
        running, pause_ms = self._begin(record)
        if pause_ms:
            try:
                await asyncio.sleep(pause_ms / 1000)
            except asyncio.CancelledError:  # the run ends, and has waited
                self._member.journal.handlers.abort(running)
                raise
        self._end(running)

    def handle_batch(self, records: list[ConsumerRecord]) -> None:
        """Process the records of a batch one after the other."""
        failed: dict[int, BaseException] = {}
        for at, record in self._each(records, failed):
            try:
                self.handle(record)
            except HandlerError as error:
                failed[at] = error
        if failed:
            raise PartialBatchError(failed)

    async def handle_batch_async(self, records: list[ConsumerRecord]) -> None:
        """The same, in an event loop."""
        failed: dict[int, BaseException] = {}
        for at, record in self._each(records, failed):
            try:
                await self.handle_async(record)
            except HandlerError as error:
                failed[at] = error
        if failed:
            raise PartialBatchError(failed)

    def _each(
        self, records: list[ConsumerRecord], failed: dict[int, BaseException]
    ) -> Iterator[tuple[int, ConsumerRecord]]:
        """Yield each record. Those that follow a failed one in its order fail, too, and are left out."""
        held: set[Hashable] = set()
        for at, record in enumerate(records):
            shard = {"partition": "all", "key": record.key, "none": None}[self.workers.order]
            if shard is not None and (record.topic_partition, shard) in held:
                failed[at] = HandlerError()
                self._journal.handlers.postpone(self._member.name, record)
                continue
            yield at, record
            if at in failed:
                held.add((record.topic_partition, shard))

    def bury(self, record: ConsumerRecord, error: BaseException) -> None:
        """Write a dead letter, which sometimes fails."""
        assert isinstance(error, HandlerError)
        if self._member.chance(0.1) and not self._member.catching_up:
            self._journal.handlers.fail_run(self._member.name)
            raise DeadLetterError
        self._journal.now = self._member.simulation.now
        self._member.simulation.record(self._member.name, f"dead letter {record.topic_partition}@{record.offset}")
        self._journal.handlers.bury(self._member.name, record, RETRY.attempts)

    def _begin(self, record: ConsumerRecord) -> tuple[Running, float]:
        """Note that the handler was called. Returns the call and how long it takes (ms)."""
        member = self._member
        self._journal.now = member.simulation.now
        member.simulation.record(member.name, f"starts {record.topic_partition}@{record.offset}")
        running = self._journal.handlers.start(member.name, record)
        if member.chance(0.5):
            return running, 0.0
        if member.catching_up:
            return running, member.draw(0, FAST_MS)
        slow = member.chance(self.workers.slow)
        return running, member.draw(0, self.workers.slow_ms if slow else USUAL_MS)

    def _end(self, running: Running) -> None:
        """Note that the handler returns, or let it fail."""
        member = self._member
        self._journal.now = member.simulation.now
        if running.offset % ALWAYS_FAILING == 0 or member.chance(self.workers.failing):
            self._journal.handlers.fail(running, RETRY.attempts)
            raise HandlerError
        member.simulation.record(member.name, f"finishes {running.tp}@{running.offset}")
        self._journal.handlers.finish(running)


def process_in_parallel(member: MemberProcess, consumer: Consumer) -> None:
    """Process records in parallel for a while."""
    simulation, workers, application = member.simulation, member.plan.workers, Application(member)
    is_async = member.plan.engine == "asyncio"
    options = {} if is_async else {"executor": workers.executor}  # an AsyncConsumer has its own event loop
    awaited = is_async or workers.executor == "asyncio"
    if workers.batch is None:
        handler: object = application.handle_async if awaited else application.handle
    else:
        handler = application.handle_batch_async if awaited else application.handle_batch
    processor = simulation.processor(
        member.process,
        consumer,
        handler,
        workers=workers.number,
        order=workers.order,
        max_in_flight=workers.max_in_flight,
        retry=RETRY,
        on_failure=application.bury,
        on_revoke=workers.on_revoke,
        drain_timeout_s=workers.drain_timeout_s,
        commit_interval_s=workers.commit_interval_s,
        batch=workers.batch and Batch(*workers.batch),
        **options,
    )
    stopped: list[tuple[float, float]] = []  # when the run was stopped, and the time in callbacks until then
    running, process = [True], member.process

    def stop() -> None:
        if running and not process.crashed:
            simulation.record(member.name, "stops its run")
            stopped.append((simulation.now, member.callbacks_ms))
            processor.stop()

    until = min(simulation.now + simulation.random.expovariate(1 / workers.run_ms), member.ends_ms)
    simulation.scheduler.call_at(until, stop)
    member.journal.now = simulation.now
    member.journal.handlers.begin_run(member.name, workers, consumer.assignment())
    try:
        summary = member.call("run", FOREVER, processor.run)
    except DeadLetterError:
        summary = None
        simulation.record(member.name, "run raised the error of a dead letter")
    running.clear()
    member.journal.now = now = simulation.now
    member.journal.handlers.end_run(member.name)
    if summary is not None:
        simulation.record(member.name, f"run ended: {summary.processed} processed, {summary.abandoned} abandoned")
    for began, callbacks_ms in stopped:
        limit_ms = 1000 * (2 * workers.drain_timeout_s + EXIT_TIMEOUT_S) + MAX_CALL_MS
        limit_ms += 2000 * max(MIN_COMMIT_TIMEOUT_S, workers.drain_timeout_s)
        took_ms = now - began - (member.callbacks_ms - callbacks_ms) - process.suspended_ms(began, now)
        member.journal.check_call(member.name, "stop", took_ms, limit_ms)
