"""Membership of the classic protocol: JoinGroup, SyncGroup, and the order of commits and callbacks around them.

One rebalance is: PREPARING (commit, then on_revoke or on_lost) → JOINING (JoinGroup) → SYNCING (the leader assigns,
SyncGroup) → COMPLETING (on_revoke of partitions that move away, on_assign) → STABLE. Callbacks are steps in a queue:
the engine runs the due one on the calling thread and then calls `callback_done`. A rebalance starts only while the user
polls. The tables `JOIN_ACTIONS` and `SYNC_ACTIONS` contain the action for each error code, as in Java's
AbstractCoordinator and ConsumerCoordinator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER, PollResult, Reply, UnsentRequest
from kconsumer.assignors import Assignment, Assignor, RebalanceProtocol, common_protocol
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.classic_protocol.assignment_errors import (
    plugin_error,
    stray_topics_error,
    unreadable_assignment_error,
)
from kconsumer.coordinator.classic_protocol.heartbeat import HeartbeatManager
from kconsumer.coordinator.classic_protocol.leader import LeaderAssignment, parse_assignment
from kconsumer.coordinator.classic_protocol.leave import leave_request
from kconsumer.coordinator.classic_protocol.numbered_requests import NumberedRequests
from kconsumer.coordinator.classic_protocol.requests import PROTOCOL_TYPE, join_message, join_request, sync_message
from kconsumer.coordinator.classic_protocol.state import Member, MemberState
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.error_actions import HINTS, JOIN_ACTIONS, SYNC_ACTIONS, GroupErrorAction, Table
from kconsumer.coordinator.group_member import Generation
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.membership import Membership
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback
from kconsumer.errors import AssignorError, ConfigError, KafkaError, ProtocolError, error_for
from kconsumer.metadata.manager import MetadataManager
from kconsumer.schema.classic_group import SYNC_GROUP, JoinGroupRequest, JoinGroupResponse, SyncGroupRequestAssignment
from kconsumer.state.cluster import Cluster
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import GroupMetadata, TopicPartition

log = get_logger(__name__)

_STABLE = MemberState.STABLE


class ClassicMembership(Membership[Member]):
    """Takes part in the rebalances of a group, as its leader if the coordinator chooses this member."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: Member,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: MetadataManager,
        coordinator: CoordinatorManager,
        commits: CommitManager,
        heartbeat: HeartbeatManager,
        assignors: Sequence[Assignor],
        metrics: GroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, member, subscription, metadata, coordinator, commits, metrics)
        self._cluster = cluster
        self._heartbeat = heartbeat
        self._progress = heartbeat.progress
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.rebalance_protocol = common_protocol(assignors)
        self._requests = NumberedRequests()  # JoinGroup and SyncGroup
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        # Set by a cooperative JoinGroup that names owned partitions, cleared by an assignment that contains all of
        # them. While this is True, the leader may have decided to move some of them to other members. These partitions
        # stay unassigned until this member has revoked them and joined again.
        self._may_owe_join = False
        self._owes_join = False  # `_may_owe_join` was True when the member id was reset
        self._retried_at_once = False  # a retry without backoff was made since the last rebalance that succeeded
        self._completed = self._group_metadata_of(Generation())  # the result of the last completed rebalance
        self._joined_topics: frozenset[str] = frozenset()  # the subscription in the last JoinGroup
        self._last_generation = -1
        self._leader: LeaderAssignment | None = None
        self._must_describe = False  # the assignments of all members must be requested
        self._sync_assignments: list[SyncGroupRequestAssignment] | None = None
        self._seen_metadata = -1  # the cluster's update_version when the leader last checked it

    # --- what the engine calls -------------------------------------------------------------------------------------

    def callback_done(self, callback: RebalanceCallback, now: float, error: Exception | None = None) -> None:
        """Continue the rebalance after a listener call, whether it returned or raised."""
        self._steps.callback_done(callback, now)

    @property
    def in_flight(self) -> bool:
        return self._requests.current

    @property
    def idle(self) -> bool:
        return not self._steps.queue and not self._must_describe and self._is_settled()

    def group_metadata(self) -> GroupMetadata:
        """Returns the group metadata of the last completed rebalance.

        A transaction must not commit with a generation whose assignment is not applied yet, nor without a generation.
        So the value stays the same while the next rebalance runs, and after the member was fenced.
        """
        return self._completed

    def _group_metadata_of(self, generation: Generation) -> GroupMetadata:
        member = self._member
        return GroupMetadata(member.group_id, generation.id, generation.member_id, member.group_instance_id)

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        if not self._subscription.is_group_managed:
            return PollResult()
        self._steps.advance(now)
        if self._steps:
            return PollResult()
        settled = self._is_settled()
        if settled and not self._must_describe:
            return PollResult()
        if self._coordinator.connection_id is None:
            self._coordinator.request_lookup()
            return PollResult()
        pause_ms = self._backoff.remaining_ms(now)
        if pause_ms > 0:
            return PollResult(wait_ms=pause_ms)
        return self._describe() if settled else self._rebalance(now)

    def _rebalance(self, now: float) -> PollResult:
        # If the state is PREPARING or COMPLETING, but no steps are queued, an exception ended the rebalance between two
        # steps. It begins again.
        if not self._member.rebalancing:
            if not self._pattern_matched():
                return PollResult()
            self._begin_prepare(now)
            if self._steps:
                return PollResult(wait_ms=0.0 if self._steps.commit is not None else FOREVER)
        # A JoinGroup is never sent behind one that has no response yet. The coordinator would read the second one only
        # after it has sent that response. By then, this consumer may be closed, and another one with the same
        # group_instance_id may have joined. The coordinator regards a static member that joins without a member id as
        # the newest one, so the late JoinGroup would fence that other consumer.
        if self._requests.in_flight:
            return PollResult()
        if self._member.state is MemberState.JOINING:
            return self._join(now)
        if self._member.state is MemberState.SYNCING:
            return self._sync(now)
        return PollResult()

    # --- when to rejoin --------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """Returns True if the member is stable and need not join again. Each poll that returns records asks this
        twice."""
        member = self._member
        if member.state is not _STABLE or member.rejoin_reason is not None:
            return False
        topics = self._subscription.subscribed_topics()
        if topics is not self._joined_topics and topics != self._joined_topics:
            member.request_rejoin("the subscription has changed")
            return False
        if self._leader is not None and self._cluster.update_version != self._seen_metadata:
            self._seen_metadata = self._cluster.update_version
            if self._leader.outdated(self._cluster):
                member.request_rejoin("cached metadata has changed")
                return False
        return True

    # --- when a static leader has returned -------------------------------------------------------------------------

    def _describe(self) -> PollResult:
        """Returns a request for the assignments of all members, which this leader must keep (KIP-814)."""
        from kconsumer.coordinator.classic_protocol.returned_leader import describe_request  # few members need it

        self._must_describe = False
        leader, group_id, node = self._leader, self._member.group_id, self._coordinator.connection_id
        request = describe_request(group_id, node, lambda reply: self._on_described(leader, reply))
        return PollResult([request])

    def _on_described(self, leader: LeaderAssignment | None, reply: Reply) -> None:
        from kconsumer.coordinator.classic_protocol.returned_leader import lacks_owner

        if leader is None or leader is not self._leader or self._member.state is not MemberState.STABLE:
            return  # the member has joined again or left
        try:
            if lacks_owner(reply, leader.partitions(self._cluster)):
                self._member.request_rejoin("partitions were added while this leader was away")
        except KafkaError as error:
            log.info("group %s: cannot check the assignment: %s", self._member.group_id, error)
            if error.retriable:
                self._must_describe = True
                self._backoff.failed(reply.now)

    # --- before the join -------------------------------------------------------------------------------------------

    def _begin_prepare(self, now: float) -> None:
        if self._member.state is not MemberState.PREPARING:
            self._member.transition_to(MemberState.PREPARING)
        if self._member.rejoin_reason is not None and not self._progress.waits:
            self._progress.failed(KafkaError(self._member.rejoin_reason), now)
        if self.rebalance_protocol is RebalanceProtocol.EAGER:
            self._assignment.mark_pending_revocation(self._assignment.assigned())
        self._commit_first(now)
        self._steps.add(self._queue_revocation)
        self._steps.advance(now)

    def _queue_revocation(self, now: float) -> None:
        owned = sorted(self._assignment.assigned())
        if not self._member.generation.valid:
            gone = owned
            if gone:
                self._steps.add(RebalanceCallback(CallbackKind.LOST, tuple(gone)))
        elif self.rebalance_protocol is RebalanceProtocol.EAGER:
            gone = owned
            self._steps.add(RebalanceCallback(CallbackKind.REVOKED, tuple(gone)))
        else:
            gone = [tp for tp in owned if not self._subscription.matches_subscription(tp.topic)]
            self._assignment.mark_pending_revocation(gone)
            if gone:
                self._steps.add(RebalanceCallback(CallbackKind.REVOKED, tuple(gone)))
        self._steps.add(lambda _now: self._finish_prepare(frozenset(gone)))

    def _finish_prepare(self, gone: frozenset[TopicPartition]) -> None:
        self._subscription.assign_from_group([tp for tp in self._assignment.assigned() if tp not in gone])
        self._subscription.reset_group_subscription()
        # If the member was reset meanwhile, the next poll prepares again and calls on_lost for the other partitions.
        if self._member.state is MemberState.PREPARING:
            self._member.transition_to(MemberState.JOINING)

    # --- JoinGroup -------------------------------------------------------------------------------------------------

    def _join(self, now: float) -> PollResult:
        member = self._member
        topics = self._subscription.subscribed_topics()
        owned = self._assignment.assigned()
        try:  # assignors run here and may raise, so nothing is recorded as sent before
            message = join_message(self._config, member, self._assignors.values(), topics, owned, self._last_generation)
        except AssignorError as error:
            self._fail(error, now)
            return PollResult(wait_ms=0.0)
        sent = member.generation
        number = self._requests.next()
        request = self._join_request(message, lambda reply: self._on_join(number, sent, reply))
        self._joined_topics = topics
        # A static member that joins without a member id receives its current assignment, without a rebalance.
        self._owes_join = self._may_owe_join and not sent.member_id and member.group_instance_id is not None
        self._may_owe_join = bool(owned) and self.rebalance_protocol is RebalanceProtocol.COOPERATIVE
        self._leader = None
        self._must_describe = False
        self._sync_assignments = None
        member.join_sent()
        self._progress.requested(now, blocks=not self._assignment.assigned())
        self._metrics.join_sent(now)
        return PollResult([request])

    def _join_request(self, message: JoinGroupRequest, handler: Callable[[Reply], None]) -> UnsentRequest:
        return join_request(self._config, message, handler, self._coordinator.connection_id)

    def _on_join(self, number: int, sent: Generation, reply: Reply) -> None:
        if not self._requests.ended(number):
            return
        member = self._member
        member.join_ended()
        if reply.error is not None:
            self._request_failed(reply.error, reply.now)
            return
        message = reply.message
        self.on_response(success=False)  # the rebalance succeeds with the SyncGroup
        if message.error_code:
            if JOIN_ACTIONS[message.error_code] is GroupErrorAction.ADOPT_ID:
                self._adopt_member_id(message.member_id)
                if sent.member_id:  # the request already had one: the second time, wait for the backoff
                    self._progress.failed(error_for(message.error_code, "join"), reply.now)
                    self._retry_at_once(reply.now)
            else:
                self._react(JOIN_ACTIONS, message.error_code, sent, "join", reply.now)
            return
        if member.state is not MemberState.JOINING:
            return  # the member left or was reset meanwhile; the coordinator will drop this generation
        if message.protocol_type not in (None, PROTOCOL_TYPE):
            what = f"group {member.group_id!r} is of type {message.protocol_type!r}"
            self._fail(error_for(Errors.INCONSISTENT_GROUP_PROTOCOL, what), reply.now)
            return
        member.joined(Generation(message.generation_id, message.member_id, message.protocol_name))
        self._progress.responded()
        self._metrics.joined(reply.now - reply.sent_at, reply.now)
        self._heartbeat.joined(reply.now)
        log.info(
            "group %s: joined generation %d as %s (%s)",
            member.group_id,
            message.generation_id,
            message.member_id,
            "leader" if message.leader == message.member_id else "follower",
        )
        try:
            self._take_part(message)
        except KafkaError as error:
            self._join_again(error, reply.now)

    def _adopt_member_id(self, member_id: str) -> None:
        if self._member.state is MemberState.JOINING:
            self._member.adopt_id(member_id)

    # --- SyncGroup -------------------------------------------------------------------------------------------------

    def _take_part(self, message: JoinGroupResponse) -> None:
        """Prepare the SyncGroup, either as the leader or as another member of the group.

        The leader requests metadata if the cache lacks topics of other members.

        Raises ConfigError if the group chose an assignor that is not configured, and ProtocolError if a member's
        subscription cannot be decoded.
        """
        assignor = self._assignors.get(message.protocol_name or "")
        if assignor is None:
            raise ConfigError(f"the group chose assignor {message.protocol_name!r}, which is not configured")
        if message.leader != message.member_id:
            self._sync_assignments = []
            return
        self._leader = LeaderAssignment(assignor, message, self._config.client_rack)
        self._must_describe = message.skip_assignment
        self._refresh = None
        if self._subscription.group_subscribe(self._leader.topics) or not self._leader.covered_by(self._cluster):
            self._refresh = self._metadata.refresh()

    def _join_again(self, error: KafkaError, now: float) -> None:
        """Abandon the generation because of `error`, which the user's `poll` raises. The next JoinGroup waits for the
        backoff."""
        self._fail(error, now)
        self._member.request_rejoin(f"the rebalance failed: {type(error).__name__}")
        self._member.transition_to(MemberState.JOINING)

    def _sync(self, now: float) -> PollResult:
        if self._sync_assignments is None and not self._assign(now):
            return PollResult(wait_ms=FOREVER if self._member.state is MemberState.SYNCING else 0.0)
        assert self._sync_assignments is not None
        number = self._requests.next()
        sent = self._member.generation
        message = sync_message(self._member, self._sync_assignments)
        self._progress.requested(now, blocks=not self._assignment.assigned())
        request = UnsentRequest(
            SYNC_GROUP, message, lambda reply: self._on_sync(number, sent, reply), node=self._coordinator.connection_id
        )
        return PollResult([request])

    def _assign(self, now: float) -> bool:
        """Compute the assignments of all members, as the leader of the group. Returns True if that succeeds.

        Returns False if the leader still waits for metadata, or if the assignments cannot be computed.
        """
        leader = self._leader
        if leader is None:
            return False
        if self._refresh is not None and not self._refresh.done:
            return False  # waits for one metadata response; topics that are missing in it are not assigned
        try:
            assignments = leader.assign(self._cluster)
        except KafkaError as error:
            self._join_again(error, now)
            return False
        self._seen_metadata = self._cluster.update_version
        self._sync_assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=data) for member_id, data in assignments.items()
        ]
        return True

    def _on_sync(self, number: int, sent: Generation, reply: Reply) -> None:
        if not self._requests.ended(number):
            return
        member = self._member
        if reply.error is not None:
            self._request_failed(reply.error, reply.now)
            if member.state is MemberState.SYNCING:
                member.transition_to(MemberState.JOINING)
            return
        message = reply.message
        self.on_response(success=not message.error_code)
        if message.error_code:
            member.request_rejoin(f"SyncGroup failed: {error_for(message.error_code).name}")
            self._react(SYNC_ACTIONS, message.error_code, sent, "sync", reply.now)
            if member.state is MemberState.SYNCING:
                member.transition_to(MemberState.JOINING)
            return
        if member.state is not MemberState.SYNCING or member.generation != sent:
            return  # the member was reset meanwhile: the next poll joins again
        if message.protocol_type not in (None, PROTOCOL_TYPE) or message.protocol_name not in (None, sent.protocol):
            error = error_for(
                Errors.INCONSISTENT_GROUP_PROTOCOL,
                f"the SyncGroup response of group {member.group_id!r} is of another protocol",
            )
            self._join_again(error, reply.now)
            return
        try:
            assignment = parse_assignment(message.assignment)
        except ProtocolError as error:
            self._join_again(unreadable_assignment_error(member.group_id, error), reply.now)
            return
        self._progress.responded()
        self._metrics.synced(reply.now - reply.sent_at, reply.now)
        self._last_generation = sent.id
        self._may_owe_join &= not frozenset(assignment.partitions).issuperset(self._assignment.assigned())
        if self._owes_join:
            member.request_rejoin("partitions may have been withheld from this static member before it was reset")
        # This response may have been received outside `poll`: by the heartbeat thread, or by another call of the user.
        # The positions may then be ahead of the records that the user has processed, so everything that commits or
        # revokes waits for the next poll.
        self._steps.add(lambda now: self._begin_complete(sent, assignment, now))
        member.transition_to(MemberState.COMPLETING)

    # --- after the sync --------------------------------------------------------------------------------------------

    def _begin_complete(self, generation: Generation, assignment: Assignment, now: float) -> None:
        """Queue the steps after a SyncGroup: commit, revoke the partitions that move away, apply the assignment."""
        if self._member.generation != generation:
            return  # the member was reset since the response: this poll prepares another join
        self._completed = self._group_metadata_of(generation)
        assigned = frozenset(assignment.partitions)
        stray = {tp.topic for tp in assigned if not self._subscription.matches_subscription(tp.topic)}
        if stray:
            # The subscription changed while the group was joining: no callbacks, join again with the new one. If the
            # assignor of the leader assigns such topics, this happens in each rebalance.
            self._member.request_rejoin(f"assigned topics that are no longer subscribed: {sorted(stray)}")
            subscribed = sorted(self._subscription.subscribed_topics())
            self._progress.failed(stray_topics_error(generation, sorted(stray), subscribed), now)
            self._retry_at_once(now)
            self._steps.add(self._to_stable)
            return
        owned = frozenset(self._assignment.assigned())
        revoked = owned - assigned
        if self.rebalance_protocol is RebalanceProtocol.COOPERATIVE and revoked:
            # Records consumed while the group joined are not committed yet. The new owners start at the committed
            # offsets.
            self._assignment.mark_pending_revocation(revoked)
            self._commit_first(now)
        else:
            revoked = frozenset()
        self._steps.add(lambda _now: self._queue_changes(generation, assignment, revoked, assigned - owned))

    def _queue_changes(
        self,
        generation: Generation,
        assignment: Assignment,
        revoked: frozenset[TopicPartition],
        new: frozenset[TopicPartition],
    ) -> None:
        """Queue the listener calls of an assignment, and the steps that apply it."""
        if self._member.generation != generation:
            # The member was reset while the commit was in flight, so other members may own its partitions. This poll
            # prepares another join, which calls on_lost.
            return
        if revoked:
            self._steps.add(RebalanceCallback(CallbackKind.REVOKED, tuple(sorted(revoked))))
            self._member.request_rejoin("need to revoke partitions and re-join")
        assigned, added = frozenset(assignment.partitions), tuple(sorted(new))
        self._steps.add(lambda at: self._apply_assignment(assigned, added, at))
        self._steps.add(lambda _now: self._notify_assignor(assignment))
        self._steps.add(RebalanceCallback(CallbackKind.ASSIGNED, added))
        self._steps.add(lambda _now: self._on_assigned_done(added))
        self._steps.add(self._stable)

    def _notify_assignor(self, assignment: Assignment) -> None:
        """Call the assignor's on_assignment.

        If it raises, the user's poll() raises the error, but the rebalance continues.
        """
        assignor = self._assignors[self._member.generation.protocol or next(iter(self._assignors))]
        try:
            assignor.on_assignment(assignment, self.group_metadata())
        except Exception as error:  # a plugin may raise anything
            self.keep_error(plugin_error(assignor, "on_assignment", error))

    def _stable(self, now: float) -> None:
        self._to_stable(now)
        if self._member.state is MemberState.STABLE:
            self._progress.succeeded()
            self._backoff.reset()
            self._retried_at_once = False

    def _to_stable(self, _now: float) -> None:
        if self._member.state is MemberState.COMPLETING:
            self._member.transition_to(MemberState.STABLE)

    # --- failures --------------------------------------------------------------------------------------------------

    def _request_failed(self, error: KafkaError, now: float) -> None:
        """Handle a request without a response: the connection was lost, or the broker lacks a suitable version."""
        self._member.request_rejoin("the coordinator did not respond")
        if not error.retriable:
            self._fail(error, now)
            return
        self._metrics.rebalance_failed(now)
        self._progress.failed(error, now)
        self._coordinator.mark_unknown(error, now)
        self._backoff.failed(now)

    def _react(self, table: Table, code: int, sent: Generation, what: str, now: float) -> None:
        reaction = table[code]
        hint = f"; {HINTS[code]}" if code in HINTS and self._member.group_instance_id is not None else ""
        error = error_for(code, f"group {self._member.group_id!r}, {what}{hint}", operation="Read")
        log.info("%s", error)
        self._member.request_rejoin(f"{what} failed: {error.name}")
        if reaction is GroupErrorAction.RAISE:
            self._fail(error, now)
            return
        self._metrics.rebalance_failed(now)
        self._progress.failed(error, now)
        if reaction in (GroupErrorAction.RESET, GroupErrorAction.RESET_KEEP_ID):
            if self._member.generation == sent:
                self._member.reset(str(error), keep_member_id=reaction is GroupErrorAction.RESET_KEEP_ID)
            self._retry_at_once(now)
        elif reaction is GroupErrorAction.RETRY_NOW:
            self._retry_at_once(now)
        else:
            if reaction is GroupErrorAction.COORDINATOR:
                self._coordinator.mark_unknown(error, now)
            self._backoff.failed(now)

    def _retry_at_once(self, now: float) -> None:
        """Allow one retry without a backoff for each rebalance. Each further call starts the backoff.

        Without this limit, a coordinator that always sends the same response would get requests without a pause.
        """
        if self._retried_at_once:
            self._backoff.failed(now)
        self._retried_at_once = True

    def _fail(self, error: KafkaError, now: float) -> None:
        self._metrics.rebalance_failed(now)
        self._progress.failed(error, now)
        self.keep_error(error)
        self._backoff.failed(now)

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave_callback(self) -> RebalanceCallback | None:
        """Drop the queued steps. Returns the listener call to run before leaving, or None if nothing is assigned.

        The call is on_lost if the coordinator may have assigned the partitions to other members, else on_revoke.
        """
        self._steps.clear()
        gone = not self._member.generation.valid or self._member.rebalancing
        return self._leave_callback_for(self._assignment.assigned(), gone=gone)

    def last_join(self, leave_group: bool | None = None) -> UnsentRequest | None:
        """Returns the JoinGroup that a static member must send before it closes without a LeaveGroup, or None.

        When the leader moves partitions away from a cooperative member, these partitions stay unassigned until the
        member has revoked them and joined again. If the member closes before that join, its successor receives the
        current assignment without a rebalance, and the partitions have no owner. This JoinGroup starts the missing
        rebalance. It names no owned partitions, and its response is ignored.
        """
        member = self._member
        stays = member.group_instance_id is not None and not leave_group
        if not (stays and self._may_owe_join and member.in_group) or self._coordinator.connection_id is None:
            return None
        topics, assignors = self._subscription.subscribed_topics(), self._assignors.values()
        try:
            message = join_message(self._config, member, assignors, topics, (), self._last_generation)
        except AssignorError as error:
            log.warning("group %s: partitions may stay unread until the next rebalance: %s", member.group_id, error)
            return None
        self._requests.abandon()
        number = self._requests.next()
        self._may_owe_join = False
        return self._join_request(message, lambda _reply: self._requests.forget(number))

    def leave(self, reason: str, now: float, leave_group: bool | None = None) -> UnsentRequest | None:
        """Drop the assignment and the generation. Returns the LeaveGroup to send, or None if none must be sent."""
        request = leave_request(self._member, self._coordinator, reason, leave_group=leave_group)
        if self._subscription.is_group_managed:
            self._subscription.assign_from_group(())
        self._steps.clear()
        self._forget_match()
        self._requests.abandon()
        self._metrics.left()
        self._member.leave()
        self._completed = self._group_metadata_of(Generation())
        self._error = None
        self._heartbeat.end_membership()
        self._backoff.reset()
        self._retried_at_once = False
        return request
