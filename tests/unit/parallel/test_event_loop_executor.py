"""EventLoopExecutor: coroutines that outlive their event loop."""

from __future__ import annotations

import asyncio
import gc
import sys

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.parallel import Retry
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.event_loop_executor import EventLoopExecutor
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.settings import Settings
from kconsumer.parallel.work_queue import WorkQueue


def test_coroutines_of_a_closed_event_loop_end_without_errors() -> None:
    """If user code ends the thread of the event loop, the garbage collector ends the coroutines.

    That counts as no failure of their records and starts nothing, although a retry waits for its time. The run ends
    with the error. An exception in a coroutine would be a warning of pytest, and fail the test.
    """
    started: list[int] = []

    async def handler(record: ConsumerRecord) -> None:
        started.append(record.offset)
        if len(started) == 1:
            raise ValueError
        if len(started) == 3:
            asyncio.get_running_loop().call_soon(sys.exit)
        await asyncio.Event().wait()

    settings = Settings(workers=2, order="none", retry=Retry(attempts=2, backoff_s=60.0, max_backoff_s=60.0))
    concurrency = Concurrency()
    queue = WorkQueue(settings, concurrency, lambda: None)
    tracker = OffsetTracker(TopicPartition("orders", 0))
    queue.add(tracker, tracker.take([ConsumerRecord("orders", 0, offset) for offset in range(4)], 4, 0))
    executor = EventLoopExecutor(queue, settings, handler, concurrency)
    executor.start()
    executor._thread.join(20.0)
    executor.stop(20.0)
    assert isinstance(queue.error, SystemExit)
    queue.error.__traceback__ = None  # it refers to the executor
    del executor
    gc.collect()
    assert [0, 1, 2] == started
    assert queue.next_due() is not None
    assert (4, 1) == (queue.in_flight, queue.retries)
