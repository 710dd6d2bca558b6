"""Heartbeats of the classic protocol: when one is due, what its response means, and when the poll interval is exceeded.

There are three timers, as in Java. The heartbeat interval is restarted when a heartbeat is sent. The session timeout is
restarted by each response without an error, and when the coordinator is found. The poll interval is restarted by each
`poll` of the user. Inside `poll`, the calling thread drives this manager. Outside `poll`, the heartbeat thread drives
it.
"""

from __future__ import annotations

import random

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.polled_timer import PolledTimer
from kconsumer._internal.managers import FOREVER, PollResult, Reply, UnsentRequest
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.classic_protocol.leave import leave_request
from kconsumer.coordinator.classic_protocol.state import Member, MemberState
from kconsumer.coordinator.error_actions import HEARTBEAT_ACTIONS, GroupErrorAction
from kconsumer.coordinator.group_member import Generation
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.membership import AbstractHeartbeatManager
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.errors import AuthenticationError, error_for
from kconsumer.schema.classic_group import HEARTBEAT, HeartbeatRequest

log = get_logger(__name__)


class HeartbeatManager(AbstractHeartbeatManager[Member]):
    """Sends the heartbeats of a member that has joined."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: Member,
        coordinator: CoordinatorManager,
        metrics: GroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, member, coordinator, metrics, rng)
        self._in_flight = False
        self._session = PolledTimer(config.session_timeout_ms, config.heartbeat_interval_ms)

    @property
    def in_flight(self) -> bool:
        return self._in_flight

    def joined(self, now: float) -> None:
        """Restart the heartbeat interval and the session timeout, because a JoinGroup succeeded."""
        self._next_heartbeat = now + self._config.heartbeat_interval_ms
        self.reset_session_timer(now)
        self._backoff.reset()

    def reset_session_timer(self, now: float) -> None:
        self._session.start(now)

    def time_to_next_ms(self, now: float) -> float:
        """Returns the time (ms) until this manager's `poll` would return a request or handle a timeout."""
        if not self._member.heartbeating:
            return FOREVER
        if self._in_flight:
            return max(0.0, min(self._session.due_ms(now), self._poll_deadline - now))
        return max(0.0, min(max(self._next_heartbeat, self._backoff.until), self._poll_deadline) - now)

    def poll(self, now: float) -> PollResult:
        """Returns the request to send: a heartbeat if one is due, or a LeaveGroup if the poll interval is exceeded."""
        if not self._member.heartbeating:
            return PollResult()
        if now >= self._poll_deadline:
            return self._leave_on_idle_caller(now)
        if self._coordinator.connection_id is None:
            self._coordinator.request_lookup()
            return PollResult(wait_ms=max(0.0, self._poll_deadline - now))
        if self._session.poll(now):
            self._coordinator.mark_unknown("session_timeout_ms passed without a response to a heartbeat", now)
            self.reset_session_timer(now)
            return PollResult(wait_ms=0.0)
        wait_ms = self.time_to_next_ms(now)
        if self._in_flight or wait_ms > 0:
            return PollResult(wait_ms=wait_ms)
        self._in_flight = True
        self._metrics.heartbeat_sent(now)
        self._next_heartbeat = now + self._config.heartbeat_interval_ms
        return PollResult([self._request()], self.time_to_next_ms(now))

    def _leave_on_idle_caller(self, now: float) -> PollResult:
        self._on_poll_interval_exceeded()
        leave = leave_request(self._member, self._coordinator, "max_poll_interval_ms passed without a poll()")
        self._member.reset("max_poll_interval_ms passed without a poll()")
        return PollResult([leave] if leave else [])

    def _request(self) -> UnsentRequest:
        generation = self._member.generation
        message = HeartbeatRequest(
            group_id=self._member.group_id,
            generation_id=generation.id,
            member_id=generation.member_id,
            group_instance_id=self._member.group_instance_id,
        )
        return UnsentRequest(
            HEARTBEAT,
            message,
            lambda reply: self._on_reply(generation, reply),
            node=self._coordinator.connection_id,
        )

    def _on_reply(self, sent: Generation, reply: Reply) -> None:
        self._in_flight = False
        if reply.error is not None:
            if isinstance(reply.error, AuthenticationError):  # raise it before the session times out
                self.keep_error(reply.error)
            self.progress.failed(reply.error, reply.now)
            self._coordinator.mark_unknown(reply.error, reply.now)
            self._retry(reply.now)
            return
        self._metrics.on_heartbeat_response(reply.now - reply.sent_at, reply.now)
        code = reply.message.error_code
        self.on_response(success=not code)
        if code == 0:
            if self._member.state is MemberState.STABLE and self._member.rejoin_reason is None:
                self.progress.done()
            self.reset_session_timer(reply.now)
            self._backoff.reset()
            return
        self._react(HEARTBEAT_ACTIONS[code], code, sent, reply.now)

    def _react(self, reaction: GroupErrorAction, code: int, sent: Generation, now: float) -> None:
        member = self._member
        unchanged = member.generation == sent
        where = f"heartbeat in group {member.group_id!r}"
        if reaction is GroupErrorAction.COORDINATOR:
            self.progress.failed(error_for(code, where), now)
            self._coordinator.mark_unknown(error_for(code), now)
            self._retry(now)
        elif reaction is GroupErrorAction.REJOIN:
            self.reset_session_timer(now)
            if member.state is MemberState.STABLE and member.rejoin_reason is None:
                # Further heartbeats before the next poll of the user get the same error. It is one failure.
                member.request_rejoin("the group is rebalancing")
                self.progress.failed(error_for(code, where), now)
        elif reaction is GroupErrorAction.RAISE:
            self.keep_error(error_for(code, where, operation="Read"))
        elif not unchanged:
            log.debug("%s: %s for an older generation ignored", where, error_for(code))
        elif reaction is GroupErrorAction.FENCED:
            error = error_for(code, where, operation="Read")
            self.keep_error(error)
            self.progress.failed(error, now)
            member.reset(str(error_for(code)), fenced=error)
        else:
            self.progress.failed(error_for(code, where), now)
            member.reset(str(error_for(code)), keep_member_id=reaction is GroupErrorAction.RESET_KEEP_ID)
