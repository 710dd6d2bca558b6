"""Heartbeats of the consumer protocol (KIP-848): when one is due, which fields it has, and what its response means.

The same request joins the group, acknowledges assignments, keeps the member in the group, and leaves the group. A field
is sent if it changed since the last heartbeat that succeeded. After a failure all fields are sent again, because the
coordinator repeats an assignment only if a heartbeat has all fields. `manager.py` decides how to handle an assignment.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorAction, ErrorTable
from kconsumer._internal.managers import PollResult, Reply, UnsentRequest
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.consumer_protocol.state import JOIN_EPOCH, LEAVING_STATES, ConsumerMember, MemberState
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.member_epochs import MemberEpochHeartbeats
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.errors import KafkaError, UnsupportedVersionError, error_for
from kconsumer.schema.consumer_group import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kconsumer.state.subscription import SubscriptionState

log = get_logger(__name__)

FIRST_VERSION_WITH_REGEX = 1


class ConsumerHeartbeatErrorAction(ErrorAction):
    """The reaction to an error code of ConsumerGroupHeartbeat; the value describes it."""

    COORDINATOR = "look the coordinator up again, then heartbeat at once; after the backoff if that happens again"
    RETRY = "heartbeat again after the backoff"
    FENCED = "all partitions are lost: on_lost, then join again"
    REMOVED = "like a fenced member; raise from every poll if the heartbeat was to join the group"
    REPORT = "raise from poll; the member stays what it is"
    FATAL = "raise from every poll: only a new consumer helps"


HEARTBEAT_ACTIONS: ErrorTable[ConsumerHeartbeatErrorAction] = ErrorTable(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS: ConsumerHeartbeatErrorAction.RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: ConsumerHeartbeatErrorAction.COORDINATOR,
        Errors.NOT_COORDINATOR: ConsumerHeartbeatErrorAction.COORDINATOR,
        Errors.UNKNOWN_MEMBER_ID: ConsumerHeartbeatErrorAction.FENCED,
        Errors.TOPIC_AUTHORIZATION_FAILED: ConsumerHeartbeatErrorAction.REPORT,
        Errors.GROUP_AUTHORIZATION_FAILED: ConsumerHeartbeatErrorAction.REPORT,
        Errors.UNSUPPORTED_VERSION: ConsumerHeartbeatErrorAction.FATAL,
        Errors.INVALID_REQUEST: ConsumerHeartbeatErrorAction.FATAL,
        # The group may have become a classic one when this member, its last one of this protocol, was removed. Then it
        # can join again, and the group is upgraded once more. In Java, this error is fatal.
        Errors.GROUP_ID_NOT_FOUND: ConsumerHeartbeatErrorAction.REMOVED,
        Errors.GROUP_MAX_SIZE_REACHED: ConsumerHeartbeatErrorAction.FATAL,
        Errors.FENCED_INSTANCE_ID: ConsumerHeartbeatErrorAction.FATAL,
        Errors.FENCED_MEMBER_EPOCH: ConsumerHeartbeatErrorAction.FENCED,
        Errors.UNRELEASED_INSTANCE_ID: ConsumerHeartbeatErrorAction.FATAL,
        Errors.UNSUPPORTED_ASSIGNOR: ConsumerHeartbeatErrorAction.FATAL,
        Errors.INVALID_REGULAR_EXPRESSION: ConsumerHeartbeatErrorAction.FATAL,
    },
    default=ConsumerHeartbeatErrorAction.FATAL,  # even if the code is retriable, as in Java
)


class HeartbeatListener(Protocol):
    """Handles the outcomes of heartbeats."""

    def on_heartbeat_success(self, message: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """Handle a response without an error."""

    def on_fenced(self, reason: str, now: float) -> None:
        """Handle fencing: the coordinator has removed the member, or has another member epoch for it."""

    def on_fatal(self, error: KafkaError) -> None:
        """End the membership because of an error that cannot be retried."""

    def on_heartbeat_sent(self) -> None:
        """Change the member's state after a heartbeat was sent that acknowledges an assignment or leaves the group."""

    def on_poll_timer_expired(self) -> None:
        """Leave the group, because the user did not poll for `max_poll_interval_ms`."""


class SentFields:
    """The fields that the coordinator has received, so that heartbeats send only changes (Java's `HeartbeatState`)."""

    def __init__(self, config: GroupRebalanceConfig, member: ConsumerMember, subscription: SubscriptionState) -> None:
        self._config = config
        self._member = member
        self._subscription = subscription
        self._sent: dict[str, Any] = {}
        self._has_sent_regex = False  # never cleared, because the coordinator may still have the pattern

    def forget(self) -> None:
        """Forget the sent fields, so that the next heartbeat contains all fields."""
        self._sent.clear()

    @property
    def subscription_changed(self) -> bool:
        """True if the subscription differs from the one that was last sent. False if none was sent since `forget`."""
        return "topics" in self._sent and (
            self._sent["topics"] != self._subscription.subscribed_topics()
            or self._sent.get("regex", "") != (self._subscription.broker_pattern or "")
        )

    def message(self) -> ConsumerGroupHeartbeatRequest:
        """Returns the next heartbeat with the fields that have changed, and records these fields as sent.

        A heartbeat that joins the group contains all fields. One that leaves the group contains none of them.
        """
        member = self._member
        full = member.state is MemberState.JOINING
        if full:
            self.forget()
        message = ConsumerGroupHeartbeatRequest(
            group_id=member.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            instance_id=member.group_instance_id,
        )
        if member.member_epoch < JOIN_EPOCH:
            return message
        if full and self._config.client_rack:
            message.rack_id = self._config.client_rack
        if self._changed("rebalance_timeout_ms", self._config.max_poll_interval_ms):
            message.rebalance_timeout_ms = self._config.max_poll_interval_ms
        if self._changed("topics", self._subscription.subscribed_topics()):
            message.subscribed_topic_names = sorted(self._subscription.subscribed_topics())
        self._add_regex(message)
        if self._config.group_remote_assignor and self._changed("assignor", self._config.group_remote_assignor):
            message.server_assignor = self._config.group_remote_assignor
        if self._changed("partitions", member.current):
            message.topic_partitions = [
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(member.reported.items())
            ]
        return message

    def _add_regex(self, message: ConsumerGroupHeartbeatRequest) -> None:
        """Add the subscription pattern to the heartbeat if it has changed.

        An empty string removes the pattern. Without the field, the coordinator keeps its pattern for this member id. If
        the heartbeat that left the group was lost, the coordinator still has a pattern when the member joins again.
        """
        regex = self._subscription.broker_pattern or ""
        self._has_sent_regex |= bool(regex)
        if self._has_sent_regex and self._changed("regex", regex):
            message.subscribed_topic_regex = regex

    def _changed(self, name: str, value: object) -> bool:
        if name in self._sent and self._sent[name] == value:
            return False
        self._sent[name] = value
        return True


class ConsumerHeartbeatManager(MemberEpochHeartbeats[ConsumerMember]):
    """Sends the heartbeats of one member."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: ConsumerMember,
        subscription: SubscriptionState,
        coordinator: CoordinatorManager,
        membership: HeartbeatListener,
        metrics: GroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, member, coordinator, metrics, rng)
        self._subscription = subscription
        self._membership = membership
        self._fields = SentFields(config, member, subscription)
        self._repeats = False  # a heartbeat was repeated at once, and none has succeeded since

    def poll(self, now: float) -> PollResult:
        """Returns a heartbeat if one is due. If the poll interval is exceeded, starts to leave the group."""
        member = self._member
        if not member.in_group:
            return PollResult()
        if now >= self._poll_deadline and member.state not in LEAVING_STATES:
            self._on_poll_interval_exceeded()
            self._membership.on_poll_timer_expired()
        if self._coordinator.connection_id is None:
            if member.state is MemberState.LEAVING:  # the coordinator will time the session out
                self.end_membership()
                self._membership.on_heartbeat_sent()
                return PollResult()
            self._coordinator.request_lookup()
            return PollResult(wait_ms=self.time_to_next_ms(now))
        if self.time_to_next_ms(now) > 0:
            return PollResult(wait_ms=self.time_to_next_ms(now))
        return PollResult([self.request(now)], self.time_to_next_ms(now))

    def request(self, now: float) -> UnsentRequest:
        """Returns the heartbeat to send now. Changes the member's state and the timers as if it had been sent."""
        number = self._begin_heartbeat(now)
        message = self._fields.message()
        if message.member_epoch == JOIN_EPOCH:
            self.progress.requested(now)
        if message.member_epoch < JOIN_EPOCH:
            self.end_membership()
        self._membership.on_heartbeat_sent()
        return UnsentRequest(
            CONSUMER_GROUP_HEARTBEAT,
            message,
            lambda reply: self._on_reply(number, reply, joins=message.member_epoch == JOIN_EPOCH),
            node=self._coordinator.connection_id,
            min_version=FIRST_VERSION_WITH_REGEX if message.subscribed_topic_regex is not None else 0,
        )

    def _heartbeat_wait(self, now: float) -> float:
        backoff_ms = self._backoff.remaining_ms(now)
        if self._member.state in (MemberState.JOINING, MemberState.ACKNOWLEDGING):
            return backoff_ms
        if self._member.state is MemberState.LEAVING:
            return 0.0
        if self._fields.subscription_changed:  # sent at once; Java waits for the interval
            return backoff_ms
        return max(backoff_ms, self._next_heartbeat - now)

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_reply(self, number: int, reply: Reply, *, joins: bool) -> None:
        if not self._end_heartbeat(number):
            self._too_late(reply)
            return
        if reply.error is not None:
            self._on_request_failed(reply.error, reply.now)
            return
        self._metrics.on_heartbeat_response(reply.now - reply.sent_at, reply.now)
        message: ConsumerGroupHeartbeatResponse = reply.message
        self.on_response(success=not message.error_code)
        if message.error_code:
            self._fields.forget()
            self._react(message, reply.now, joins=joins)
            return
        # A join that succeeds after a repeated heartbeat does not end the backoff: the member may be fenced after each
        # join, and would then join again without pause.
        if joins:
            self.progress.succeeded()
        else:
            self.progress.done()
        if not (joins and self._repeats):
            self._backoff.reset()
            self._repeats = False
        self._set_interval(message.heartbeat_interval_ms)
        self._membership.on_heartbeat_success(message, reply.now)

    def _too_late(self, reply: Reply) -> None:
        """Handle a response to a heartbeat of a membership that has ended.

        If the response shows that the coordinator is lost, marks it as unknown. Nothing else is changed, because a new
        membership may have begun.
        """
        error = reply.error
        if error is None and reply.message.error_code:
            error = error_for(reply.message.error_code, self._where(reply.message.error_message))
        if error is None:
            return
        log.info("%s", error)
        lost = reply.error is not None and reply.error.retriable
        if lost or HEARTBEAT_ACTIONS[getattr(error, "code", 0)] is ConsumerHeartbeatErrorAction.COORDINATOR:
            self._coordinator.mark_unknown(error, reply.now)

    def _forget_sent(self) -> None:
        self._fields.forget()

    def _on_fatal(self, error: KafkaError) -> None:
        self._membership.on_fatal(error)  # ignored by a member that has left meanwhile

    def _react(self, message: ConsumerGroupHeartbeatResponse, now: float, *, joins: bool) -> None:
        code = message.error_code
        needed = "Describe" if code == Errors.TOPIC_AUTHORIZATION_FAILED else "Read"
        error = error_for(code, self._where(message.error_message), operation=needed)
        reaction = HEARTBEAT_ACTIONS[code]
        if reaction is ConsumerHeartbeatErrorAction.REMOVED:
            reaction = ConsumerHeartbeatErrorAction.FATAL if joins else ConsumerHeartbeatErrorAction.FENCED
        log.info("%s", error)
        self.progress.failed(error, now)
        if reaction in (ConsumerHeartbeatErrorAction.RETRY, ConsumerHeartbeatErrorAction.REPORT):
            self._retry(now)
            if reaction is ConsumerHeartbeatErrorAction.REPORT:
                self.keep_error(error)
        elif reaction is ConsumerHeartbeatErrorAction.FATAL:
            self._on_fatal(self._unsupported(error) if isinstance(error, UnsupportedVersionError) else error)
        else:
            self._repeat(now)
            if reaction is ConsumerHeartbeatErrorAction.COORDINATOR:
                self._coordinator.mark_unknown(error, now)
            else:
                self._membership.on_fenced(str(error), now)

    def _repeat(self, now: float) -> None:
        """Make the next heartbeat due at once, as Java does. On the second call in a row, start the backoff instead.

        Without the backoff, a coordinator that always sends the same response would get heartbeats without pause.
        """
        if self._repeats:
            self._retry(now)
        else:
            self._repeats = True
            self._next_heartbeat = now

    def _where(self, message: str | None) -> str:
        where = f"heartbeat in group {self._member.group_id!r}"
        return f"{where}: {message}" if message else where

    def _unsupported(self, error: UnsupportedVersionError) -> KafkaError:
        if self._subscription.broker_pattern is not None:
            advice = "a SubscriptionPattern needs Kafka 4.0; subscribe with a compiled re pattern in place of it"
        else:
            advice = (
                'group_protocol="consumer" needs Kafka 4.0, with the protocol enabled; use group_protocol="classic"'
            )
        return UnsupportedVersionError(f"{self._where(None)}: {error.message}; {advice}")
