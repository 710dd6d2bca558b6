"""Runs of `kconsumer.parallel` with a ShareConsumer, whose handlers are slow and fail now and then.

A record counts as received when its first attempt begins, and as acknowledged when the library acknowledges it. It may
accept only what a handler has finished.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kconsumer import AcknowledgeType, ConsumerRecord, ShareConsumer, ShareRecord
from kconsumer.parallel import Retry
from support.simulation.scheduler import FOREVER
from support.simulation.share_journal import Key

if TYPE_CHECKING:
    from support.simulation.share_members import ShareMemberProcess

RETRY = Retry(attempts=3, backoff_s=0.2, max_backoff_s=5.0)
RUN_MS = 60_000.0  # the mean time of a run; another one follows on the same consumer
USUAL_MS, SLOW_MS = 100.0, 25_000.0  # more than the time of a lock
SLOW, FAILING = 0.01, 0.05
A = AcknowledgeType


class HandlerError(Exception):
    """The error of a handler."""


class ShareApplication:
    """The handler of one run, and what the library acknowledges meanwhile."""

    def __init__(self, member: ShareMemberProcess, consumer: ShareConsumer) -> None:
        self._member = member
        self._consumer = consumer
        self._failed: dict[Key, int] = {}  # attempts of records that are not finished
        self._finished: set[Key] = set()
        self._acknowledge = consumer.acknowledge
        vars(consumer)["acknowledge"] = self.acknowledge

    def close(self) -> None:
        """End the observation of the consumer."""
        del vars(self._consumer)["acknowledge"]

    def acknowledge(self, record: ConsumerRecord, kind: AcknowledgeType = A.ACCEPT) -> None:
        """Acknowledge a record, as the library wants to."""
        key = record.topic_partition, record.offset
        self._member.journal.now = self._member.simulation.now
        self._member.journal.check_finished(self._member.name, key, kind, finished=key in self._finished)
        self._member.journal.decide(self._member.name, key, kind)
        self._acknowledge(record, kind)

    def handle(self, record: ConsumerRecord) -> None:
        """Process a record."""
        if pause_ms := self._begin(record):
            self._member.simulation.sleep(pause_ms)
        self._end(record)

    async def handle_async(self, record: ConsumerRecord) -> None:
        """Process a record in an event loop."""
        if pause_ms := self._begin(record):
            await asyncio.sleep(pause_ms / 1000)
        self._end(record)

    def bury(self, record: ConsumerRecord, _error: BaseException) -> None:
        """Do nothing about a record whose last attempt has failed."""
        self._member.simulation.record(self._member.name, f"dead letter {record.topic_partition}@{record.offset}")

    def _begin(self, record: ConsumerRecord) -> float:
        """Note that the handler was called. Returns how long it takes (ms)."""
        member, key = self._member, (record.topic_partition, record.offset)
        assert isinstance(record, ShareRecord)
        if not self._failed.get(key):
            self._finished.discard(key)
            member.receive_one(self._consumer, record)
        if member.happens(SLOW):
            return member.draw(0, SLOW_MS)
        return member.draw(0, USUAL_MS) if member.happens(0.5) else 0.0

    def _end(self, record: ConsumerRecord) -> None:
        """Note that the handler returns, or let it fail."""
        key = record.topic_partition, record.offset
        if self._member.happens(FAILING):
            self._failed[key] = (self._failed.get(key, 0) + 1) % RETRY.attempts
            raise HandlerError
        self._failed.pop(key, None)
        self._finished.add(key)
        self._member.journal.now = self._member.simulation.now
        self._member.journal.finish(key)


def process_in_parallel(member: ShareMemberProcess, consumer: ShareConsumer) -> None:
    """Process records in parallel for a while."""
    simulation, application = member.simulation, ShareApplication(member, consumer)
    is_async = member.plan.executor == "asyncio"
    processor = simulation.share_processor(
        member.process,
        consumer,
        application.handle_async if is_async else application.handle,
        workers=member.plan.workers,
        order="none",
        executor=member.plan.executor,
        retry=RETRY,
        on_failure=application.bury,
    )
    running, process = [True], member.process

    def stop() -> None:
        if running and not process.crashed:
            processor.stop()

    simulation.scheduler.call_at(min(simulation.now + member.draw(0, 2 * RUN_MS), member.ends_ms), stop)
    summary: Any = member.call("run", FOREVER, processor.run)
    running.clear()
    application.close()
    simulation.record(member.name, f"run ended: {summary}")
