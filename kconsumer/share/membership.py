"""ShareGroupHeartbeat (KIP-932): joins a share group, stays in it, and leaves it.

Decides when a heartbeat is due, which fields it has, and what its response means. The coordinator assigns partitions,
which are applied at once: several members may have the same partition, so none has to give up a partition before
another one takes it, and there are no callbacks.
"""

from __future__ import annotations

import random

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER, PollResult, Promise, Reply, UnsentRequest
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.consumer_protocol.state import JOIN_EPOCH, LocalAssignment
from kconsumer.coordinator.consumer_protocol.topic_names import TopicNames
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.member_epochs import MemberEpochHeartbeats
from kconsumer.errors import KafkaError, UnsupportedVersionError, error_for
from kconsumer.schema.share_group import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kconsumer.share.error_actions import HEARTBEAT_ACTIONS, ShareHeartbeatErrorAction
from kconsumer.share.member import ShareMember, ShareMemberState
from kconsumer.share.metrics import ShareGroupMetrics
from kconsumer.state.subscription import SubscriptionState

log = get_logger(__name__)


class ShareMembership(MemberEpochHeartbeats[ShareMember]):
    """Sends the heartbeats of one member, and applies its assignments (Java `ShareMembershipManager`)."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: ShareMember,
        subscription: SubscriptionState,
        coordinator: CoordinatorManager,
        names: TopicNames,
        metrics: ShareGroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, member, coordinator, metrics, rng)
        self._assignments = metrics
        self._subscription = subscription
        self._assignment = subscription.assignment
        self._names = names
        self._applied: tuple[LocalAssignment, int, int] | None = None  # the last assignment, and the versions it had
        self._sent_topics: frozenset[str] | None = None  # the subscription that the coordinator has; None: unknown
        self._left_idle = False  # the member leaves because the user does not poll
        self._fatal: KafkaError | None = None
        self._leave: Promise[None] | None = None  # done when the member has left

    # --- what the engine calls -------------------------------------------------------------------------------------

    @property
    def has_error(self) -> bool:
        return self._fatal is not None or super().has_error

    def take_error(self) -> KafkaError | None:
        """Returns the error that the user's next call must raise, or None.

        An error that ended the membership is returned until the user unsubscribes, every other error once.
        """
        return self._fatal or super().take_error()

    def user_polled(self, now: float) -> bool:
        """Restart the poll interval, and join the group if the member is not in it. Returns True if it joins now."""
        self.poll_started(now)
        joins = self._member.state in (ShareMemberState.UNSUBSCRIBED, ShareMemberState.STALE)
        if joins:
            self._member.rejoin()
        return joins

    def leave(self) -> Promise[None]:
        """Leave the group, and drop the assignment. Returns a promise that is done when the member has left.

        If the coordinator is unknown, nothing is sent, and the coordinator removes the member after its session
        timeout.
        """
        promise: Promise[None] = Promise()
        member = self._member
        self._drop_assignment()
        self._fatal = None
        self._poll_deadline = FOREVER
        if not member.in_group or self._coordinator.connection_id is None or self._numbers == 0:
            self._end(promise)
        else:
            if member.state is not ShareMemberState.LEAVING:
                member.start_leaving()
            self._left_idle = False
            self._leave = promise
        return promise

    def _end(self, promise: Promise[None] | None) -> None:
        member = self._member
        self.end_membership()
        if member.state in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            member.start_leaving()
        if member.state is not ShareMemberState.UNSUBSCRIBED:
            member.transition_to(ShareMemberState.UNSUBSCRIBED)
        if promise is not None:
            promise.set_result(None)

    # --- driving ---------------------------------------------------------------------------------------------------

    def _heartbeat_wait(self, now: float) -> float:
        backoff_ms = self._backoff.remaining_ms(now)
        state = self._member.state
        if state is ShareMemberState.LEAVING:
            return 0.0
        if state is ShareMemberState.JOINING or self._sent_topics != self._subscription.subscribed_topics():
            return backoff_ms
        return max(backoff_ms, self._next_heartbeat - now)

    def poll(self, now: float) -> PollResult:
        """Returns a heartbeat if one is due. If the poll interval is exceeded, starts to leave the group."""
        member = self._member
        self._apply_assignment()
        if not member.in_group:
            return PollResult()
        if now >= self._poll_deadline and member.state is not ShareMemberState.LEAVING:
            self._on_poll_interval_exceeded()
            self._left_idle = True
            self._drop_assignment()
            member.start_leaving()
        if self._coordinator.connection_id is None:
            if member.state is ShareMemberState.LEAVING:  # the coordinator will time the session out
                self._on_left()
                return PollResult()
            self._coordinator.request_lookup()
            return PollResult(wait_ms=self.time_to_next_ms(now))
        if self.time_to_next_ms(now) > 0:
            return PollResult(wait_ms=self.time_to_next_ms(now))
        return PollResult([self._request(now)], self.time_to_next_ms(now))

    def _apply_assignment(self) -> None:
        """Assign the partitions that the coordinator has assigned, except those of topics without a known name."""
        if self._member.state is not ShareMemberState.STABLE or not self._subscription.is_group_managed:
            return
        target = self._member.target
        applied = target, self._names.version, self._assignment.changes.assignment_version
        if applied == self._applied:
            return
        _, wanted = self._names.resolve(target)
        if wanted != frozenset(self._assignment.assigned()):
            self._subscription.assign_from_group(wanted)
            owned = ", ".join(map(str, sorted(wanted)))
            if self._assignments is not None:
                self._assignments.assigned(self._assignment.changes.now)
            log.info("share group %s: assigned %s", self._member.group_id, owned or "none")
        # While a name is missing, each call requests metadata.
        self._applied = applied if self._names.in_metadata(target) else None

    def _drop_assignment(self) -> None:
        self._names.forget()
        self._applied = None
        if self._subscription.is_group_managed:
            self._subscription.assign_from_group(())

    def _request(self, now: float) -> UnsentRequest:
        number = self._begin_heartbeat(now)
        message = self._message()
        if self._member.state is ShareMemberState.JOINING:
            self.progress.requested(now)
        if self._member.state is ShareMemberState.LEAVING:
            self.end_membership()
        promise = self._leave
        return UnsentRequest(
            SHARE_GROUP_HEARTBEAT,
            message,
            lambda reply: self._on_reply(number, promise, reply),
            node=self._coordinator.connection_id,
        )

    def _message(self) -> ShareGroupHeartbeatRequest:
        """Returns the next heartbeat. One that joins has all fields, later ones only the changed subscription."""
        member = self._member
        message = ShareGroupHeartbeatRequest(
            group_id=member.group_id, member_id=member.member_id, member_epoch=member.member_epoch
        )
        if member.state is ShareMemberState.LEAVING:
            return message
        topics = self._subscription.subscribed_topics()
        if member.state is ShareMemberState.JOINING:
            message.rack_id = self._config.client_rack or None
        if member.state is ShareMemberState.JOINING or topics != self._sent_topics:
            message.subscribed_topic_names = sorted(topics)
            self._sent_topics = topics
        return message

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_reply(self, number: int, leave: Promise[None] | None, reply: Reply) -> None:
        if not self._end_heartbeat(number):
            if self._member.state is ShareMemberState.LEAVING and number == self._numbers:
                self._on_left()
            elif leave is not None:
                leave.set_result(None)
            return
        if reply.error is not None:
            self._on_request_failed(reply.error, reply.now)
            return
        self._metrics.on_heartbeat_response(reply.now - reply.sent_at, reply.now)
        message: ShareGroupHeartbeatResponse = reply.message
        self.on_response(success=not message.error_code)
        if message.error_code:
            self._sent_topics = None
            self._react(message, reply.now)
        elif self._member.state is not ShareMemberState.LEAVING:
            self._backoff.reset()
            self._set_interval(message.heartbeat_interval_ms)
            if self._member.state is ShareMemberState.JOINING:
                self.progress.succeeded()
            else:
                self.progress.done()
            self._on_success(message)

    def _on_success(self, message: ShareGroupHeartbeatResponse) -> None:
        member = self._member
        if not member.in_group or message.member_epoch < JOIN_EPOCH:
            return
        member.member_epoch = message.member_epoch
        if member.state is ShareMemberState.JOINING:
            member.transition_to(ShareMemberState.STABLE)
        if message.assignment is not None:
            assigned = {t.topic_id: frozenset(t.partitions) for t in message.assignment.topic_partitions}
            member.assign({topic_id: partitions for topic_id, partitions in assigned.items() if partitions})
        self._apply_assignment()

    def _on_left(self) -> None:
        self.end_membership()
        self._sent_topics = None
        stale, self._left_idle = self._left_idle, False
        self._member.transition_to(ShareMemberState.STALE if stale else ShareMemberState.UNSUBSCRIBED)
        promise, self._leave = self._leave, None
        if promise is not None:
            promise.set_result(None)

    def _forget_sent(self) -> None:
        self._sent_topics = None

    def _react(self, message: ShareGroupHeartbeatResponse, now: float) -> None:
        code = message.error_code
        needed = "Describe" if code == Errors.TOPIC_AUTHORIZATION_FAILED else "Read"
        error = error_for(code, self._where(message.error_message), operation=needed)
        reaction = HEARTBEAT_ACTIONS[code]
        log.info("%s", error)
        if self._member.state is ShareMemberState.LEAVING:
            return
        self.progress.failed(error, now)
        if reaction is ShareHeartbeatErrorAction.FATAL:
            self._on_fatal(self._unsupported(error) if isinstance(error, UnsupportedVersionError) else error)
            return
        self._retry(now)
        if reaction is ShareHeartbeatErrorAction.COORDINATOR:
            self._coordinator.mark_unknown(error, now)
        elif reaction is ShareHeartbeatErrorAction.REPORT:
            self.keep_error(error)
        elif reaction is ShareHeartbeatErrorAction.FENCED:
            self._drop_assignment()
            self._member.rejoin()

    def _on_fatal(self, error: KafkaError) -> None:
        self.end_membership()
        if self._member.state is ShareMemberState.LEAVING:
            self._on_left()
            return
        self._fatal = error
        self._drop_assignment()
        self._member.transition_to(ShareMemberState.FATAL)

    def _where(self, message: str | None) -> str:
        where = f"heartbeat in share group {self._member.group_id!r}"
        return f"{where}: {message}" if message else where

    def _unsupported(self, error: UnsupportedVersionError) -> KafkaError:
        return UnsupportedVersionError(
            f"{self._where(None)}: {error.message}; share groups need Kafka 4.2, or Kafka 4.1 with the feature "
            "share.version=1"
        )
