"""Unit tests of the locks, events and threads of simulations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from greenlet import getcurrent

from support.aio.blocking import in_greenlet
from support.simulation.scheduler import Process, Scheduler
from support.simulation.simulation import off_main_thread
from support.simulation.threads import SimulatedEvent, SimulatedLock, SimulatedReentrantLock, SimulatedThread

PROCESS = Process("p")


@pytest.fixture(params=range(5))
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    """A scheduler, with each of five seeds."""
    return Scheduler(request.param)


@pytest.mark.parametrize("kind", [SimulatedLock, SimulatedReentrantLock])
def test_one_task_holds_a_lock(scheduler: Scheduler, kind: type[SimulatedLock] | type[SimulatedReentrantLock]) -> None:
    """Tasks that wait while they hold a lock exclude each other, and each gets it."""
    lock, inside, entries = kind(scheduler), [], []

    def work(name: int) -> None:
        assert lock.acquire()
        assert not inside
        inside.append(name)
        scheduler.sleep(10)
        inside.remove(name)
        entries.append(name)
        lock.release()

    for name in range(5):
        scheduler.spawn(str(name), PROCESS, lambda name=name: work(name))
    scheduler.run(1_000)
    assert list(range(5)) == sorted(entries)


def test_acquire_with_a_timeout(scheduler: Scheduler) -> None:
    """`acquire` returns False after its timeout, and at once if it does not block."""
    lock, results = SimulatedLock(scheduler), []
    assert lock.acquire()

    def work() -> None:
        results.append((lock.acquire(blocking=False), round(scheduler.now)))
        results.append((lock.acquire(timeout=2.0), round(scheduler.now)))
        results.append((lock.acquire(timeout=5.0), scheduler.now < 3_011))

    scheduler.spawn("t", PROCESS, work)
    scheduler.call_at(3_000.0, lock.release)
    scheduler.run(10_000)
    assert [(False, 0), (False, 2_000), (True, True)] == results
    assert lock.locked()


def test_reentrant_lock(scheduler: Scheduler) -> None:
    """The owner acquires a reentrant lock twice, and others wait until it has released it twice."""
    lock, seen = SimulatedReentrantLock(scheduler), []

    def owner() -> None:
        with lock, lock:
            scheduler.sleep(100)
            lock.release()
            scheduler.sleep(100)
            seen.append("owner")
            lock.acquire()

    def other() -> None:
        scheduler.sleep(50)
        with pytest.raises(RuntimeError):
            lock.release()
        assert not lock.acquire(blocking=False)
        with lock:
            seen.append("other")

    scheduler.spawn("owner", PROCESS, owner)
    scheduler.spawn("other", PROCESS, other)
    scheduler.run(1_000)
    assert ["owner", "other"] == seen


def test_event(scheduler: Scheduler) -> None:
    """`set` ends all waits; a wait for an event that is not set ends with its timeout."""
    event, results = SimulatedEvent(scheduler), []

    def wait(timeout: float | None) -> None:
        results.append((event.wait(timeout), scheduler.now < 1_001))

    for timeout in (1.0, 10.0, None):
        scheduler.spawn(str(timeout), PROCESS, lambda timeout=timeout: wait(timeout))
    scheduler.call_at(5_000.0, event.set)
    scheduler.run(4_000)
    assert [(False, True)] == results
    scheduler.run(6_000)
    assert [(False, True), (True, False), (True, False)] == results
    assert event.wait()


def test_release_of_a_free_lock(scheduler: Scheduler) -> None:
    """Releasing a lock that is not held raises RuntimeError."""
    with pytest.raises(RuntimeError):
        SimulatedLock(scheduler).release()


def test_join(scheduler: Scheduler) -> None:
    """`join` waits for the end of a thread, at most its timeout."""
    thread = SimulatedThread(scheduler, PROCESS, "t", lambda: scheduler.sleep(1_000))
    results = []

    def work() -> None:
        assert not thread.is_alive()
        thread.start()
        thread.join(0.5)
        results.append((thread.is_alive(), scheduler.now < 501))
        thread.join()
        results.append((thread.is_alive(), 1_000 <= scheduler.now < 1_012))

    scheduler.spawn("main", PROCESS, work)
    scheduler.run(5_000)
    assert [(True, True), (False, True)] == results


def test_a_run_ends_its_waiting_callbacks() -> None:
    """A callback that waits at the end of a run is ended there: another thread that frees it would crash."""
    ended_by: list[int] = []
    waiting: list[Coroutine[Any, Any, None]] = []

    def callback() -> None:
        loop = getcurrent().parent
        assert loop is not None
        try:
            loop.switch(asyncio.sleep(0))
        finally:
            ended_by.append(threading.get_ident())

    def run() -> int:
        waiting.append(in_greenlet(callback))
        waiting[0].send(None)
        return threading.get_ident()

    assert [off_main_thread(run)] == ended_by
