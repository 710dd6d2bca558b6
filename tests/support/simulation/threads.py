"""Locks, events and threads of a simulation, with the methods of those in `threading`. Waits are waits of a task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from support.simulation.scheduler import FOREVER, Process, Scheduler, Task

PREEMPTION_CHANCE = 0.05
"""How often a task gives way to others before it acquires a lock. This is where threads interleave."""


class _Waiters:
    """The tasks that wait for one object."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks: list[Task] = []

    def wait(self, deadline: float) -> bool:
        """Wait until `wake_all` or the deadline (ms). Returns False after the deadline, and outside of tasks."""
        task = self._scheduler.current
        if task is None or self._scheduler.now >= deadline:
            return False
        self._tasks.append(task)
        try:
            self._scheduler.park(deadline)
        finally:
            self._tasks.remove(task)
        return True

    def wake_all(self) -> None:
        """End all waits."""
        for task in self._tasks:
            self._scheduler.wake(task)


class SimulatedLock:
    """A lock, like `threading.Lock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiters = _Waiters(scheduler)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock. Returns False if that was not possible at once, or within `timeout` seconds.

        Raises OverflowError if `timeout` is longer than a lock can wait.
        """
        if timeout > threading.TIMEOUT_MAX:
            raise OverflowError("timeout value is too large")
        deadline = FOREVER if timeout < 0 else self._scheduler.now + timeout * 1000
        while self._held:
            if not blocking or not self._waiters.wait(deadline):
                return False
        self._held = True
        return True

    def release(self) -> None:
        """Release the lock. Raises RuntimeError if it is not held."""
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self._waiters.wake_all()

    def locked(self) -> bool:
        """Returns whether the lock is held."""
        return self._held


class SimulatedReentrantLock:
    """A reentrant lock, like `threading.RLock`. Tasks may give way to others before they acquire it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._count = 0
        self._waiters = _Waiters(scheduler)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock once more. Returns False if another task holds it and `blocking` is False."""
        scheduler, me = self._scheduler, self._scheduler.current
        if not (self._count and self._owner is me):
            if scheduler.random.random() < PREEMPTION_CHANCE:
                scheduler.give_way()
            deadline = FOREVER if timeout < 0 else scheduler.now + timeout * 1000
            while self._count:
                if not blocking or not self._waiters.wait(deadline):
                    return False
            self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        """Undo one `acquire`. Raises RuntimeError if the running task does not hold the lock."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._waiters.wake_all()

    def _is_owned(self) -> bool:
        return self._count > 0 and self._owner is self._scheduler.current

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimulatedCondition:
    """A condition, like `threading.Condition`."""

    def __init__(self, scheduler: Scheduler, lock: SimulatedReentrantLock) -> None:
        self._scheduler = scheduler
        self._lock = lock
        self._waiting: dict[Task, None] = {}  # the tasks that were not notified, in the order of their waits

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, at most `timeout` seconds, and acquire the lock again.

        Returns False after the timeout.
        """
        task = self._scheduler.current
        if task is None:
            return False
        deadline = FOREVER if timeout is None else self._scheduler.now + timeout * 1000
        self._waiting[task] = None
        self._lock.release()
        try:
            while task in self._waiting and self._scheduler.now < deadline:
                self._scheduler.park(deadline)
        finally:
            notified = task not in self._waiting
            self._waiting.pop(task, None)
            self._lock.acquire()
        return notified

    def notify(self, n: int = 1) -> None:
        """End the waits of up to `n` tasks."""
        for task in list(self._waiting)[:n]:
            del self._waiting[task]
            self._scheduler.wake(task)

    def notify_all(self) -> None:
        """End all waits."""
        self.notify(len(self._waiting))


class SimulatedEvent:
    """An event, like `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters = _Waiters(scheduler)

    def set(self) -> None:
        """Set the event, which ends all waits."""
        self._set = True
        self._waiters.wake_all()

    def clear(self) -> None:
        """Reset the event, so that waits wait again."""
        self._set = False

    def is_set(self) -> bool:
        """Returns whether the event is set."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most `timeout` seconds. Returns whether it is set."""
        deadline = FOREVER if timeout is None else self._scheduler.now + timeout * 1000
        while not self._set and self._waiters.wait(deadline):
            pass
        return self._set


class SimulatedThread:
    """A thread, like `threading.Thread`: a task of a process."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, run: Callable[[], object]) -> None:
        self.name = name
        self._scheduler = scheduler
        self._process = process
        self._run = run
        self.task: Task | None = None

    def start(self) -> None:
        """Start the task."""
        self.task = self._scheduler.spawn(f"{self._process.name}/{self.name}", self._process, self._run)

    def is_alive(self) -> bool:
        """Returns whether the task was started and has not ended."""
        return self.task is not None and not self.task.finished

    def join(self, timeout: float | None = None) -> None:
        """Wait until the task ends, at most `timeout` seconds."""
        scheduler, me = self._scheduler, self._scheduler.current
        deadline = FOREVER if timeout is None else scheduler.now + timeout * 1000
        if self.task is None or me is None:
            return
        self.task.joining.append(me)
        while self.is_alive() and scheduler.now < deadline:
            scheduler.park(deadline)
        self.task.joining.remove(me)
