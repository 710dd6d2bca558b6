"""Which broker coordinates the group.

Decides when to ask (while someone wants to know, and after the coordinator was lost) and what an answer
means. It does not decide when a coordinator is lost: the managers that talk to it call `mark_unknown`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kconsumer.backoff import ExponentialBackoff, RetryTimer
from kconsumer.config.option_groups import RetryConfig
from kconsumer.coordinator.error_actions import FIND_COORDINATOR_ACTIONS, GroupErrorAction
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import KafkaError, ProtocolError, error_for
from kconsumer.managers import PollResult, Reply, UnsentRequest
from kconsumer.schema import FIND_COORDINATOR
from kconsumer.schema.metadata import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kconsumer.types import Node

GROUP_KEY = 0  # the kind of coordinator: 0 of a group, 1 of a transaction
MIN_BATCHED_VERSION = 4

_log = get_logger(__name__)


class CoordinatorManager:
    """Finds the coordinator of one group (Java `CoordinatorRequestManager`).

    Set `lookup_requested` while the coordinator is needed; nothing is asked otherwise. `on_found` listeners run with
    `now` when a coordinator was found. `last_error` is that of the last lookup, None once one succeeds;
    `lost_because` says why the coordinator is being looked up again.
    """

    def __init__(self, config: RetryConfig, group_id: str, rng: random.Random | None = None) -> None:
        self.lookup_requested = False  # nothing is requested otherwise
        self.coordinator: Node | None = None
        self.on_found: list[Callable[[float], None]] = []
        self.last_error: KafkaError | None = None
        self.lost_because = ""
        self.unknown_since: float | None = None
        self._group_id = group_id
        self._retry_backoff_ms: float = config.retry_backoff_ms
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        self._quiet_until = 0.0
        self._in_flight = False
        self._lost: str | None = None  # the connection to the coordinator that was lost, until it is closed
        self._fatal: KafkaError | None = None

    @property
    def connection_id(self) -> str | None:
        """The connection id of the coordinator: one of its own, so that a long fetch cannot delay
        heartbeats."""
        return None if self.coordinator is None else f"+{self.coordinator.id}"

    def describe(self) -> str:
        """The coordinator in words, or why it is not known, for error messages."""
        if self.coordinator is not None:
            return str(self.coordinator)
        reason = self.last_error or self.lost_because
        return f"unknown: {reason}" if reason else "unknown"

    def request_lookup(self, needed: bool = True) -> None:
        """Look the coordinator up while it is needed and unknown."""
        self.lookup_requested = needed

    def poll(self, now: float) -> PollResult:
        """What to send at `now` (ms)."""
        lost, self._lost = self._lost, None
        if self.coordinator is not None or not self.lookup_requested or self._in_flight:
            return PollResult(disconnect=lost)
        if self.unknown_since is None:
            self.unknown_since = now
        wait = max(self._backoff.until, self._quiet_until) - now
        if wait > 0:
            return PollResult(wait_ms=wait, disconnect=lost)
        self._in_flight = True
        message = FindCoordinatorRequest(key=self._group_id, key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        return PollResult([UnsentRequest(FIND_COORDINATOR, message, self._on_reply)], disconnect=lost)

    def mark_unknown(self, reason: str | KafkaError, now: float) -> None:
        """The coordinator is gone or is another one; `reason` is kept for `describe`.

        Its connection is closed with the next `poll`. Else a heartbeat without an answer would be waited for until
        `request_timeout_ms`, also after the coordinator was found again, and would then count against the new one.
        """
        self.lost_because = str(reason)
        if self.coordinator is not None:
            _log.info("lost coordinator %s of group %s: %s", self.coordinator, self._group_id, reason)
            self._lost = self.connection_id
            self.coordinator = None
            self.unknown_since = now

    def take_error(self) -> KafkaError | None:
        """An error for the user's next call, once. Looking up goes on, after a backoff."""
        error, self._fatal = self._fatal, None
        return error

    def _on_reply(self, reply: Reply) -> None:
        self._in_flight = False
        if reply.error is not None:
            self._failed(reply.error, reply.now, final=not reply.error.retriable)
            return
        answer = self._own_row(reply)
        if answer is None:
            error: KafkaError = ProtocolError(f"the answer about the coordinator does not name group {self._group_id}")
            self._failed(error, reply.now, final=True)
        elif answer.error_code:
            about = f"coordinator of group {self._group_id}"
            told = f"{about}: {answer.error_message}" if answer.error_message else about
            error = error_for(answer.error_code, told, operation="Describe")
            final = FIND_COORDINATOR_ACTIONS[answer.error_code] is GroupErrorAction.RAISE
            self._failed(error, reply.now, final=final)
        else:
            self._found(Node(answer.node_id, answer.host, answer.port), reply.now)

    def _own_row(self, reply: Reply) -> FindCoordinatorResponse | Coordinator | None:
        if reply.version < MIN_BATCHED_VERSION:
            old: FindCoordinatorResponse = reply.message
            return old
        message: FindCoordinatorResponse = reply.message
        return next((c for c in message.coordinators if c.key == self._group_id), None)

    def _found(self, node: Node, now: float) -> None:
        self.coordinator = node
        self.unknown_since = None
        self.last_error = None
        self.lost_because = ""
        _log.info("found coordinator %s of group %s", node, self._group_id)
        self._backoff.reset()
        # A broker that names itself and then refuses would otherwise be asked without pause.
        self._quiet_until = now + self._retry_backoff_ms
        for listener in self.on_found:
            listener(now)

    def _failed(self, error: KafkaError, now: float, *, final: bool) -> None:
        self.last_error = error
        self._backoff.failed(now)
        if final:
            self._fatal = error

    def __repr__(self) -> str:
        doing = ", looking up" if self._in_flight else ""
        return f"<CoordinatorManager of {self._group_id}: {self.describe()}{doing}>"
