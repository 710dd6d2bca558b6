"""AsyncProcessor: a run with an AsyncConsumer. It polls in the calling task; handlers run in tasks of the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Unpack

from kconsumer.aio import AsyncConsumer
from kconsumer.parallel.attempt import Executor
from kconsumer.parallel.checks import check_config
from kconsumer.parallel.concurrency import Concurrency, Condition
from kconsumer.parallel.event_loop_executor import EventLoopExecutor
from kconsumer.parallel.flows import await_flow
from kconsumer.parallel.handover import Handover
from kconsumer.parallel.processor import ProcessorBase
from kconsumer.parallel.run_state import RunState
from kconsumer.parallel.settings import Handler, Options, Settings, Summary
from kconsumer.parallel.work_queue import WorkQueue
from kconsumer.types import TopicPartition


class LoopCondition:
    """A condition for which tasks of an event loop wait by `changed`. Its notifications come from the same loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Raise an error: a thread that waits would block the event loop."""
        raise RuntimeError("a run in an event loop must await")

    def notify(self, n: int = 1) -> None:
        """End all waits."""
        self.changed.set()

    notify_all = notify


class LoopConcurrency(Concurrency):
    """What a run in an event loop uses."""

    def condition(self, lock: Any) -> Condition:
        """Returns a condition whose waits are awaited."""
        return LoopCondition()


class LoopQueue(WorkQueue):
    """The records in flight, for a run in an event loop."""

    _room: LoopCondition

    async def _wait_for_room(self, condition: Callable[[], bool], timeout_s: float) -> None:
        self._room.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):  # `wait_for` of Python 3.11 ignores a cancellation after `set`
                await self._room.changed.wait()

    async def _pause(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)


class LoopExecutor(EventLoopExecutor):
    """Runs up to `workers` coroutines of a handler at a time, in the event loop that runs already."""

    def start(self) -> None:
        """Start the first coroutines."""
        self._loop = asyncio.get_running_loop()
        self._queue.on_ready = self._on_ready
        self._on_ready()

    async def stop(self, timeout_s: float) -> None:
        """Cancel the coroutines that still run, and wait until they have ended."""
        self._queue.on_ready = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(timeout_s, 1.0))


class LoopRunState(RunState):
    """The state of a run in an event loop."""

    def _create_queue(self, concurrency: Concurrency) -> WorkQueue:
        return LoopQueue(self.settings, concurrency, self.consumer.wakeup)


class LoopHandover(Handover):
    """The rebalance callbacks of a run in an event loop, which await handlers."""

    async def on_partitions_revoked(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        """Give the partitions up in this task."""
        await await_flow(self.revoke(partitions))


class LoopRun(ProcessorBase):
    """The part of a run in an event loop that does not depend on the kind of consumer."""

    def __init__(self, consumer: Any, handler: Handler, **options: Unpack[Options]) -> None:
        """Check the arguments, which are those of `process`. Starts nothing."""
        super().__init__(consumer, handler, **options, executor="asyncio")

    def _create_concurrency(self) -> Concurrency:
        return LoopConcurrency()

    def _create_state(self, consumer: Any, settings: Settings, concurrency: Concurrency) -> RunState:
        return LoopRunState(consumer, settings, concurrency)

    def _create_executor(self, settings: Settings, handler: Handler, concurrency: Concurrency) -> Executor:
        return LoopExecutor(self._state.queue, settings, handler, concurrency)


class AsyncProcessor(LoopRun):
    """A run of `process` with an AsyncConsumer. Its handler is a coroutine function.

    If the task that awaits `run` is cancelled, handlers are cancelled, and what they have finished is committed before
    CancelledError is raised. The positions are those of the first records that are not finished.
    """

    def __init__(
        self,
        consumer: AsyncConsumer,
        handler: Handler,
        **options: Unpack[Options],
    ) -> None:
        """Check the arguments, which are those of `process`. Starts nothing."""
        super().__init__(consumer, handler, **options)

    async def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        An AsyncProcessor runs once: another call raises StateError.
        """
        try:
            return await await_flow(self._run())
        except asyncio.CancelledError:
            await await_flow(self._handover.leave())
            raise

    def _check(self, consumer: Any) -> None:
        if not isinstance(consumer, AsyncConsumer):
            raise TypeError(f"AsyncProcessor takes a kconsumer.aio.AsyncConsumer, not {type(consumer).__name__}")
        check_config(consumer._config)

    def _create_handover(self) -> Handover:
        return LoopHandover(self._state, self._executor)
