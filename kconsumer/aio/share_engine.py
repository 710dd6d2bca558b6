"""AsyncShareEngine: a share engine whose operations run in tasks of an event loop."""

from __future__ import annotations

from kconsumer._core.lock import Timer
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.aio.client_engine import AsyncClientEngine
from kconsumer.aio.deserialization import AsyncDeserializers
from kconsumer.aio.driver import AsyncDriver
from kconsumer.aio.turn import Turn
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.environment import Environment
from kconsumer.engine.waiting import Operation
from kconsumer.share.collector import Deserialize
from kconsumer.share.engine import AcknowledgeCallback, ShareEngine


class AsyncShareEngine(ShareEngine, AsyncClientEngine):
    """One share consumer whose methods wait in an event loop."""

    driver: AsyncDriver
    callbacks: AsyncCallbacks

    def __init__(
        self,
        config: ConsumerConfig,
        environment: Environment,
        group_id: str,
        on_acknowledge: AcknowledgeCallback | None,
    ) -> None:
        super().__init__(config, environment, group_id, on_acknowledge, AsyncDriver, AsyncCallbacks)
        self.turn = Turn(self.components.clock, self.driver)

    def _deserializers(self, config: ConsumerConfig) -> Deserialize | None:
        found = AsyncDeserializers.of(config)
        return None if found is None else lambda run: found.operation(self.turn, run)

    def _check_not_collecting(self) -> None:
        """Do nothing: while a deserializer waits, other tasks may commit. The records of the poll are left out."""

    def _run_callbacks_now(self) -> None:
        """Do nothing: callbacks may have to be awaited. A later poll, commit or close runs them."""

    def closing(self, timer: Timer) -> Operation[None]:
        """Send acknowledgements, end the share sessions, leave the group, and close the connections.

        Each step runs, all of them within the timer. The first error is raised at the end.
        """
        self._leaving = True
        self.driver.close_began()
        yield from self._close_steps(timer, interrupted=self._release_interrupted())
