"""An asyncio event loop in virtual time, which waits in the scheduler of a simulation."""

from __future__ import annotations

import asyncio
from typing import Any

from support.simulation.scheduler import Scheduler
from support.simulation.threads import PREEMPTION_CHANCE, SimulatedEvent


class SimulatedEventLoop(asyncio.BaseEventLoop):
    """The event loop of one task. It has no sockets: only timers and `call_soon_threadsafe` end its waits."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._selector = self  # `BaseEventLoop` waits in its `select`
        self._woken = SimulatedEvent(scheduler)
        self.set_exception_handler(self._handle_exception)

    def __del__(self) -> None:
        # The process may have crashed, or the simulation has ended. Then no task closes the loop.
        pass

    def time(self) -> float:
        """Returns the virtual time in seconds."""
        return self._scheduler.now / 1000

    def select(self, timeout: float | None) -> list[Any]:
        """Wait for `timeout` seconds, or until another task of the simulation wakes the loop. Returns no events."""
        if timeout is None or timeout > 0:
            self._woken.wait(timeout)
        elif self._scheduler.random.random() < PREEMPTION_CHANCE:
            self._scheduler.give_way()
        self._woken.clear()
        return []

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Do nothing: the garbage collector runs at another time in each run, and must not change the history."""

    def _process_events(self, _: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        self._woken.set()

    def _handle_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle what no task has handled. At the end of the simulation, tasks that were not finished are no errors."""
        error = context.get("exception")
        if not self._scheduler.closed and error is not None:
            raise error
