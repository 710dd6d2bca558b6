"""Closing a consumer: which steps, in which order, and how long each may take.

Every step runs whatever happened in the one before it, all within one timer; the first error is raised at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from kconsumer.clock import Timer
from kconsumer.deferred_calls import get_logger
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.components import Group
from kconsumer.errors import KafkaError

if TYPE_CHECKING:
    from kconsumer.engine.base import Engine

log = get_logger(__name__)

MAX_JOIN_WAIT_INTERVALS = 2  # heartbeat intervals that close() waits for a join under way
COORDINATOR_LOOKUP_LIMIT_MS = 1000.0  # that close() looks for a coordinator that is lost
SESSION_CLOSE_TIMEOUT_MS = 1000.0  # that close() waits for the end of a fetch session beyond the usual time of a fetch


class CloseSequence:
    """The end of one engine, driven by `driver` on the caller's thread."""

    def __init__(self, engine: Engine, driver: ClassicDriver, timer: Timer) -> None:
        self._engine = engine
        self._driver = driver
        self._timer = timer
        self._components = engine.components
        self._config = engine.components.config
        self._ending_sessions: Collection[str] = ()

    def run(self, leave_group: bool | None, *, auto_commit: bool) -> None:
        """Commit, leave, close."""
        steps: list[Callable[[], object]] = [
            self._end_sessions,
            *([self._commit] if auto_commit else []),
            self._finish_async_commits,
            self._driver.stop,
            self._find_coordinator,
            partial(self._engine.leave, "the consumer closed", leave_group),
            self._await_leave,
            self._await_sessions,
        ]
        trouble: Exception | None = None
        try:
            for step in steps:
                try:
                    step()
                except Exception as error:  # whatever a callback or a broker did, the remaining steps must run
                    log.warning("closing the consumer: %s", error)
                    trouble = trouble or error
        finally:  # Ctrl-C ends the steps, but leaves neither thread nor sockets behind
            self._driver.stop()
            with self._components.changing():
                self._components.subscription.unsubscribe()
                self._components.buffer.clear()
                self._components.client.close()
            self._engine.ended()
        if trouble is not None:
            raise trouble

    def _end_sessions(self) -> None:
        """Tell connected brokers that nothing more will be fetched. First of all steps, because each answers the
        fetch under way before, which may wait there for `fetch_max_wait_ms`."""
        parts, client = self._components, self._components.client
        with parts.changing():
            now = parts.clock.now()
            requests = [r for r in parts.fetch.close() if r.node and client.api_versions(r.node) is not None]
            parts.dispatcher.submit([r for r in requests if r.node and client.ready(r.node, now)], now)
            self._ending_sessions = [r.node for r in requests if r.node]

    def _commit(self) -> None:
        group = self._components.group
        if group is None or not group.commits.auto_commit_enabled:
            return
        if self._components.subscription.is_group_managed:
            self._finish_join(group)
            if not group.member.may_commit:
                return
        if self._timer.expired:  # close(timeout=0): it is sent, but nobody waits for the answer
            self._engine.commit_async(None, None)
            return
        try:
            self._engine.commit(None, self._timer, automatic=True)
        except KafkaError as error:
            log.warning("group %s: auto-commit on close failed: %s", group.member.group_id, error)

    def _finish_join(self, group: Group) -> None:
        """Let a join under way end before leaving: a cooperative member goes on reading while it joins, and what it
        read can be committed only before the join or after it. The others hear of the join by their next heartbeat.
        """
        limit = self._limit(MAX_JOIN_WAIT_INTERVALS * self._config.heartbeat_interval_ms)
        while group.member.rebalancing and self._has_read() and not limit.expired:
            self._driver.run_once(limit.remaining_ms(), joining=True)

    def _has_read(self) -> bool:
        """Whether there is anything to commit."""
        with self._components.lock:
            return bool(self._components.subscription.all_consumed())

    def _finish_async_commits(self) -> None:
        group = self._components.group
        if group is None:
            return
        while group.commits.pending_commits() and not self._timer.expired:
            self._driver.run_once(self._timer.remaining_ms())
        self._engine.callbacks.run_commits()

    def _find_coordinator(self) -> None:
        """A coordinator that is lost just now is looked for, but not long: a member that cannot say that it leaves is
        missed after its session only."""
        group = self._components.group
        if group is None or not group.member.in_group:
            return
        limit = self._limit(COORDINATOR_LOOKUP_LIMIT_MS)
        while group.coordinator.connection_id is None and not limit.expired:
            group.coordinator.lookup_requested = True
            self._driver.run_once(limit.remaining_ms())

    def _await_leave(self) -> None:
        """Let the LeaveGroup go out and be answered; nothing else in flight is waited for."""
        left = self._engine.leave_promise
        if left is not None:
            self._await(lambda: left.done)

    def _await_sessions(self) -> None:
        """Let the brokers take note of the end of their fetch sessions. It is a courtesy: a broker that does not answer
        in the usual time is not waited for longer."""
        in_flight = self._components.client.in_flight
        limit_ms = self._config.fetch_max_wait_ms + SESSION_CLOSE_TIMEOUT_MS
        self._await(lambda: not any(map(in_flight, self._ending_sessions)), limit_ms)

    def _await(self, ended: Callable[[], bool], limit_ms: float = math.inf) -> None:
        """Let the network go on until something has ended, at most for `request_timeout_ms`."""
        limit = self._limit(min(limit_ms, float(self._config.request_timeout_ms)))
        while not limit.expired and not ended():
            self._driver.wait_for_network(limit.remaining_ms())

    def _limit(self, limit_ms: float) -> Timer:
        return Timer(self._components.clock, min(self._timer.remaining_ms(), limit_ms))
