"""AsyncShareProcessor: a run with an AsyncShareConsumer. It polls in the calling task; handlers run in tasks of the
same loop.
"""

from __future__ import annotations

from typing import Any

from kconsumer.aio import AsyncShareConsumer
from kconsumer.parallel.async_processor import LoopRun
from kconsumer.parallel.flows import await_flow
from kconsumer.parallel.settings import Summary
from kconsumer.parallel.share_processor import check_explicit
from kconsumer.parallel.share_run import ShareRun


class AsyncShareProcessor(LoopRun, ShareRun):
    """A run of `process` with an AsyncShareConsumer. Its handler is a coroutine function.

    It acknowledges records as a ShareProcessor does. If the task that awaits `run` is cancelled, handlers are
    cancelled, what they have finished is accepted, and all other records are released.
    """

    async def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        An AsyncShareProcessor runs once: another call raises StateError.
        """
        self._prepare()
        return await await_flow(self._run())

    def _check(self, consumer: Any) -> None:
        if not isinstance(consumer, AsyncShareConsumer):
            raise TypeError(
                f"AsyncShareProcessor takes a kconsumer.aio.AsyncShareConsumer, not {type(consumer).__name__}"
            )
        check_explicit(consumer._config)
