"""Membership of the consumer protocol (KIP-848): the reconciliation of the owned partitions with the target assignment.

The coordinator computes the target assignment. The member then takes these steps: it resolves topic ids, stops fetching
from the partitions to revoke, commits, calls on_revoke, drops these partitions, adds the new ones without fetching from
them yet, calls on_assign, and acknowledges. Callbacks are steps in a queue: the engine runs the one that is due on the
calling thread and then calls `callback_done`. If a callback raises, the reconciliation is not acknowledged, and the
next poll retries it. `heartbeat.py` decides when heartbeats are sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import PollResult, UnsentRequest
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.consumer_protocol.heartbeat import ConsumerHeartbeatManager
from kconsumer.coordinator.consumer_protocol.state import (
    LEAVING_STATES,
    ConsumerMember,
    LocalAssignment,
    MemberState,
)
from kconsumer.coordinator.consumer_protocol.topic_names import TopicNames
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.membership import Membership
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback
from kconsumer.errors import KafkaError
from kconsumer.metadata.manager import MetadataManager
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatResponse
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition

log = get_logger(__name__)

_STABLE = MemberState.STABLE


class ConsumerMembership(Membership[ConsumerMember]):
    """Reconciles a member's partitions with its target assignment (Java's `ConsumerMembershipManager`)."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: ConsumerMember,
        subscription: SubscriptionState,
        metadata: MetadataManager,
        coordinator: CoordinatorManager,
        commits: CommitManager,
        names: TopicNames,
        metrics: GroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, member, subscription, metadata, coordinator, commits, metrics)
        self._names = names
        self.heartbeat = ConsumerHeartbeatManager(config, member, subscription, coordinator, self, self._metrics, rng)
        self._pending_on_assign: frozenset[TopicPartition] = frozenset()  # owned, but on_assign has not returned
        # Owned partitions for which on_assign has not been called yet, or on_revoke has been called already.
        self._unknown_to_listener: frozenset[TopicPartition] = frozenset()
        self._left_idle = False  # the member left, or leaves, because the user does not poll

    # --- what the engine calls -------------------------------------------------------------------------------------

    def callback_began(self, callback: RebalanceCallback) -> None:
        """Update `_unknown_to_listener` just before the listener is called."""
        if callback.kind is CallbackKind.ASSIGNED:
            self._unknown_to_listener = frozenset()
        elif callback.kind is CallbackKind.REVOKED:
            self._unknown_to_listener |= frozenset(callback.partitions)

    def callback_done(self, callback: RebalanceCallback, now: float, error: Exception | None = None) -> None:
        """Continue after a listener call. `error` is the exception that it raised, or None.

        After an error during a reconciliation, the next poll retries the reconciliation. Partitions that were lost, or
        that are revoked because the member leaves, are dropped in any case.
        """
        if self._steps.due_callback is not callback:
            return  # the member was fenced meanwhile
        if error is not None and self._member.state is MemberState.RECONCILING:
            self._unknown_to_listener -= frozenset(callback.partitions)
            self._steps.clear()
        else:
            self._steps.callback_done(callback, now)

    @property
    def idle(self) -> bool:
        return self._member.state is _STABLE and not self._steps.queue

    def take_error(self) -> KafkaError | None:
        """Returns the error that ended the membership, or None.

        Every call of the user raises this error until the user unsubscribes.
        """
        return self._error if self._subscription.is_group_managed else None

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Join the group if necessary, and reconcile as far as possible without waiting. Returns no requests."""
        if not self._subscription.is_group_managed:
            return PollResult()
        self._steps.advance(now)
        if self._steps:
            return PollResult()
        if self._member.state in (MemberState.UNSUBSCRIBED, MemberState.STALE):
            self._join()
        if self._member.state is MemberState.RECONCILING and self._reconcile(now):
            return PollResult(wait_ms=0.0)
        return PollResult()

    # --- joining ---------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if not self._pattern_matched():
            return
        self._left_idle = False
        self._member.forget_assignment()
        self._member.transition_to(MemberState.JOINING)

    # --- what heartbeats report ------------------------------------------------------------------------------------

    def on_heartbeat_success(self, message: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """Set the member epoch and, if the response has one, the target assignment. Change the state accordingly."""
        member = self._member
        if not member.in_group or member.state is MemberState.LEAVING or message.member_epoch < 0:
            return  # the response to a heartbeat of the membership that is ending
        if message.member_epoch != member.member_epoch:
            log.info("group %s: member %s at member epoch %d", member.group_id, member.member_id, message.member_epoch)
        member.update_epoch(message.member_epoch, message.member_id or member.member_id)
        if member.state is MemberState.PREPARE_LEAVING:
            return  # its callbacks run, and it takes no new assignment
        if message.assignment is not None:
            partitions = {t.topic_id: frozenset(t.partitions) for t in message.assignment.topic_partitions}
            member.assign({t: ps for t, ps in partitions.items() if ps})
        if not member.reconciled:
            if member.state is not MemberState.RECONCILING:
                self._metrics.rebalance_began(now)
            if member.state is not MemberState.ACKNOWLEDGING:
                member.transition_to(MemberState.RECONCILING)
        elif member.state in (MemberState.JOINING, MemberState.RECONCILING):
            member.transition_to(MemberState.STABLE)

    def on_fenced(self, reason: str, now: float) -> None:
        """Queue a call of on_lost for all partitions, and a step that joins again. Called when the member was fenced.

        A member that was leaving does not join again.
        """
        member = self._member
        if not member.in_group:
            return
        log.info("group %s: member %s fenced: %s", member.group_id, member.member_id, reason)
        leaving = member.state in LEAVING_STATES
        member.transition_to(MemberState.FENCED)
        if not (leaving and self._left_idle):  # else the queued on_lost must still run
            self._drop_rebalance()
        member.forget_assignment()
        if leaving:
            member.transition_to(MemberState.UNSUBSCRIBED)
            return
        self._metrics.rebalance_failed(now)
        self._lose_all(lambda _now: member.transition_to(MemberState.JOINING), now)

    def on_fatal(self, error: KafkaError) -> None:
        """End the membership with an error. The application needs a new consumer to join again."""
        if not self._member.in_group:
            return
        self._error = error
        self._member.transition_to(MemberState.FATAL)
        self._drop_rebalance()
        self._member.forget_assignment()
        self._lose_all(None, 0.0)

    def on_heartbeat_sent(self) -> None:
        """Change the state after a heartbeat was sent that acknowledges an assignment or leaves the group."""
        member = self._member
        if member.state is MemberState.ACKNOWLEDGING:
            member.transition_to(MemberState.STABLE if member.reconciled else MemberState.RECONCILING)
        elif member.state is MemberState.LEAVING:
            member.transition_to(MemberState.STALE if self._left_idle else MemberState.UNSUBSCRIBED)
            member.forget_assignment()

    def on_poll_timer_expired(self) -> None:
        """Leave the group, because the user does not poll. The user's next poll runs on_lost."""
        member = self._member
        self._left_idle = True
        self._drop_rebalance()
        member.transition_to(MemberState.PREPARE_LEAVING)
        member.transition_to(MemberState.LEAVING)
        member.set_leave_epoch()
        self._lose_all(None, 0.0)

    def _drop_rebalance(self) -> None:
        self._steps.clear()
        self._pending_on_assign = frozenset()
        self._metrics.left()

    def _known_to_listener(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Returns those of `partitions` that must be passed to on_revoke or on_lost when they are given up, sorted.

        These are the partitions that were passed to on_assign, and have not been passed to on_revoke since.
        """
        return tuple(sorted(set(partitions) - self._unknown_to_listener))

    def _lose_all(self, then: Callable[[float], None] | None, now: float) -> None:
        owned = self._assignment.assigned() if self._subscription.is_group_managed else ()
        if owned:
            self._assignment.set_target_assignment(())
            if known := self._known_to_listener(owned):
                self._steps.add(RebalanceCallback(CallbackKind.LOST, known))
            self._steps.add(lambda _now: self._subscription.assign_from_group(()))
        if then is not None:
            self._steps.add(then)
        self._steps.advance(now)

    # --- reconciliation --------------------------------------------------------------------------------------------

    def _reconcile(self, now: float) -> bool:
        """Queue the steps that lead from the owned partitions to the target assignment. Run those that need not wait.

        Topics whose names are not known yet are left out. Returns True if other managers must be polled again.
        """
        member = self._member
        goal, wanted = self._names.resolve(member.target)
        # This is necessary even if no steps follow. Example: on_revoke has raised, and then the coordinator assigned
        # the partitions again that this member still owns. They must be fetched again.
        self._assignment.set_target_assignment(wanted)
        current = member.current
        if current.local_epoch >= 0 and goal.partitions == current.partitions and not self._pending_on_assign:
            if goal.local_epoch == current.local_epoch:
                return False  # the rest of the target has no name yet
            self._finish(goal, now)
            return True
        owned = frozenset(self._assignment.assigned())
        revoked = sorted(owned - wanted)
        added = sorted((wanted - owned) | (wanted & self._pending_on_assign))
        self._commit_first(now)
        if known := self._known_to_listener(revoked):
            self._steps.add(RebalanceCallback(CallbackKind.REVOKED, known))
        self._steps.add(lambda at: self._apply_before_on_assign(wanted, added, at))
        self._steps.add(RebalanceCallback(CallbackKind.ASSIGNED, tuple(added)))
        self._steps.add(lambda _now: self._on_assign_done())
        self._steps.add(lambda at: self._finish(goal, at))
        self._steps.advance(now)
        return True

    def _apply_before_on_assign(
        self, wanted: frozenset[TopicPartition], added: list[TopicPartition], now: float
    ) -> None:
        self._apply_assignment(wanted, added, now)
        self._pending_on_assign = self._unknown_to_listener = frozenset(added)

    def _on_assign_done(self) -> None:
        self._on_assigned_done(self._pending_on_assign)
        self._pending_on_assign = frozenset()

    def _finish(self, goal: LocalAssignment, now: float) -> None:
        self._member.own(goal)
        self._metrics.rebalanced(now)

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave_callback(self) -> RebalanceCallback | None:
        """Start leaving the group. Returns the listener call to run first, or None if no call is needed.

        The call is on_lost if the coordinator may have assigned the partitions to other members, else on_revoke.
        """
        self._drop_rebalance()
        gone = not self._member.generation.valid
        if self._member.in_group and self._member.state not in LEAVING_STATES:
            self._member.transition_to(MemberState.PREPARE_LEAVING)
        return self._leave_callback_for(self._known_to_listener(self._assignment.assigned()), gone=gone)

    def leave(self, reason: str, now: float, leave_group: bool | None = None) -> UnsentRequest | None:
        """Drop the assignment. Returns the heartbeat that leaves the group, or None if none must be sent.

        With `leave_group` None, dynamic members leave, and static members announce that a successor will join (member
        epoch -2). With True, every member leaves. With False, static members do the same as with None; dynamic members
        send nothing, and the coordinator removes them after the session timeout.
        """
        member = self._member
        self.heartbeat.progress.done()
        self._steps.clear()
        self._forget_match()
        if self._subscription.is_group_managed:
            self._subscription.assign_from_group(())
        if member.state not in LEAVING_STATES:
            if member.state is MemberState.FENCED:
                member.transition_to(MemberState.UNSUBSCRIBED)
            return None
        self._left_idle = False
        if member.state is MemberState.PREPARE_LEAVING:  # else LEAVING, because the poll interval was exceeded
            member.transition_to(MemberState.LEAVING)
        static = member.group_instance_id is not None
        if self._coordinator.connection_id is None or (leave_group is False and not static):
            self.heartbeat.end_membership()
            self.on_heartbeat_sent()
            return None
        log.info("group %s: member %s leaves: %s", member.group_id, member.member_id, reason)
        member.set_leave_epoch(for_good=bool(leave_group))
        return self.heartbeat.request(now)
