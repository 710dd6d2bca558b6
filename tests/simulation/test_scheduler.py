"""Unit tests of the scheduler of simulations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from support.aio.blocking import in_greenlet
from support.simulation.scheduler import Process, Scheduler, SimulationError, Task
from support.simulation.simulation import off_main_thread


def order_of(seed: int) -> list[str]:
    """Returns the order in which four tasks make three steps each."""
    scheduler, order, process = Scheduler(seed), [], Process("p")

    def steps(name: str) -> None:
        for _ in range(3):
            order.append(name)
            scheduler.give_way()

    for name in "abcd":
        scheduler.spawn(name, process, lambda name=name: steps(name))
    scheduler.run(1_000)
    return order


def test_the_seed_decides_the_order() -> None:
    """The same seed gives the same order of tasks, and other seeds give other orders."""
    orders = [order_of(seed) for seed in range(10)]
    assert orders == [order_of(seed) for seed in range(10)]
    assert len({tuple(order) for order in orders}) > 5


def test_crash() -> None:
    """The tasks of a crashed process never run again; those of other processes do."""
    scheduler, steps, crashing, other = Scheduler(1), [], Process("a"), Process("b")

    def count(name: str) -> None:
        while True:
            steps.append(name)
            scheduler.sleep(100)

    scheduler.spawn("t", crashing, lambda: count("a"))
    scheduler.spawn("t", other, lambda: count("b"))
    scheduler.call_at(950.0, lambda: setattr(crashing, "crashed", True))
    scheduler.run(1_950)
    assert (10, 20) == (steps.count("a"), steps.count("b"))
    scheduler.close()


def test_suspend() -> None:
    """The tasks of a suspended process run again at the end of the suspension, with what happened meanwhile."""
    scheduler, times, process = Scheduler(1), [], Process("p")

    def count() -> None:
        while True:
            times.append(round(scheduler.now))
            scheduler.sleep(100)

    scheduler.spawn("t", process, count)
    scheduler.call_at(250.0, lambda: process.suspend(250.0, 1_000.0))
    scheduler.run(1_250)
    assert [0, 100, 200, 1000, 1100, 1200] == times
    assert 500 == process.suspended_ms(500.0, 2_000.0)
    scheduler.close()


def test_errors_of_tasks() -> None:
    """`run` raises the error of a task, unless `on_error` handles it."""
    scheduler = Scheduler(1)
    scheduler.spawn("t", Process("p"), lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scheduler.run(1_000)
    errors: list[tuple[Task, BaseException]] = []
    scheduler.on_error = lambda task, error: errors.append((task, error))
    task = scheduler.spawn("t", Process("p"), lambda: 1 / 0)
    scheduler.run(2_000)
    assert [(task, ZeroDivisionError)] == [(failed, type(error)) for failed, error in errors]


def test_a_program_that_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events without end in one moment are an error."""
    monkeypatch.setattr("support.simulation.scheduler.MAX_STEPS_AT_ONCE", 1_000)
    scheduler = Scheduler(1)

    def again() -> None:
        scheduler.call_at(0.0, again)

    again()
    with pytest.raises(SimulationError, match="in one virtual millisecond"):
        scheduler.run(10.0)


def test_a_closed_scheduler_keeps_no_greenlet() -> None:
    """A scheduler that was closed and its tasks refer to no greenlet, which no other thread may free."""
    scheduler = Scheduler(1)
    waiting = scheduler.spawn("waiting", Process("p"), lambda: scheduler.sleep(1000))
    ended = scheduler.spawn("ended", Process("p"), lambda: None)
    scheduler.run(10)
    scheduler.close()
    kept = [value for owner in (scheduler, waiting, ended) for value in vars(owner).values()]
    assert not any(isinstance(value, greenlet) for value in kept)


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
