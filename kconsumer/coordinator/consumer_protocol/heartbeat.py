"""Heartbeats of KIP-848: when one is due, which fields it carries, and what its answer means.

One request joins, acknowledges, keeps and leaves. A field is sent when it changed since the last one that was
answered well; after any failure all of them are sent again, because the coordinator repeats an assignment only to a
member that tells everything. What an assignment means for ownership is decided in `epochs.py`.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.consumer_protocol.state import JOIN_EPOCH, LEAVING_STATES, ConsumerMember, MemberState
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.membership import AbstractHeartbeatManager
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.error_tables import ErrorAction, ErrorTable
from kconsumer.errors import KafkaError, UnsupportedVersionError, error_for
from kconsumer.managers import FOREVER, PollResult, Reply, UnsentRequest
from kconsumer.schema import CONSUMER_GROUP_HEARTBEAT
from kconsumer.schema.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kconsumer.state.subscription import SubscriptionState

log = get_logger(__name__)

FIRST_VERSION_WITH_REGEX = 1


class ConsumerHeartbeatErrorAction(ErrorAction):
    """What an error code of ConsumerGroupHeartbeat leads to."""

    COORDINATOR = "look the coordinator up again, then heartbeat at once; after the backoff if that happens again"
    RETRY = "heartbeat again after the backoff"
    FENCED = "everything owned is lost: on_lost, then join anew"
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
        Errors.GROUP_ID_NOT_FOUND: ConsumerHeartbeatErrorAction.FATAL,  # ignored once the member has left
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
    """What heartbeats tell of."""

    def on_heartbeat_success(self, message: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """The coordinator answered well."""

    def on_fenced(self, reason: str, now: float) -> None:
        """The coordinator does not know this member, or not with this epoch."""

    def on_fatal(self, error: KafkaError) -> None:
        """The member cannot go on."""

    def on_heartbeat_sent(self) -> None:
        """The heartbeat is on its way: what it says is done."""

    def on_poll_timer_expired(self) -> None:
        """The caller does not poll any more: leave."""


class SentFields:
    """What the coordinator knows of us, so that heartbeats repeat nothing."""

    def __init__(self, config: GroupRebalanceConfig, member: ConsumerMember, subscription: SubscriptionState) -> None:
        self._config = config
        self._member = member
        self._subscription = subscription
        self._sent: dict[str, Any] = {}
        self._has_sent_regex = False  # ever; the coordinator may still have it

    def forget(self) -> None:
        """The next heartbeat tells everything again."""
        self._sent.clear()

    @property
    def subscription_changed(self) -> bool:
        """Whether the coordinator knows another subscription than the present one."""
        return "topics" in self._sent and (
            self._sent["topics"] != self._subscription.subscribed_topics()
            or self._sent.get("regex", "") != (self._subscription.broker_pattern or "")
        )

    def message(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, and remember what it says."""
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
                for topic_id, partitions in sorted(member.current.partitions.items())
            ]
        return message

    def _add_regex(self, message: ConsumerGroupHeartbeatRequest) -> None:
        """Send the pattern if it changed. An empty one clears it: without the field the coordinator keeps the pattern
        that it knows of this member id, also when the member joins again after a leave that did not arrive."""
        regex = self._subscription.broker_pattern or ""
        self._has_sent_regex |= bool(regex)
        if self._has_sent_regex and self._changed("regex", regex):
            message.subscribed_topic_regex = regex

    def _changed(self, name: str, value: object) -> bool:
        if name in self._sent and self._sent[name] == value:
            return False
        self._sent[name] = value
        return True


class ConsumerHeartbeatManager(AbstractHeartbeatManager[ConsumerMember]):
    """Keeps the coordinator and this member informed of each other."""

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
        self._in_flight = 0  # number of the heartbeat awaited; 0: none
        self._numbers = 0
        self._repeats = False  # a heartbeat was sent again at once, and none was answered well since
        self._last_ended = 0  # number of the last heartbeat of a membership that has ended
        self._interval_ms = 0.0  # told by the coordinator with each answer
        self._sent_at = 0.0

    @property
    def in_flight(self) -> bool:
        """Whether an answer is awaited."""
        return self._in_flight != 0

    def reset_session_timer(self, now: float) -> None:
        """The coordinator was found: the session is the coordinator's business in this protocol."""

    def time_to_next_ms(self, now: float) -> float:
        """How long (ms) until `poll` has something to do."""
        if not self._member.in_group:
            return FOREVER
        wait_ms = self._poll_deadline - now
        if not self._in_flight and self._coordinator.connection_id is not None:
            wait_ms = min(wait_ms, self._heartbeat_wait(now))
        return max(0.0, wait_ms)

    def poll(self, now: float) -> PollResult:
        """A heartbeat when one is due."""
        member = self._member
        if not member.in_group:
            return PollResult()
        if now >= self._poll_deadline and member.state not in LEAVING_STATES:
            self._on_poll_interval_exceeded()
            self._membership.on_poll_timer_expired()
        if self._coordinator.connection_id is None:
            if member.state is MemberState.LEAVING:  # nobody can be told: the session will run out there
                self.end_membership()
                self._membership.on_heartbeat_sent()
                return PollResult()
            self._coordinator.request_lookup()
            return PollResult(wait_ms=self.time_to_next_ms(now))
        if member.state is MemberState.PREPARE_LEAVING or self.time_to_next_ms(now) > 0:
            return PollResult(wait_ms=self.time_to_next_ms(now))
        return PollResult([self.request(now)], self.time_to_next_ms(now))

    def end_membership(self) -> None:
        """The member leaves. Responses to heartbeats sent until now do not concern what it joins later."""
        self._last_ended = self._numbers

    def request(self, now: float) -> UnsentRequest:
        """The heartbeat to send now. Making it counts as sending it: the state moves on."""
        self._numbers += 1
        number = self._in_flight = self._numbers
        self._sent_at = now
        self._next_heartbeat = now + self._interval_ms
        self._metrics.heartbeat_sent(now)
        message = self._fields.message()
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
        if self._fields.subscription_changed:  # Java waits for the interval; the group may as well know at once
            return backoff_ms
        return max(backoff_ms, self._next_heartbeat - now)

    # --- answers ---------------------------------------------------------------------------------------------------

    def _on_reply(self, number: int, reply: Reply, *, joins: bool) -> None:
        if number == self._in_flight:
            self._in_flight = 0
        if number <= self._last_ended:
            self._too_late(reply)
            return
        if reply.error is not None:
            self._on_request_failed(reply.error, reply.now)
            return
        self._metrics.on_heartbeat_response(reply.now - reply.sent_at, reply.now)
        message: ConsumerGroupHeartbeatResponse = reply.message
        if message.error_code:
            self._fields.forget()
            self._react(message, reply.now)
            return
        if not (joins and self._repeats):  # a member that is fenced after each join has made no progress
            self._backoff.reset()
            self._repeats = False
        self._interval_ms = float(message.heartbeat_interval_ms)
        self._next_heartbeat = self._sent_at + self._interval_ms
        self._membership.on_heartbeat_success(message, reply.now)

    def _too_late(self, reply: Reply) -> None:
        """A response to a heartbeat of a membership that has ended: the leave, or one sent before it. It says nothing
        of the membership that may have begun since, only of the coordinator."""
        error = reply.error
        if error is None and reply.message.error_code:
            error = error_for(reply.message.error_code, self._where(reply.message.error_message))
        if error is None:
            return
        log.info("%s", error)
        lost = reply.error is not None and reply.error.retriable
        if lost or HEARTBEAT_ACTIONS[getattr(error, "code", 0)] is ConsumerHeartbeatErrorAction.COORDINATOR:
            self._coordinator.mark_unknown(error, reply.now)

    def _on_request_failed(self, error: KafkaError, now: float) -> None:
        self._fields.forget()
        if isinstance(error, UnsupportedVersionError):
            self._membership.on_fatal(self._unsupported(error))
        elif not error.retriable:
            # The next heartbeat may do: a password is corrected, a response can be parsed again. Java ends the member.
            self._error = error
            self._retry(now)
        else:
            self._coordinator.mark_unknown(error, now)
            self._retry(now)

    def _react(self, message: ConsumerGroupHeartbeatResponse, now: float) -> None:
        code = message.error_code
        needed = "Describe" if code == Errors.TOPIC_AUTHORIZATION_FAILED else "Read"
        error = error_for(code, self._where(message.error_message), operation=needed)
        reaction = HEARTBEAT_ACTIONS[code]
        log.info("%s", error)
        if reaction in (ConsumerHeartbeatErrorAction.RETRY, ConsumerHeartbeatErrorAction.REPORT):
            self._error = error if reaction is ConsumerHeartbeatErrorAction.REPORT else self._error
            self._retry(now)
        elif reaction is ConsumerHeartbeatErrorAction.FATAL:
            told = self._unsupported(error) if isinstance(error, UnsupportedVersionError) else error
            self._membership.on_fatal(told)  # ignored by a member that has left meanwhile
        else:
            self._repeat(now)
            if reaction is ConsumerHeartbeatErrorAction.COORDINATOR:
                self._coordinator.mark_unknown(error, now)
            else:
                self._membership.on_fenced(str(error), now)

    def _repeat(self, now: float) -> None:
        """Send the next heartbeat at once, as Java does, but only once: a coordinator that gives the same answer again
        and again is asked less and less often."""
        if self._repeats:
            self._retry(now)
        else:
            self._repeats = True
            self._next_heartbeat = now

    def _where(self, told: str | None) -> str:
        where = f"heartbeat in group {self._member.group_id!r}"
        return f"{where}: {told}" if told else where

    def _unsupported(self, error: KafkaError) -> KafkaError:
        if self._subscription.broker_pattern is not None:
            advice = "a SubscriptionPattern needs Kafka 4.0; subscribe with a compiled re pattern in place of it"
        else:
            advice = (
                'group_protocol="consumer" needs Kafka 4.0, with the protocol enabled; use group_protocol="classic"'
            )
        return UnsupportedVersionError(f"{self._where(None)}: {error}; {advice}")
