"""AwaitableClient: how tasks of one event loop use a consumer, and how it ends.

Tasks may call methods at the same time, but only one of them may poll. close() and unsubscribe() run in tasks of their
own, which continue if their caller is cancelled.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from kconsumer._client.client_base import ClientBase, Timeout
from kconsumer._core.lock import Timer
from kconsumer.aio.client_engine import AsyncClientEngine
from kconsumer.aio.loop_guard import LoopGuard
from kconsumer.engine.waiting import Operation
from kconsumer.errors import KafkaError, StateError
from kconsumer.state.subscription import SubscriptionKind

T = TypeVar("T")


class AwaitableClient(ClientBase):
    """The part of `AsyncConsumer` and `AsyncShareConsumer` that runs operations in tasks."""

    _engine: AsyncClientEngine
    _guard: LoopGuard
    _polling = False  # a task polls
    _closed_by_callback = False  # close() was called inside a callback
    _ending: asyncio.Task[None] | None = None  # runs close() or unsubscribe()

    def _create_guard(self) -> LoopGuard:
        parts = self._engine.components
        return LoopGuard(parts.step, parts.end_wait)

    @property
    def _in_poll(self) -> bool:
        return self._polling

    def _check_change(self) -> None:
        if self._ending is not None and not self._engine.callbacks.inside:
            raise StateError("unsubscribe() or close() is running, and would drop the new subscription: await it first")

    def _drop_subscription(self) -> None:
        if self._engine.components.subscription.kind is not SubscriptionKind.NONE:
            raise ValueError("an empty list would unsubscribe, which has to wait: use `await consumer.unsubscribe()`")

    # --- polls -------------------------------------------------------------------------------------------------------

    def _check_poll(self) -> None:
        """Raise StateError if another task polls, or if the calling task runs inside a callback."""
        self._guard.check()
        if self._polling or self._engine.callbacks.inside:
            raise StateError(
                "poll() is running already: only one task may poll, and none inside a callback; use one task that polls"
                " and passes the records on, or one consumer for each task"
            )

    async def _wait_for_turn(self) -> None:
        """Let other tasks run if this is due, and wait for the end of close() or unsubscribe(), if one is running."""
        if self._engine.turn.over():
            await self._engine.turn.pass_on()
        if self._ending is not None:
            await asyncio.wait([self._ending])
            self._guard.check()

    async def _check_open(self) -> None:
        """Raise StateError if another task has called close(), after that has ended. Called before an empty result.

        A poll whose own callback closes the consumer returns an empty batch.
        """
        if self._closing and not self._closed_by_callback:
            if self._ending is not None:
                await asyncio.wait([self._ending])
            self._guard.check()

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def _run(self, operation: Operation[T]) -> T:
        """Drive an operation in the calling task. Returns its result."""
        self._guard.check()
        return await self._engine.run_async(operation)

    async def _finish(self, operation: Operation[None], ended: Callable[[], object] = bool) -> None:
        """Drive an operation in a task of its own, after an earlier one has ended, and wait for it.

        Calls `ended` at its end. If the caller is cancelled, the task continues, and `poll` waits for its end.
        """
        self._guard.check(closing=True)
        earlier = None if self._engine.callbacks.inside else self._ending

        async def run() -> None:
            task = asyncio.current_task()
            try:
                if earlier is not None:
                    await asyncio.wait([earlier])
                    self._guard.check(closing=True)
                await self._engine.run_async(operation)
            finally:
                if self._ending is task:
                    self._ending = None
                ended()

        ending = asyncio.get_running_loop().create_task(run())
        if not ending.done():  # a task of an eager task factory may have ended
            self._ending = ending
        await asyncio.shield(ending)

    # --- ending ------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def close(self, timeout: Timeout = 30.0) -> None:
        """Close the consumer."""

    async def _close_after_error(self) -> None:
        """Close the consumer, because the body of an `async with` statement raised."""
        await self.close()

    async def _close_once(self, timeout: Timeout, close: Callable[[Timer], Operation[None]]) -> None:
        """Run close() in a task. If the caller is cancelled, the task continues, and a further call waits for it."""
        if self._guard.closed:
            return
        self._guard.check(closing=True)
        timer = self._timer(timeout)
        if not self._closing:
            self._closing = True
            self._closed_by_callback = self._engine.callbacks.inside
            self._drop_unreached()
            await self._finish(close(timer), self._closed)
        elif self._ending is not None and not self._engine.callbacks.inside:
            await asyncio.shield(self._ending)

    def _closed(self) -> None:
        self._guard.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the consumer. If the body raised, the records of the body are not committed, and are read again.

        An error of `close` is then added to the error of the body as a note.
        """
        if kind is None:
            await self.close()
            return
        try:
            await self._close_after_error()
        except KafkaError as close_error:
            if error is not None:
                error.add_note(f"closing the consumer failed, too: {close_error}")
