"""Creates the executor that the settings name."""

from __future__ import annotations

from kconsumer.parallel.attempt import Executor
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.settings import Handler, Settings
from kconsumer.parallel.threads import ThreadExecutor
from kconsumer.parallel.work_queue import WorkQueue


def create_executor(queue: WorkQueue, settings: Settings, handler: Handler, concurrency: Concurrency) -> Executor:
    if settings.executor == "processes":
        from kconsumer.parallel.processes import ProcessExecutor  # imported when used, as `multiprocessing`

        return ProcessExecutor(queue, settings, handler, concurrency)
    if settings.executor == "asyncio":
        from kconsumer.parallel.event_loop_executor import EventLoopExecutor  # imported when used, as `asyncio`

        return EventLoopExecutor(queue, settings, handler, concurrency)
    return ThreadExecutor(queue, settings, handler, concurrency)
