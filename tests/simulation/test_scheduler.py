"""Unit tests of the scheduler of simulations."""

from __future__ import annotations

import pytest
from greenlet import greenlet

from support.simulation.scheduler import Process, Scheduler, SimulationError, Task


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


def test_park_until_a_deadline() -> None:
    """`park` returns False at its deadline, which is a matter of virtual time."""
    scheduler, results = Scheduler(1), []

    def wait() -> None:
        results.append((scheduler.park(60_000.0), scheduler.now))

    scheduler.spawn("t", Process("p"), wait)
    scheduler.run(100_000)
    assert [(False, pytest.approx(60_000, abs=0.01))] == results
    assert 100_000 == scheduler.now


def test_wake() -> None:
    """`wake` ends a wait after a short delay, and `park` returns True. The deadline has no effect on later waits."""
    scheduler, results = Scheduler(1), []

    def wait() -> None:
        results.append((scheduler.park(1_000.0), scheduler.now))
        results.append((scheduler.park(5_000.0), scheduler.now))

    task = scheduler.spawn("t", Process("p"), wait)
    scheduler.call_at(500.0, lambda: scheduler.wake(task))
    scheduler.run(10_000)
    (woken, first), (again, second) = results
    assert (True, False) == (woken, again)
    assert 500 < first < 511
    assert pytest.approx(5_000, abs=0.01) == second


def test_wake_without_a_wait() -> None:
    """`wake` does nothing to a task that does not wait."""
    scheduler, results = Scheduler(1), []

    def wait() -> None:
        scheduler.wake(task)
        results.append(scheduler.park(100.0))

    task = scheduler.spawn("t", Process("p"), wait)
    scheduler.run(1_000)
    assert [False] == results


def test_sleep() -> None:
    """A sleep takes its time even if the task is woken before."""
    scheduler, ended = Scheduler(1), []

    def sleep() -> None:
        scheduler.sleep(1_000)
        ended.append(scheduler.now)

    task = scheduler.spawn("t", Process("p"), sleep)
    scheduler.call_at(300.0, lambda: scheduler.wake(task))
    scheduler.run(10_000)
    assert [pytest.approx(1_000, abs=0.01)] == ended


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


def test_close() -> None:
    """`close` ends tasks that wait, and runs their finally blocks."""
    scheduler, ended = Scheduler(1), []

    def wait() -> None:
        try:
            scheduler.park()
        finally:
            ended.append("finally")

    task = scheduler.spawn("t", Process("p"), wait)
    scheduler.run(1_000)
    scheduler.close()
    assert ["finally"] == ended
    assert task.finished
    assert task.error is None


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


def test_events_at_one_time_keep_their_order() -> None:
    """Events of one moment happen in the order in which they were added; a time in the past counts as now."""
    scheduler, seen = Scheduler(1), []
    for name in "abc":
        scheduler.call_at(5.0, lambda name=name: seen.append((name, scheduler.now)))
    scheduler.call_at(6.0, lambda: scheduler.call_at(1.0, lambda: seen.append(("late", scheduler.now))))
    scheduler.run(10.0)
    assert [("a", 5.0), ("b", 5.0), ("c", 5.0), ("late", 6.0)] == seen


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
