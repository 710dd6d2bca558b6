"""Turn: how long a task may run before it lets the other tasks of its event loop run."""

from __future__ import annotations

import asyncio

from kconsumer._core.lock import Clock
from kconsumer.aio.driver import AsyncDriver

MAX_TURN_MS = 10.0
"""How long (ms) buffered records may be returned, or deserialized, before other tasks of the event loop run."""


class Turn:
    """The time since other tasks of the event loop could run, as far as one consumer knows."""

    def __init__(self, clock: Clock, driver: AsyncDriver) -> None:
        self._clock = clock
        self._driver = driver
        self._began = 0.0  # ms
        self._suspensions = -1  # the driver's count at this time

    def over(self) -> bool:
        """Returns True if other tasks must run now."""
        return self._clock.now() - self._began > MAX_TURN_MS

    async def pass_on(self) -> None:
        """Let other tasks run, unless a wait of the consumer has suspended a task since the turn began."""
        suspensions = self._driver.suspensions
        if suspensions == self._suspensions:
            await asyncio.sleep(0)
        self._suspensions = suspensions
        self._began = self._clock.now()
