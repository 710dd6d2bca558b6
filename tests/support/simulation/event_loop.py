"""An asyncio event loop in virtual time, which waits in the scheduler of a simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVarTuple

from support.simulation.network import SimulatedSelector
from support.simulation.scheduler import Scheduler
from support.simulation.threads import PREEMPTION_CHANCE, SimulatedEvent

Ts = TypeVarTuple("Ts")


class SimulatedEventLoop(asyncio.BaseEventLoop):
    """The event loop of one task. Timers, `call_soon_threadsafe` and the selectors that it watches end its waits."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._selector = self  # `BaseEventLoop` waits in its `select`
        self._woken = SimulatedEvent(scheduler)
        self._readers: dict[SimulatedSelector, asyncio.Handle] = {}
        self.set_exception_handler(self._handle_exception)

    def __del__(self) -> None:
        # The process may have crashed, or the simulation has ended. Then no task closes the loop.
        pass

    def time(self) -> float:
        """Returns the virtual time in seconds."""
        return self._scheduler.now / 1000

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        """Call `callback` while a selector is ready. `fd` is that selector, and nothing else."""
        if not isinstance(fd, SimulatedSelector):
            raise NotImplementedError
        self._readers[fd] = asyncio.Handle(callback, args, self)
        fd.on_ready = self._woken.set

    def remove_reader(self, fd: Any) -> bool:
        """Stop watching a selector. Returns whether it was watched."""
        handle = self._readers.pop(fd, None)
        if handle is not None:
            handle.cancel()
            fd.on_ready = bool
        return handle is not None

    def select(self, timeout: float | None) -> list[asyncio.Handle]:
        """Wait for `timeout` seconds, until another task of the simulation wakes the loop, or until a watched selector
        is ready. Returns the handles of the selectors that are ready."""
        if not self._found() and (timeout is None or timeout > 0):
            self._woken.wait(timeout)
        elif self._scheduler.random.random() < PREEMPTION_CHANCE:
            self._scheduler.give_way()
        self._woken.clear()
        return self._found()

    def _found(self) -> list[asyncio.Handle]:
        return [handle for selector, handle in self._readers.items() if selector.ready]

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Do nothing: the garbage collector runs at another time in each run, and must not change the history."""

    def _process_events(self, event_list: list[asyncio.Handle]) -> None:
        self._ready: Any
        self._ready.extend(event_list)

    def _write_to_self(self) -> None:
        self._woken.set()

    def _handle_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle what no task has handled. At the end of the simulation, tasks that were not finished are no errors."""
        error = context.get("exception")
        if not self._scheduler.closed and error is not None:
            raise error
