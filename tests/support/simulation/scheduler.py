"""The scheduler of a simulation: runs tasks one at a time, and advances the virtual time when all of them wait.

A task is a greenlet. It runs until it waits, so nothing else happens between two waits. Which of several ready tasks
runs next, and how long a woken task waits for a processor, is drawn from the seed. Therefore the same seed gives the
same history.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable

from greenlet import GreenletExit, getcurrent, greenlet

FOREVER = float("inf")
STEP_MS = 0.001  # what each step of a task takes; a task that polls without waiting still sees the time advance
LONG_DELAY_CHANCE = 0.05
SHORT_DELAY_MS, LONG_DELAY_MS = 0.05, 10.0
MAX_STEPS_AT_ONCE = 1_000_000


class SimulationError(AssertionError):
    """The simulated program did something that no program may do, such as running without end in one moment."""


class Process:
    """A process of the simulation. Its tasks stop for ever when it crashes, and for a while when it is suspended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crashed = False
        self.suspended_until = 0.0  # ms
        self._suspensions: list[tuple[float, float]] = []  # beginning and end, ms

    def suspend(self, now: float, until: float) -> None:
        """Do not run the tasks of this process from now until then (ms)."""
        self.suspended_until = max(until, self.suspended_until)
        self._suspensions.append((now, until))

    def suspended_ms(self, began: float, ended: float) -> float:
        """Returns how long (ms) the process was suspended between two times."""
        return sum(max(0.0, min(ended, until) - max(began, since)) for since, until in self._suspensions)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"


class Task:
    """One thread of a process."""

    def __init__(self, name: str, process: Process, function: Callable[[], object], hub: greenlet) -> None:
        self.name = name
        self.process = process
        self.finished = False
        self.error: BaseException | None = None
        self.joining: list[Task] = []  # the tasks that wait for the end of this one
        self.wait_number = 0  # counts the waits, so that the timer of an earlier wait has no effect
        self.waiting = False
        self.woken = False  # whether `wake` ended the last wait
        self._function = function
        self.greenlet: greenlet | None = greenlet(self._run, hub)  # None: it has ended

    def _run(self) -> None:
        try:
            self._function()
        except GreenletExit:
            return
        except BaseException as error:  # an error of the simulated program: `Scheduler.run` raises it
            self.error = error
        finally:
            self.finished = True

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Scheduler:
    """The tasks and events of one simulation. All times are in ms."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.steps = 0
        self.closed = False
        self.on_error: Callable[[Task, BaseException], None] = self._raise_error
        self._ready: list[Task] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._hub: greenlet | None = getcurrent()  # None after `close`
        self._current: Task | None = None
        self._tasks: dict[Task, None] = {}

    # --- tasks ---

    @property
    def current(self) -> Task | None:
        """The running task, or None outside of tasks."""
        return self._current

    def spawn(self, name: str, process: Process, function: Callable[[], object]) -> Task:
        """Start a task. It runs `function` in the following steps. Returns the task."""
        assert self._hub is not None
        task = Task(name, process, function, self._hub)
        self._tasks[task] = None
        self._make_ready(task)
        return task

    def park(self, deadline: float = FOREVER) -> bool:
        """Let the running task wait until `wake` or until `deadline` (ms). Returns True if it was woken.

        Does nothing outside of tasks.
        """
        task = self._current
        if task is None:
            return False
        self._check_open()
        task.wait_number += 1
        task.waiting, task.woken = True, False
        number = task.wait_number
        if deadline < FOREVER:
            self.call_at(deadline, lambda: self._time_out(task, number))
        task.greenlet = getcurrent()  # a task may consist of several greenlets, such as those of its callbacks
        loop = _get_running_loop()
        if loop is None:
            self._switch_to_hub()
        else:
            self._switch_without_loop(loop)
        self._check_open()
        return task.woken

    def _switch_without_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run other tasks, which may run event loops of their own, as threads may."""
        running = asyncio.current_task(loop)
        if running is not None:
            asyncio.tasks._leave_task(loop, running)
        _set_running_loop(None)
        try:
            self._switch_to_hub()
        finally:
            _set_running_loop(loop)
            if running is not None:
                asyncio.tasks._enter_task(loop, running)

    def wake(self, task: Task) -> None:
        """End the wait of a task, after a random delay. Does nothing if it does not wait."""
        if not task.waiting:
            return
        number = task.wait_number
        task.woken = True
        self.call_at(self.now + self._delay_ms(), lambda: self._end_wait(task, number))

    def sleep(self, ms: float) -> None:
        """Let the running task wait for `ms`."""
        deadline = self.now + ms
        while self.now < deadline:
            self.park(deadline)

    def give_way(self) -> None:
        """Let other tasks run before the running task continues."""
        task = self._current
        if task is not None:
            self._check_open()
            self.park(self.now + self._delay_ms())

    # --- events ---

    def call_at(self, time: float, function: Callable[[], None]) -> None:
        """Call a function at a time, or as soon as possible if the time has passed. It must not wait."""
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), function))

    def run(self, until: float, *, finished: Callable[[], bool] = bool) -> None:
        """Run tasks and events until a time (ms), or until `finished` returns True.

        Raises the error of a task, unless `on_error` handles it.
        """
        at_once, moment = 0, self.now
        while not finished():
            if self._ready:
                self._resume(self._ready.pop(self.random.randrange(len(self._ready))))
            elif self._events and self._events[0][0] <= until:
                time, _, function = heapq.heappop(self._events)
                self.now = max(self.now, time)
                function()
            else:
                self.now = max(self.now, until) if until < FOREVER else self.now
                return
            at_once = at_once + 1 if self.now - moment < 1.0 else 0
            if not at_once:
                moment = self.now
            if at_once > MAX_STEPS_AT_ONCE:
                raise SimulationError(f"more than {MAX_STEPS_AT_ONCE:,} steps in one virtual millisecond")

    def close(self) -> None:
        """End all tasks. Each wait of a task raises GreenletExit from now on.

        Also drops the greenlets. The garbage collector crashes if it finds those of a thread that has ended, above all
        the main greenlet of that thread.
        """
        self.closed = True
        for task in list(self._tasks):
            if not task.finished and task.greenlet:
                self._current = task  # else a wait in a `finally` block would not raise, and a loop around it not end
                task.greenlet.throw(GreenletExit)
            task.greenlet = None
        self._current = self._hub = None
        self._tasks.clear()
        self._ready.clear()
        self._events.clear()

    # --- inside ---

    def _switch_to_hub(self) -> None:
        assert self._hub is not None
        self._hub.switch()

    def _check_open(self) -> None:
        if self.closed:
            raise GreenletExit

    def _delay_ms(self) -> float:
        """Returns how long a woken task waits for a processor."""
        long = self.random.random() < LONG_DELAY_CHANCE
        return self.random.random() * (LONG_DELAY_MS if long else SHORT_DELAY_MS)

    def _time_out(self, task: Task, number: int) -> None:
        if task.waiting and task.wait_number == number and not task.woken:
            self._make_ready(task)

    def _end_wait(self, task: Task, number: int) -> None:
        if task.waiting and task.wait_number == number:
            self._make_ready(task)

    def _make_ready(self, task: Task) -> None:
        task.waiting = False
        self._ready.append(task)

    def _resume(self, task: Task) -> None:
        process = task.process
        if process.crashed:
            return
        if process.suspended_until > self.now:
            self.call_at(process.suspended_until, lambda: self._ready.append(task))
            return
        self.now += STEP_MS
        self.steps += 1
        self._current = task
        assert task.greenlet is not None
        try:
            task.greenlet.switch()
        finally:
            self._current = None
        if task.finished:
            task.greenlet = None
            self._tasks.pop(task, None)
            for waiting in task.joining:
                self.wake(waiting)
            if task.error is not None:
                self.on_error(task, task.error)

    def _raise_error(self, _task: Task, error: BaseException) -> None:
        raise error
