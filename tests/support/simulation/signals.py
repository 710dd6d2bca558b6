"""Signals of a simulation: handlers that run where the library lets them run, on the thread of the application.

The library defers the handlers of real signals (`kconsumer/_internal/deferred_signals.py`). During a call, they run
after each wait. A simulation runs on a thread of its own, which runs no handlers of signals. So during a run,
`SimulatedSignals` stands for the library's object in the module that lets the handlers run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.engine import driver
from support.simulation.scheduler import Process, Scheduler


class SimulatedSignals:
    """The signals that have arrived at the processes of a simulation, and whose handlers have not run yet."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._noted: dict[Process, list[Callable[[], None]]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stands for the library's object until the context ends."""
        vars(driver)["SIGNALS"] = self
        try:
            yield
        finally:
            vars(driver)["SIGNALS"] = SIGNALS

    def send(self, process: Process, handler: Callable[[], None], end_wait: Callable[[], None]) -> None:
        """Let a handler run in the running call of a process. `end_wait` ends the wait of this call."""
        self._noted.setdefault(process, []).append(handler)
        end_wait()

    def drop(self, process: Process) -> None:
        """Forget the signals of a process, because its call has ended before their handlers could run."""
        self._noted.pop(process, None)

    # --- what the library calls ---

    def hold(self, _wake: Callable[[], None] | None = None) -> bool:
        """Returns False, so that `release` is not called: handlers only run in `run_noted`."""
        return False

    def refresh(self) -> None:
        """Do nothing, because there are no real handlers."""

    def release(self) -> None:
        """Do nothing."""

    def run_noted(self) -> None:
        """Call the handlers for the signals of the running process. Raises their exceptions."""
        task = self._scheduler.current
        if task is None:
            return
        noted = self._noted.get(task.process, [])
        while noted:
            noted.pop(0)()
