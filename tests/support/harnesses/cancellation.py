"""Cancels a coroutine at a chosen suspension point, as `Task.cancel` does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CancelledAt(Generic[T]):
    """Awaits a coroutine in the current task, and cancels this task when it is suspended for the n-th time."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], point: int) -> None:
        self.suspensions = 0  # how often the coroutine was suspended
        self._coroutine = coroutine
        self._point = point

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            try:
                future = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            self.suspensions += 1
            if self.suspensions == self._point:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield future
            except BaseException as raised:
                error = raised
            else:
                error = None


async def cancel_at(point: int, coroutine: Coroutine[Any, Any, T]) -> list[T]:
    """Run a coroutine in a task, and cancel this task at its n-th suspension.

    Returns an empty list if it was cancelled, otherwise a list of its result.
    """

    async def run() -> T:
        return await CancelledAt(coroutine, point)

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    return [] if task.cancelled() else [task.result()]
