"""Decides the steps of close(), their order, and how long each may take.

Every step runs, even if an earlier one raised, and all share one timer. The first error is raised at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Protocol, TypeAlias

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Timer
from kconsumer._internal.managers import Promise, UnsentRequest
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.components import Components, Group
from kconsumer.engine.driver import Driver
from kconsumer.engine.operations import Operations, track_completion
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import KafkaError

log = get_logger(__name__)

Step: TypeAlias = "Callable[[], Operation[None] | None]"  # returns an operation if the step must wait

MAX_JOIN_WAIT_INTERVALS = 2  # the wait for the end of a join, in heartbeat intervals
COORDINATOR_LOOKUP_LIMIT_MS = 1000.0  # how long close() looks up a lost coordinator
SESSION_CLOSE_TIMEOUT_MS = 1000.0  # how long close() waits for the end of fetch sessions
TELEMETRY_CLOSE_TIMEOUT_MS = 1000.0  # how long close() waits for the response to the last push of telemetry


class ClosingEngine(Protocol):
    """The parts of an engine that its close uses."""

    components: Components
    operations: Operations

    @property
    def callbacks(self) -> Callbacks:
        """The callbacks of rebalances and commits."""

    def ended(self) -> None:
        """Record that the engine has ended."""


class CloseSequence:
    """The steps that close one engine."""

    def __init__(self, engine: ClosingEngine, driver: Driver, timer: Timer) -> None:
        self._engine = engine
        self._driver = driver
        self._timer = timer
        self._components = engine.components
        self._config = engine.components.config
        self._ending_sessions: Collection[Promise[None]] = ()

    def run(self, leave_group: bool | None, *, auto_commit: bool) -> Operation[None]:
        """Commit if `auto_commit` is True, leave the group, end the fetch sessions, and close the connections.

        `_steps` has the exact order. Every step runs, and the first error of a step is raised at the end.
        """
        first_error: Exception | None = None
        try:
            for step in self._steps(leave_group, auto_commit=auto_commit):
                try:
                    waits = step()
                    if waits is not None:
                        yield from waits
                except Exception as error:  # the remaining steps must run after any error of a callback or a broker
                    log.warning("closing the consumer: %s", error)
                    first_error = first_error or error
        finally:  # also after Ctrl-C, which skips the remaining steps: end threads and close sockets
            self._driver.stop()
            with self._components.changing():
                self._components.subscription.unsubscribe()
                self._components.buffer.clear()
                self._driver.close_connections()
            self._engine.ended()
        if first_error is not None:
            raise first_error

    def _steps(self, leave_group: bool | None, *, auto_commit: bool) -> list[Step]:
        return [
            self._push_telemetry,
            self._end_sessions,
            *([self._commit] if auto_commit else []),
            self._finish_async_commits,
            self._driver.end_heartbeats,
            self._find_coordinator,
            partial(self._engine.operations.leave, "the consumer closed", leave_group, closing=True),
            self._await_leave,
            self._await_sessions,
            self._await_telemetry,
            self._driver.end_threads,
        ]

    def _push_telemetry(self) -> None:
        """Send the last metrics if a broker has requested any. This is first, while the partitions have metrics."""
        parts = self._components
        with parts.changing():
            parts.telemetry.begin_close()
            if not parts.telemetry.ended:
                self._driver.push_telemetry(parts.clock.now(), self._submit)

    def _end_sessions(self) -> None:
        """To each connected broker, send the request that ends its fetch session.

        This is an early step, because another connection may have to be opened for it: behind a fetch in flight, the
        request would wait for up to `fetch_max_wait_ms`. The other steps run meanwhile.
        """
        parts, client = self._components, self._components.client
        with parts.changing():
            requests = [r for r in parts.fetch.close() if r.node and client.api_versions(r.node) is not None]
            self._ending_sessions = [track_completion(request) for request in requests]
            if requests:
                self._submit(requests, parts.clock.now())

    def _submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send requests over connections on which they do not wait behind a fetch. The caller holds the lock."""
        chosen = list(requests)
        for request in chosen:
            if request.node is not None:
                request.send_over(self._components.client.free_connection(request.node))
        self._driver.submit(chosen, now)

    def _commit(self) -> Operation[None]:
        group, operations = self._components.group, self._engine.operations
        if group is None or not group.commits.auto_commit_enabled:
            return
        if self._components.subscription.is_group_managed:
            yield from self._finish_join(group)
            if not group.member.may_commit:
                return
        if self._timer.expired:  # close(timeout=0): the commit is sent, and its response is not waited for
            operations.commit_async(None, None)
            return
        try:
            yield from operations.commit(None, self._timer, automatic=True)
        except KafkaError as error:
            log.warning("group %s: auto-commit on close failed: %s", group.member.group_id, error)

    def _finish_join(self, group: Group) -> Operation[None]:
        """Wait until a join in flight has ended, because a commit is not possible during a join.

        A cooperative member continues to read while it joins, so there may be positions to commit. A join takes about
        one heartbeat interval, because the other members rejoin after the response to their next heartbeat.
        """
        limit = self._limit(MAX_JOIN_WAIT_INTERVALS * self._config.heartbeat_interval_ms)
        callbacks = self._engine.callbacks  # if one is due, the join waits for it, and `leave` runs another one
        while group.member.rebalancing and not callbacks.due and self._has_read() and not limit.expired:
            yield Wait(limit.deadline, joining=True)

    def _has_read(self) -> bool:
        """Returns True if there are positions to commit."""
        with self._components.lock:
            return bool(self._components.positions.all_consumed())

    def _finish_async_commits(self) -> Operation[None]:
        group = self._components.group
        if group is None:
            return
        while group.commits.pending_commits() and not self._timer.expired:
            yield Wait(self._timer.deadline)
        yield from self._engine.callbacks.run_commits()

    def _find_coordinator(self) -> Operation[None]:
        """Look up the coordinator again if the connection to it was lost. Waits at most COORDINATOR_LOOKUP_LIMIT_MS.

        Only the coordinator accepts a LeaveGroup request. Without one, the member stays in the group until its session
        times out.
        """
        group = self._components.group
        if group is None or not group.heartbeat.may_be_member:
            return
        limit = self._limit(COORDINATOR_LOOKUP_LIMIT_MS)
        while group.coordinator.connection_id is None and not limit.expired:
            group.coordinator.request_lookup()
            yield Wait(limit.deadline)

    def _await_leave(self) -> Operation[None]:
        """Wait for the response to LeaveGroup, but not for responses to other requests."""
        promise = self._engine.operations.leave_promise
        if promise is not None:
            yield from self._await(lambda: promise.done)

    def _await_sessions(self) -> Operation[None]:
        """Wait until the brokers have ended their fetch sessions, at most SESSION_CLOSE_TIMEOUT_MS.

        A session that is not ended takes room in the broker's cache until the broker evicts it.
        """
        yield from self._await(lambda: all(end.done for end in self._ending_sessions), SESSION_CLOSE_TIMEOUT_MS)

    def _await_telemetry(self) -> Operation[None]:
        """Wait for the response to the last push, at most TELEMETRY_CLOSE_TIMEOUT_MS."""
        telemetry = self._components.telemetry
        yield from self._await(lambda: telemetry.ended, TELEMETRY_CLOSE_TIMEOUT_MS)
        telemetry.end()

    def _await(self, ended: Callable[[], bool], limit_ms: float = math.inf) -> Operation[None]:
        """Wait until `ended()` is True, but not longer than `limit_ms` or `request_timeout_ms`. Polls no managers."""
        limit = self._limit(min(limit_ms, float(self._config.request_timeout_ms)))
        while not limit.expired and not ended():
            yield Wait(limit.deadline, managers=False)

    def _limit(self, limit_ms: float) -> Timer:
        return Timer(self._components.clock, min(self._timer.remaining_ms(), limit_ms))
