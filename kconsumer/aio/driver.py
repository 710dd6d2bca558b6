"""AsyncDriver: the driver with a network thread, for operations of several tasks that wait in an event loop.

The network thread sends heartbeats while the event loop is blocked. What it may do depends on all waits together: it
fetches while the wait of a poll is among them, although the wait of a commit may have begun later.
"""

from __future__ import annotations

import asyncio
import contextlib

from kconsumer._core.lock import Clock
from kconsumer._internal.requests import Ended
from kconsumer.aio.callbacks import AwaitingWait, UserCodeWait
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.components import ClientComponents
from kconsumer.engine.environment import Lock
from kconsumer.engine.events import MAX_WAIT_MS, ApplicationEvent, Signal
from kconsumer.engine.threaded import YIELD_MS, ThreadedDriver
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import StateError
from kconsumer.metrics.registry import Metrics
from kconsumer.schema.fetch import FETCH

CHECK_S = 1.0
"""How often (s) a wait checks the signal. A signal handler that raises in the event loop may end the callback which
would have ended the wait."""


class AsyncSignal(Signal):
    """A signal for which tasks wait without blocking their event loop. `notify` ends the waits of all tasks."""

    def __init__(self, metrics: Metrics, clock: Clock, lock: Lock) -> None:
        super().__init__(metrics, clock, lock)
        self._waiting: dict[asyncio.Future[bool], None] = {}  # in the order in which their waits began
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of the tasks that wait; None if none waits
        self.suspensions = 0  # counts the waits that have suspended a task
        self.scheduled = False  # the loop will call `_end_waits`

    def notify(self) -> None:
        super().notify()
        # After the signal was set: a task adds itself first, and then checks the signal. One of both sees the other.
        loop = self._loop
        if loop is not None and not self.scheduled:
            self.scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop was closed while a task waited
                loop.call_soon_threadsafe(self._end_waits)

    async def wait_async(self, timeout_ms: float) -> bool:
        """Wait until `notify` is called. Returns True then, and False after `timeout_ms`.

        If `notify` was called since the last wait, returns True at once.
        """
        if timeout_ms <= 0:
            return self.wait(0.0)
        left_s, suspended = timeout_ms / 1000, self.suspensions
        while left_s > 0:
            part_s = min(left_s, CHECK_S)
            if await self._wait_once(part_s):
                return True
            left_s -= part_s
            self.suspensions = suspended + 1  # the parts of one wait count as one
            self.scheduled = False  # if `_end_waits` was interrupted before it began, let `notify` schedule it again
        return False

    async def _wait_once(self, timeout_s: float) -> bool:
        """Wait until `notify` is called, or for `timeout_s`. Returns whether it was called."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting[future] = None
        self._loop = loop
        try:
            if self.wait(0.0):
                return True
            self.suspensions += 1
            timer = loop.call_later(timeout_s, _end_wait, future, False)
            try:
                notified = await future
            finally:
                timer.cancel()
            return self.wait(0.0) or notified  # another task may have seen the signal first
        finally:
            del self._waiting[future]
            if not self._waiting:
                self._loop = None

    def _end_waits(self) -> None:
        self.scheduled = False
        for future in self._waiting:
            _end_wait(future, True)


def _end_wait(future: asyncio.Future[bool], notified: bool) -> None:
    if not future.done():
        future.set_result(notified)


MAX_THREAD_END_WAIT_MS = 5000.0
THREAD_END_S = 0.05  # how long the event loop is blocked if close() was cancelled, or not called


class WaitsEvent(ApplicationEvent):
    """The one event of an AsyncDriver. It allows what any of the running waits allows."""

    __slots__ = ("_may_join", "_waits", "only_polls")

    def __init__(self) -> None:
        super().__init__(active=False)
        self.only_polls = True  # every wait is that of a poll, or there is none
        self._waits: list[ApplicationEvent] = []
        self._may_join = True

    def add(self, wait: ApplicationEvent) -> None:
        self._waits.append(wait)
        self._update()

    def remove(self, wait: ApplicationEvent) -> None:
        self._waits.remove(wait)
        self._update()

    def allow_joining(self, allowed: bool) -> None:
        """Set whether any of the waits may join the group."""
        self._may_join = allowed
        self._update()

    def _update(self) -> None:
        self.joining = self._may_join and any(wait.joining for wait in self._waits)
        self.fetching = any(wait.fetching for wait in self._waits)
        self.only_polls = all(wait.fetching for wait in self._waits)
        self.active = bool(self._waits)


class AsyncDriver(ThreadedDriver):
    """Makes tasks wait while a network thread polls the managers and uses the sockets."""

    def __init__(self, parts: ClientComponents, callbacks: Callbacks) -> None:
        super().__init__(parts, callbacks)
        self._waits = WaitsEvent()
        self._closing = False

    @property
    def suspensions(self) -> int:
        """The number of times that a wait has suspended a task."""
        return self._changed.suspensions

    def _make_signal(self) -> AsyncSignal:
        parts = self._components
        self._changed = AsyncSignal(parts.metrics, parts.clock, parts.environment.lock())
        return self._changed

    # --- waiting -----------------------------------------------------------------------------------------------

    async def wait_async(self, wait: Wait) -> None:
        """Suspend the calling task until there is any activity, or until the deadline of the wait.

        Raises StateError if the consumer was closed meanwhile. A poll raises it as soon as close() has begun. A wait
        for user code raises nothing: if this code has closed the consumer, the poll returns no records.
        """
        timeout_ms = min(max(0.0, wait.deadline - self._clock.now()), MAX_WAIT_MS)
        if isinstance(wait, AwaitingWait):
            wait.result = await wait.awaitable
            return
        if isinstance(wait, UserCodeWait):
            await self._changed.wait_async(timeout_ms)
            return
        self._check_wait(wait)
        if not wait.managers and not self._closing:
            await self._wait_for_records(timeout_ms)
        else:
            await self._wait_for_change(wait, timeout_ms)
        self._check_wait(wait)

    async def _wait_for_change(self, wait: Wait, timeout_ms: float) -> None:
        may_join = not self._callbacks.running
        event = ApplicationEvent(wait.joining and may_join, wait.fetching and may_join)
        self._waits.add(event)
        try:
            wait_ms = self._begin_wait(wait, self._waits, timeout_ms)
            if self.wakeup_requested and wait_ms <= 0:
                # An operation that ignores a wakeup would not let other tasks run, and may wait for one of them.
                wait_ms = min(timeout_ms, YIELD_MS)
            if event.fetching:
                wait_ms = self._until_auto_commit(wait_ms)
            await self._changed.wait_async(wait_ms)
        finally:
            self._waits.remove(event)

    def _until_auto_commit(self, wait_ms: float) -> float:
        """Returns the time (ms) that a poll may wait, at most until it has to start an auto-commit.

        If the last one is still in flight, its response ends the wait.
        """
        group = self._components.group
        if group is None:
            return wait_ms
        left_ms = group.commits.auto_commit_due - self._clock.now()
        return min(wait_ms, left_ms) if left_ms > 0 else wait_ms

    async def _wait_for_records(self, timeout_ms: float) -> None:
        """Wait for records, a wakeup, callbacks or an error. The network thread continues to poll managers."""
        event = ApplicationEvent(joining=False, fetching=True)
        until = self._clock.now() + timeout_ms
        self._waits.add(event)
        try:
            while timeout_ms > 0 and await self._changed.wait_async(timeout_ms):
                if self._has_changes():
                    return
                timeout_ms = until - self._clock.now()
        finally:
            self._waits.remove(event)

    def _notify_of(self, responses: list[Ended]) -> None:
        """Do the same as `ThreadedDriver._notify_of`, unless only polls wait, and the responses have changed nothing.

        An idle consumer gets a Fetch response without records every `fetch_max_wait_ms`. If it ended the wait of the
        poll, the poll would wait again, and wake the network thread for that. A call that is about to wait for a
        request adds its wait before it checks whether the request has ended. So either this method sees the wait, or
        the call sees the end of the request.
        """
        if responses and self._waits.only_polls and all(map(_is_empty_fetch, responses)) and not self._has_changes():
            return
        super()._notify_of(responses)

    @property
    def _stalled(self) -> bool:
        # If another task blocks the event loop for a long time, no records are processed, although a poll waits.
        return self._changed.scheduled

    def _has_changes(self) -> bool:
        return self._closing or super()._has_changes()

    def _check_wait(self, wait: Wait) -> None:
        self._check_open()
        if wait.joining and wait.fetching:
            self.check_poll()

    def check_poll(self) -> None:
        """Raise StateError if close() has begun during a poll."""
        if self._closing:
            raise StateError("this consumer was closed while poll() was waiting, by another task or a callback")

    def yield_to_network(self, timeout_ms: float) -> None:
        """Do nothing, because this would block the event loop. `yield_to_network_async` suspends the task."""

    async def yield_to_network_async(self) -> None:
        """Do the same as `ThreadedDriver.yield_to_network`, but let other tasks run meanwhile."""
        if not self._components.buffer.has_data():
            return
        self._changed.wait(0.0)
        self._yielding = True
        try:
            if self.has_urgent_io:
                await self._changed.wait_async(YIELD_MS)
        finally:
            self._yielding = False
            self._changed.notify()

    def allow_joining(self, allowed: bool) -> None:
        """Set whether waits may join the group. They must not while one task leaves and another one waits in poll().

        The member would join again between LeaveGroup and the end of the subscription.
        """
        self._waits.allow_joining(allowed)
        if allowed:
            # A poll that was resumed by the response to LeaveGroup may have waited again before the subscription ended.
            # No response would resume it then, as nothing is fetched any more.
            self._changed.notify()

    # --- ending ------------------------------------------------------------------------------------------------

    def release_to_caller(self, timeout_s: float) -> ClassicDriver | None:
        """Returns None, because the network thread serves close(), too."""
        return None

    def close_began(self) -> None:
        """Let waiting polls raise StateError, fetch no more, and ignore `wakeup` from now on."""
        self._closing = True
        self._fetch_until = 0.0
        self.disable_wakeup()
        self._end_wait()

    def end_threads(self) -> Operation[None]:
        """Returns an operation that waits for the end of the network thread, at most MAX_THREAD_END_WAIT_MS."""
        self._retired = True
        network = self._network
        if network is None:
            return
        network.when_ended(self._changed.notify)
        network.stop(0.0)
        limit = self._clock.now() + MAX_THREAD_END_WAIT_MS
        while network.is_alive() and self._clock.now() < limit:
            yield Wait(min(limit, self._clock.now() + YIELD_MS), managers=False)

    def close_connections(self) -> None:
        """Close all connections. If the network thread still runs, it closes them when it ends."""
        network, self._network = self._network, None
        if network is not None and not network.stop(THREAD_END_S):
            network.when_ended(self._components.client.close)
        else:
            self._components.client.close()

    def stop(self) -> None:
        """End the network thread. Blocks the event loop for at most THREAD_END_S, if the thread is in a system call."""
        self._retired = True
        if self._network is not None:
            self._network.stop(THREAD_END_S)


def _is_empty_fetch(ended: Ended) -> bool:
    """Returns True for a Fetch response that reports no partition and no error."""
    request, reply = ended
    if reply.error is not None or request.api is not FETCH:
        return False
    return not reply.message.responses and reply.message.error_code == 0
