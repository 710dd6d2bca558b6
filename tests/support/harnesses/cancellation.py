"""Cancels a task at one chosen suspension, and checks the records that an AsyncConsumer returns.

A suspension is a point at which a coroutine yields to the event loop. There are two ways to cancel a task there. EARLY:
the task is cancelled before what it waits for. LATE: what it waits for has happened, and the task was cancelled before
it continued.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.aio import AsyncConsumer

T = TypeVar("T")
DEADLINE_S = 20


class Moment(enum.Enum):
    """When the task is cancelled at a suspension."""

    EARLY = "early"
    LATE = "late"


class CancelledAt(Generic[T]):
    """An awaitable that runs a coroutine, and cancels it at its suspension number `point`, counted from 1."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], point: int, moment: Moment = Moment.EARLY) -> None:
        self._coroutine = coroutine
        self._point = point
        self._moment = moment
        self.suspensions = 0  # how often the coroutine was suspended

    def __await__(self) -> Generator[Any, Any, T]:
        iterator = self._coroutine.__await__()
        raised: BaseException | None = None
        while True:
            try:
                waits_for = next(iterator) if raised is None else iterator.throw(raised)
            except StopIteration as end:
                result: T = end.value
                return result
            self.suspensions += 1
            raised = None
            task = asyncio.current_task()
            assert task is not None
            if self.suspensions == self._point and self._moment is Moment.EARLY:
                task.cancel()
            try:
                yield waits_for
            except BaseException as error:
                raised = error
            else:
                if self.suspensions == self._point and self._moment is Moment.LATE:
                    raised = asyncio.CancelledError()


async def cancelled_at(coroutine: Coroutine[Any, Any, T], point: int, moment: Moment) -> tuple[bool, T | None]:
    """Run a coroutine in a task, and cancel it at a suspension. Returns whether it was cancelled, and its result."""
    running = CancelledAt(coroutine, point, moment)

    async def run() -> T:
        return await running

    try:
        result = await asyncio.create_task(run())
    except asyncio.CancelledError:
        assert running.suspensions >= point
        return True, None
    assert running.suspensions < point, "the coroutine has swallowed the cancellation"
    return False, result


async def cancel_at(point: int, coroutine: Coroutine[Any, Any, T]) -> list[T]:
    """Run a coroutine in a task, and cancel this task at its n-th suspension.

    Returns an empty list if it was cancelled, otherwise a list of its result.
    """

    async def run() -> T:
        return await CancelledAt(coroutine, point)

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    return [] if task.cancelled() else [task.result()]


class Journal:
    """Checks that each record is the next one of its partition."""

    def __init__(self) -> None:
        self.following: dict[TopicPartition, int] = {}

    def take(self, records: Iterable[ConsumerRecord]) -> int:
        """Check these records. Returns how many there are."""
        count = 0
        for record in records:
            tp = record.topic_partition
            expected = self.following.get(tp, 0)
            assert expected == record.offset, f"{tp}: {record.offset} was returned, but {expected} is next"
            self.following[tp] = record.offset + 1
            count += 1
        return count

    async def read(self, consumer: AsyncConsumer, count: int) -> None:
        """Poll until this many records were returned."""
        deadline = time.monotonic() + DEADLINE_S
        while count > 0:
            assert time.monotonic() < deadline, consumer.partition_states()
            count -= self.take(await consumer.poll(0.2, max_records=count))

    async def check_positions(self, consumer: AsyncConsumer) -> None:
        """Check that the positions are those of the next records."""
        positions = {tp: await consumer.position(tp) for tp in self.following}
        assert self.following == positions
