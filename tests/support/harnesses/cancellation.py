"""Cancels a task at one chosen suspension, and checks the records that an AsyncConsumer returns.

A suspension is a point at which a coroutine yields to the event loop. There are two ways to cancel a task there. EARLY:
the task is cancelled before what it waits for. LATE: what it waits for has happened, and the task was cancelled before
it continued.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Coroutine, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.aio import AsyncConsumer

T = TypeVar("T")
DEADLINE_S = 20
MAX_POINTS = 40
MIN_REPETITIONS, MAX_REPETITIONS = 5, 40  # of the first two suspensions
"""Calls with more suspensions are cancelled at the first ones only. A suspension is a change that the network thread
has notified, so their number depends on time."""


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


class Cancellations:
    """Cancels one call after the other, each at a later suspension."""

    def __init__(self, moment: Moment) -> None:
        self.cancelled: list[bool] = []  # whether each of the calls was cancelled
        self._moment = moment
        self._point = 0

    def __iter__(self) -> Iterator[None]:
        """Yield until a call has ended before the suspension at which it would have been cancelled.

        The caller runs one call each time. At least one call must be cancelled. The first suspensions are repeated,
        because a call may end without a suspension if the network thread was fast.
        """
        for repetition in range(MAX_REPETITIONS):
            if repetition >= MIN_REPETITIONS and any(self.cancelled):
                break
            self._point = 1 + repetition % 2
            yield
        for self._point in range(2, MAX_POINTS + 1):
            yield
            if self._point > 2 and not self.cancelled[-1]:
                break
        assert any(self.cancelled)

    async def run(self, call: Coroutine[Any, Any, T]) -> T | None:
        """Run a call, and cancel it. Returns its result, or None if it was cancelled."""
        hit, result = await cancelled_at(call, self._point, self._moment)
        self.cancelled.append(hit)
        return result


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
