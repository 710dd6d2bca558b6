"""Runs rebalance callbacks and commit callbacks, on the calling thread and without the lock.

Decides the order of callbacks and how their exceptions are handled. The membership manager decides when a rebalance
callback is due.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.deferred_signals import HandlersRunning
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback
from kconsumer.engine.components import ClientComponents, Group
from kconsumer.engine.waiting import Operation
from kconsumer.errors import KafkaError
from kconsumer.listener import RebalanceListener
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, KafkaError | None], Any]


class Callbacks:
    """The listener of the current subscription, and the queue of commit callbacks."""

    def __init__(self, parts: ClientComponents) -> None:
        self.listener: RebalanceListener | None = None
        self.observer: RebalanceListener | None = None  # called before the listener, whatever is subscribed
        self.running = False  # True inside a rebalance callback
        self.revoking = False  # True inside on_revoke or on_lost
        self.on_ran: list[Callable[[float, float], None]] = []  # called with the callbacks' duration (ms) and `now`
        self._components = parts
        self._consumer: weakref.ref[object] | None = None
        self._commits: deque[Callable[[], Any]] = deque()

    def set_listener(self, listener: RebalanceListener | None) -> None:
        """Set the listener of the current subscription, or None."""
        self.listener = listener

    def set_consumer(self, consumer: object) -> None:
        """Set the consumer that is passed to callbacks. Keeps only a weak reference to it.

        With a strong reference, a consumer that the user forgets to close would not be garbage-collected, and would
        not warn that it is unclosed.
        """
        self._consumer = weakref.ref(consumer)

    # --- rebalance callbacks ---------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """True if a rebalance callback must be run, and none is running."""
        group = self._components.group
        return group is not None and not self.running and group.membership.due_callback is not None

    @property
    def unfinished(self) -> bool:
        """True if a callback was started, but has not returned. It continues in a later poll."""
        return False

    def run_due(self) -> Operation[None]:
        """Run the rebalance callbacks that are due. After the last one, raises the first error."""
        yield from ()
        group = self._components.group
        if group is None or not self.due:
            return
        clock = self._components.clock
        began = clock.now()
        first_error: Exception | None = None
        while (callback := self._start_due(group)) is not None:
            error = self.run(group, callback)
            with self._components.changing():
                group.membership.callback_done(callback, clock.now(), error)
            first_error = first_error or error
        self._notify_ran(began)
        if first_error is not None:
            raise first_error

    def _notify_ran(self, began: float) -> None:
        """Call the functions in `on_ran`, after callbacks that were started at `began` (ms)."""
        now = self._components.clock.now()
        for listener in self.on_ran:
            listener(now - began, now)

    def run_leaving(self, group: Group, callback: RebalanceCallback) -> Operation[None]:
        """Run the last callback before the member leaves. Raises its error."""
        yield from ()
        error = self.run(group, callback)
        if error is not None:
            raise error

    def _start_due(self, group: Group) -> RebalanceCallback | None:
        """Mark the due callback as begun. Returns the callback, or None if none is due.

        Both happen under one lock. If the lock were released in between, the heartbeat thread could receive a response
        that fences the member, and another callback would be due.
        """
        with self._components.changing():
            callback = group.membership.due_callback
            if callback is not None:
                group.membership.callback_began(callback)
            return callback

    def run(self, group: Group, callback: RebalanceCallback) -> Exception | None:
        """Run a rebalance callback. Returns the exception that it raised, or None."""
        clock = self._components.clock
        began = clock.now()
        before = self.running, self.revoking
        try:
            self.running = True
            self.revoking |= callback.kind is not CallbackKind.ASSIGNED
            with HandlersRunning():
                self._call(callback)
        except (
            Exception
        ) as error:  # user code may raise anything; `run_due` raises it after the rebalance has continued
            return error
        finally:
            self.running, self.revoking = before
            if self.listener is not None:
                now = clock.now()
                group.metrics.callback_ran(callback.kind.value, now - began, now)
        return None

    def _call(self, callback: RebalanceCallback) -> Awaitable[None] | None:
        consumer = self._consumer() if self._consumer is not None else None
        if consumer is None:
            return None
        try:
            observed = _notify(self.observer, consumer, callback)
        except BaseException:  # the listener of the application runs all the same
            _notify(self.listener, consumer, callback)
            raise
        if observed is not None:
            return _after(observed, self.listener, consumer, callback)
        return _notify(self.listener, consumer, callback)

    # --- commit callbacks ------------------------------------------------------------------------------------------

    def commit_finished(self, callback: CommitCallback, offsets: Offsets, error: KafkaError | None) -> None:
        """Queue the callback of a finished commit. It runs inside a later call of the user."""
        self._commits.append(partial(callback, offsets, error))

    def committed(self, callback: Callable[[Offsets], object], offsets: Offsets) -> None:
        """Queue the interceptors' callback for a successful commit. It runs inside a later call of the user."""
        self._commits.append(partial(callback, offsets))

    def add(self, call: Callable[[], object]) -> None:
        """Queue a call of user code. It runs inside a later call of the user, in order with commit callbacks."""
        self._commits.append(call)

    @property
    def commits_pending(self) -> bool:
        return bool(self._commits)

    def run_commits(self) -> Operation[None]:
        """Call the commit callbacks in the order in which their commits finished."""
        yield from ()
        while self._commits:
            with HandlersRunning():
                callback = self._next_commit()
                if callback is not None:
                    callback()

    def _next_commit(self) -> Callable[[], object] | None:
        """Returns the next commit callback, and removes it from the queue.

        Returns None if the queue is empty: a signal handler that commits runs callbacks, too, between any two steps.
        """
        try:
            return self._commits.popleft()
        except IndexError:
            return None


async def _after(
    observed: Awaitable[None], listener: RebalanceListener | None, consumer: object, callback: RebalanceCallback
) -> None:
    """Await what the observer has returned, and then notify the listener, whatever the observer raises."""
    try:
        await observed
    finally:
        result = _notify(listener, consumer, callback)
        if result is not None:
            await result


def _notify(
    listener: RebalanceListener | None, consumer: object, callback: RebalanceCallback
) -> Awaitable[None] | None:
    if listener is None:
        return None
    methods = {
        CallbackKind.ASSIGNED: listener.on_partitions_assigned,
        CallbackKind.REVOKED: listener.on_partitions_revoked,
        CallbackKind.LOST: listener.on_partitions_lost,
    }
    return methods[callback.kind](consumer, callback.partitions)


def log_failed_commit(offsets: Offsets, error: KafkaError | None) -> None:
    """Log the error of an asynchronous commit. This is the default commit callback."""
    if error is not None:
        log.warning("an asynchronous commit failed: %s", error)
