"""FindCoordinator: finds the broker that coordinates the group.

Decides when to send the request, and how to handle the response. The request is sent while the coordinator is unknown
and another manager needs it. The managers that send requests to the coordinator decide when it is lost, and then call
`mark_unknown`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import ErrorSource, PollResult, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import RetryConfig
from kconsumer.coordinator.error_actions import FIND_COORDINATOR_ACTIONS, GroupErrorAction
from kconsumer.coordinator.error_hints import FIND_COORDINATOR_HINTS
from kconsumer.errors import KafkaError, ProtocolError, error_for
from kconsumer.schema.metadata import FIND_COORDINATOR, Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kconsumer.types import Node

GROUP_KEY = 0  # the key type: 0 for group coordinators, 1 for transaction coordinators
MIN_BATCHED_VERSION = 4  # the first version with a list of coordinators in the response

_log = get_logger(__name__)


class CoordinatorManager(ErrorSource):
    """Finds the coordinator of one group (Java's `CoordinatorRequestManager`)."""

    def __init__(self, config: RetryConfig, group_id: str, rng: random.Random | None = None) -> None:
        self.lookup_requested = False  # FindCoordinator is sent only while this is True
        self.coordinator: Node | None = None
        self.on_found: list[Callable[[float], None]] = []  # called with the time (ms) when it was found
        self.on_failed: list[Callable[[KafkaError], None]] = []  # called with the error of each lookup that failed
        self.last_error: KafkaError | None = None  # the error of the last lookup; None if it succeeded
        self.lost_because = ""  # the last reason given to `mark_unknown`; empty after a lookup succeeds
        self.progress = Progress(f"group {group_id!r}", "the coordinator", FIND_COORDINATOR_HINTS)
        self._group_id = group_id
        self._retry_backoff_ms: float = config.retry_backoff_ms
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        self._quiet_until = 0.0  # ms; no lookup before this time
        self._in_flight = False
        self._closing: str | None = None  # the connection that the next poll closes

    @property
    def connection_id(self) -> str | None:
        """The id of the connection to the coordinator, or None while it is unknown.

        The coordinator has a connection of its own, so that a long fetch from the same broker does not delay
        heartbeats.
        """
        return None if self.coordinator is None else f"+{self.coordinator.id}"

    def describe(self) -> str:
        """Returns a text for error messages: the coordinator, or the reason why it is unknown."""
        if self.coordinator is not None:
            return str(self.coordinator)
        reason = self.last_error or self.lost_because
        return f"unknown: {reason}" if reason else "unknown"

    def request_lookup(self, needed: bool = True) -> None:
        """Make `poll` look up the coordinator whenever it is unknown. `needed=False` stops these lookups."""
        self.lookup_requested = needed
        if not needed:
            self.progress.done()

    def poll(self, now: float) -> PollResult:
        """Returns the FindCoordinator request if one is due.

        If the coordinator was lost, or `close_connection` was called, the result also contains the id of the connection
        to it. The engine then closes this connection.
        """
        closing, self._closing = self._closing, None
        if self.coordinator is not None or not self.lookup_requested or self._in_flight:
            return PollResult(disconnect=closing)
        self.progress.begin(now)
        wait = max(self._backoff.until, self._quiet_until) - now
        if wait > 0:
            return PollResult(wait_ms=wait, disconnect=closing)
        self._in_flight = True
        self.progress.requested(now)
        message = FindCoordinatorRequest(key=self._group_id, key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        return PollResult([UnsentRequest(FIND_COORDINATOR, message, self._on_reply)], disconnect=closing)

    def mark_unknown(self, reason: str | KafkaError, now: float) -> None:
        """Forget the coordinator, because it does not respond or another broker is the coordinator now.

        The next `poll` closes the connection to it. If the connection stayed open, a heartbeat in flight would time out
        only after `request_timeout_ms`. By then the next coordinator may be known, and would be marked as unknown, too.
        """
        self.lost_because = str(reason)
        if self.coordinator is not None:
            _log.info("lost coordinator %s of group %s: %s", self.coordinator, self._group_id, reason)
            self._closing = self.connection_id
            self.coordinator = None
            self.progress.begin(now)

    def close_connection(self) -> None:
        """Make the next `poll` close the connection to the coordinator, which stays known.

        The requests in flight fail, and the next request opens another connection.
        """
        self._closing = self.connection_id or self._closing

    def _on_reply(self, reply: Reply) -> None:
        self._in_flight = False
        if reply.error is not None:
            self._failed(reply.error, reply.now, final=not reply.error.retriable)
            return
        found = self._own_row(reply)
        self.on_response(success=found is not None and not found.error_code)
        if found is None:
            error: KafkaError = ProtocolError(f"the FindCoordinator response does not name group {self._group_id}")
            self._failed(error, reply.now, final=True)
        elif found.error_code:
            about = f"coordinator of group {self._group_id}"
            message = f"{about}: {found.error_message}" if found.error_message else about
            error = error_for(found.error_code, message, operation="Describe")
            final = FIND_COORDINATOR_ACTIONS[found.error_code] is GroupErrorAction.RAISE
            self._failed(error, reply.now, final=final)
        else:
            self._found(Node(found.node_id, found.host, found.port), reply.now)

    def _own_row(self, reply: Reply) -> FindCoordinatorResponse | Coordinator | None:
        if reply.version < MIN_BATCHED_VERSION:
            old: FindCoordinatorResponse = reply.message
            return old
        batched: FindCoordinatorResponse = reply.message
        return next((c for c in batched.coordinators if c.key == self._group_id), None)

    def _found(self, node: Node, now: float) -> None:
        self.coordinator = node
        self.progress.done()
        self.last_error = None
        self.lost_because = ""
        _log.info("found coordinator %s of group %s", node, self._group_id)
        self._backoff.reset()
        # A broker may name itself as the coordinator and then respond NOT_COORDINATOR. Without this pause, lookups and
        # requests would follow each other without end.
        self._quiet_until = now + self._retry_backoff_ms
        for listener in self.on_found:
            listener(now)

    def _failed(self, error: KafkaError, now: float, *, final: bool) -> None:
        self.last_error = error
        self.progress.failed(error, now)
        self._backoff.failed(now)
        if final:
            self.keep_error(error)
        for listener in self.on_failed:
            listener(error)

    def __repr__(self) -> str:
        doing = ", looking up" if self._in_flight else ""
        return f"<CoordinatorManager of {self._group_id}: {self.describe()}{doing}>"
