"""Runs the callbacks of an AsyncConsumer, which may be coroutine functions.

Rebalance callbacks, and commit callbacks that are coroutine functions, run in tasks of their own. If the `poll` that
has started such a task is cancelled, the task continues, and the next `poll` waits for its end. So a callback is never
cancelled in the middle, as by a timeout around `poll`, and never runs twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import ContextVar
from typing import Any

from kconsumer._internal.deferred_signals import HandlersRunning
from kconsumer._internal.managers import FOREVER, Promise
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.components import ClientComponents, Group
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import StateError

_calling: ContextVar[frozenset[int]] = ContextVar("kconsumer_calling", default=frozenset())


class UserCodeWait(Wait):
    """A wait for the end of user code, which may close the consumer. Needs neither managers nor the network."""

    __slots__ = ()


class AwaitingWait(UserCodeWait):
    """A wait for an awaitable of user code, which the calling task awaits. Its error is raised at the `yield`."""

    __slots__ = ("awaitable", "result")

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        super().__init__(FOREVER)
        self.awaitable = awaitable
        self.result: Any = None  # of the awaitable, after the wait


class UserCode:
    """A task that runs callbacks, and the promise of its end."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], components: ClientComponents) -> None:
        self.ended: Promise[None] = Promise()
        self.awaited = False  # an operation waits for the end
        self._components = components
        self._task = asyncio.get_running_loop().create_task(coroutine)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.ended.set_result(None)
        self._components.end_wait()

    def wait(self, deadline: float = FOREVER) -> Operation[None]:
        """Wait until the task has ended, at most until `deadline` (ms). Raises the error of the task.

        If the wait is cancelled, the task continues.
        """
        clock = self._components.clock
        self.awaited = True
        try:
            while not self.ended.done and clock.now() < deadline:
                yield UserCodeWait(deadline, self.ended)
        finally:
            self.awaited = False
        if self.ended.done and not self._task.cancelled():  # the event loop cancels all tasks when it ends
            self._task.result()


class AsyncCallbacks(Callbacks):
    """The listener of the current subscription, and the queue of commit callbacks, for asynchronous user code."""

    def __init__(self, parts: ClientComponents) -> None:
        super().__init__(parts)
        self._rebalancing: UserCode | None = None  # runs rebalance callbacks
        self._committing: UserCode | None = None  # runs commit callbacks

    @property
    def inside(self) -> bool:
        """True if the calling task runs inside a callback of this consumer, or was created by one."""
        started = self._rebalancing is not None or self._committing is not None or self.running
        return started and id(self) in _calling.get()

    # --- rebalance callbacks ---------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """True if a rebalance callback must be run, and none was started. The network thread asks, too."""
        return self._rebalancing is None and super().due

    @property
    def unfinished(self) -> bool:
        """True if a callback was started, but its result was not taken. A later poll waits for it."""
        return self._rebalancing is not None

    def run_due(self) -> Operation[None]:
        """Run the rebalance callbacks that are due in a task, after the task of a cancelled poll."""
        yield from self.settle()
        group = self._components.group
        if self.due and group is not None:
            self._rebalancing = UserCode(self._run_due(group), self._components)
        yield from self.settle()

    def settle(self, deadline: float = FOREVER) -> Operation[None]:
        """Wait for the end of the rebalance callbacks that were started, at most until `deadline` (ms).

        Raises their error.
        """
        user_code = self._rebalancing
        if user_code is None:
            return
        try:
            yield from user_code.wait(deadline)
        finally:
            if user_code.ended.done:
                self._rebalancing = None

    async def _run_due(self, group: Group) -> None:
        clock = self._components.clock
        began = clock.now()
        first_error: Exception | None = None
        while (callback := self._start_due(group)) is not None:
            error = await self._run(group, callback)
            with self._components.changing():
                group.membership.callback_done(callback, clock.now(), error)
            first_error = first_error or error
        self._notify_ran(began)
        if first_error is not None:
            raise first_error

    def run_leaving(self, group: Group, callback: RebalanceCallback) -> Operation[None]:
        async def run() -> None:
            error = await self._run(group, callback)
            if error is not None:
                raise error

        yield from UserCode(run(), self._components).wait()

    async def _run(self, group: Group, callback: RebalanceCallback) -> Exception | None:
        """Run a rebalance callback. Returns the exception that it raised, or None."""
        clock = self._components.clock
        began = clock.now()
        before = self.running, self.revoking
        _calling.set(_calling.get() | {id(self)})
        self.running = True
        self.revoking |= callback.kind is not CallbackKind.ASSIGNED
        try:
            result = self._call(callback)
            if isinstance(result, Awaitable):
                await _end_of(result)
        except Exception as error:  # user code may raise anything
            return error
        finally:
            self.running, self.revoking = before
            if self.listener is not None:
                now = clock.now()
                group.metrics.callback_ran(callback.kind.value, now - began, now)
        return None

    # --- commit callbacks ------------------------------------------------------------------------------------------

    @property
    def commits_pending(self) -> bool:
        """True if a commit callback is queued, or the result of a started one was not taken."""
        return bool(self._commits) or self._committing is not None

    def run_commits(self) -> Operation[None]:
        """Call the commit callbacks in the order in which their commits finished.

        Returns at once inside a callback, and while another operation waits for a commit callback.
        """
        while self._commits and self._committing is None:
            with HandlersRunning():
                callback = self._next_commit()
                result = None if callback is None else callback()
            if isinstance(result, Awaitable):
                self._committing = UserCode(self._run_commits(result), self._components)
        user_code = self._committing
        if user_code is None or user_code.awaited or self.inside:
            return
        try:
            yield from user_code.wait()
        finally:
            if user_code.ended.done:
                self._committing = None

    async def _run_commits(self, first: Awaitable[object]) -> None:
        """Await the result of a commit callback, then call the others that are queued."""
        _calling.set(_calling.get() | {id(self)})
        await _end_of(first)
        while self._commits:
            callback = self._next_commit()
            result = None if callback is None else callback()
            if isinstance(result, Awaitable):
                await _end_of(result)


async def _end_of(result: Awaitable[object]) -> None:
    """Await the result of a callback. Raises StateError if it raises CancelledError, and its task was not cancelled.

    A callback raises CancelledError if it awaits a task that it has cancelled. If this error ended the callback's task,
    the callback would count as not run, and would be run again and again.
    """
    try:
        await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise StateError(
            "a callback raised CancelledError, for it awaited a task that was cancelled; suppress this error there"
        ) from error
