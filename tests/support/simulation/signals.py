"""Signals of a simulation: handlers that run where the library lets them run, on the thread of the application.

The library defers the handlers of real signals (`kconsumer/_internal/deferred_signals.py`). During a call, they run
after each wait. A simulation runs on a thread of its own, which runs no handlers of signals. So during a run, the
method of the library that lets the handlers run is replaced by that of `SimulatedSignals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kconsumer._internal.deferred_signals import DeferredSignals
from support.simulation.scheduler import Process, Scheduler


class SimulatedSignals:
    """The signals that have arrived at the processes of a simulation, and whose handlers have not run yet."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._noted: dict[Process, list[Callable[[], None]]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the library run these handlers in place of real ones until the context ends."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeferredSignals, "run_noted", lambda _: self.run_noted())
            yield

    def send(self, process: Process, handler: Callable[[], None], end_wait: Callable[[], None]) -> None:
        """Let a handler run in the running call of a process. `end_wait` ends the wait of this call."""
        self._noted.setdefault(process, []).append(handler)
        end_wait()

    def drop(self, process: Process) -> None:
        """Forget the signals of a process, because its call has ended before their handlers could run."""
        self._noted.pop(process, None)

    def run_noted(self) -> None:
        """Call the handlers for the signals of the running process. Raises their exceptions."""
        task = self._scheduler.current
        if task is None:
            return
        noted = self._noted.get(task.process, [])
        while noted:
            noted.pop(0)()
