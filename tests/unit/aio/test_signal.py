"""AsyncSignal ends the waits of tasks, and WaitsEvent reports to the network thread what the tasks wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from kconsumer._core.lock import Clock
from kconsumer.aio.driver import AsyncSignal, WaitsEvent
from kconsumer.engine.events import ApplicationEvent
from kconsumer.metrics.registry import Metrics

LONG_MS = 60_000.0


def signal() -> AsyncSignal:
    """Returns a new signal."""
    return AsyncSignal(Metrics(), Clock(), threading.Lock())


def run(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine in a new event loop."""
    asyncio.run(coroutine)


def test_a_notification_before_the_wait_ends_it_at_once() -> None:
    """A wait after `notify` is not suspended."""
    changed = signal()
    changed.notify()

    async def wait() -> None:
        assert await changed.wait_async(LONG_MS)

    run(wait())
    assert 0 == changed.suspensions


def test_another_thread_ends_the_waits_of_all_tasks() -> None:
    """One notification ends the waits of all tasks that wait at this time."""
    changed = signal()

    async def wait() -> None:
        tasks = [asyncio.create_task(changed.wait_async(LONG_MS)) for _ in range(3)]
        while changed.suspensions < len(tasks):
            await asyncio.sleep(0)
        threading.Thread(target=changed.notify).start()
        assert [True] * len(tasks) == await asyncio.gather(*tasks)
        assert not changed.is_set

    run(wait())


def test_the_wait_ends_after_its_timeout() -> None:
    """A wait without a notification returns False after the timeout, and leaves nothing behind."""
    changed = signal()

    async def wait() -> None:
        assert not await changed.wait_async(1.0)
        assert not await changed.wait_async(0.0)

    run(wait())
    changed.notify()  # the event loop is closed
    assert changed.is_set


def test_a_cancelled_wait_takes_no_notification() -> None:
    """A notification after a cancelled wait ends the next wait."""
    changed = signal()

    async def wait() -> None:
        task = asyncio.create_task(changed.wait_async(LONG_MS))
        while not changed.suspensions:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        changed.notify()
        assert await changed.wait_async(LONG_MS)

    run(wait())


def test_the_network_thread_may_do_what_any_wait_allows() -> None:
    """While the wait of a poll is among the waits, records are fetched, also after another wait has begun or ended."""
    waits = WaitsEvent()
    poll, commit = ApplicationEvent(joining=True, fetching=True), ApplicationEvent()
    seen = []
    for change, event in ((waits.add, poll), (waits.add, commit), (waits.remove, commit), (waits.remove, poll)):
        change(event)
        seen.append((waits.active, waits.joining, waits.fetching))
    assert [(True, True, True)] * 3 + [(False, False, False)] == seen
