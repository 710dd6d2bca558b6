"""The state of a member of the consumer protocol (KIP-848): member id, member epoch, state and assignments.

Decides which changes of state are legal. The states are those of Java's `MemberState`. The managers of membership,
heartbeats and commits share this state and decide which requests are sent. The member epoch replaces the
generation of the classic protocol; it is a number per member, not per group.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.transitions import checked_transition
from kconsumer.coordinator.group_member import Generation

log = get_logger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # a successor with the same group_instance_id will join


class MemberState(enum.Enum):
    """The state of a member at its coordinator."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"  # the heartbeat with member epoch 0 is due or in flight
    RECONCILING = "reconciling"  # the target assignment is not yet owned
    ACKNOWLEDGING = "acknowledging"  # the target assignment is owned; the heartbeat that reports it is due
    STABLE = "stable"
    FENCED = "fenced"  # the coordinator removed the member: run on_lost, then join again
    PREPARE_LEAVING = "prepare leaving"  # the callbacks before leaving have to run
    LEAVING = "leaving"  # the heartbeat that leaves is due
    STALE = "stale"  # left because the caller did not poll; the next poll joins again
    FATAL = "fatal"  # ended by an error that every call raises


S = MemberState
TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = {
    S.UNSUBSCRIBED: frozenset({S.JOINING, S.PREPARE_LEAVING, S.FATAL}),
    S.JOINING: frozenset({S.RECONCILING, S.STABLE, S.FENCED, S.PREPARE_LEAVING, S.FATAL}),
    S.RECONCILING: frozenset({S.RECONCILING, S.ACKNOWLEDGING, S.STABLE, S.FENCED, S.PREPARE_LEAVING, S.FATAL}),
    S.ACKNOWLEDGING: frozenset({S.RECONCILING, S.STABLE, S.FENCED, S.PREPARE_LEAVING, S.FATAL}),
    S.STABLE: frozenset({S.RECONCILING, S.FENCED, S.PREPARE_LEAVING, S.FATAL}),
    S.FENCED: frozenset({S.UNSUBSCRIBED, S.JOINING}),
    S.PREPARE_LEAVING: frozenset({S.UNSUBSCRIBED, S.FENCED, S.LEAVING, S.FATAL}),
    S.LEAVING: frozenset({S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL}),
    S.STALE: frozenset({S.JOINING}),
    S.FATAL: frozenset(),
}
NOT_IN_GROUP = frozenset({S.UNSUBSCRIBED, S.FENCED, S.FATAL, S.STALE})  # no heartbeats are sent
LEAVING_STATES = frozenset({S.PREPARE_LEAVING, S.LEAVING})

TopicIds = Mapping[bytes, frozenset[int]]  # topic id -> partition numbers


@dataclass(frozen=True, slots=True)
class LocalAssignment:
    """Assigned partitions by topic id, with a number that grows with each change (Java `LocalAssignment`).

    Example: the coordinator assigns A, then B, then A again. The numbers of the two assignments of A differ, so that
    the second one is acknowledged, too.
    """

    local_epoch: int = -1  # -1: nothing was assigned yet; an empty assignment has a number of 0 or more
    partitions: TopicIds = field(default_factory=dict)

    def followed_by(self, partitions: TopicIds) -> LocalAssignment:
        """Returns the next assignment, with these partitions. Returns this one if it has exactly these partitions."""
        if self.local_epoch >= 0 and partitions == self.partitions:
            return self
        return LocalAssignment(self.local_epoch + 1, partitions)


class ConsumerMember:
    """The member's id, member epoch, state and assignment; `transition_to` is the only way to change the state."""

    __slots__ = ("current", "group_id", "group_instance_id", "member_epoch", "member_id", "state", "target")

    rebalancing = False  # never True: commits are accepted while other members rebalance
    rejoin_reason = None  # always None: the coordinator decides when to rebalance

    def __init__(self, group_id: str, group_instance_id: str | None, member_id: str) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = member_id  # kept through every fence and rejoin (KIP-1082)
        self.member_epoch = JOIN_EPOCH
        self.state = MemberState.UNSUBSCRIBED
        self.target = LocalAssignment()  # what the coordinator assigned
        self.current = LocalAssignment()  # what is owned, and was or will be acknowledged

    def transition_to(self, state: MemberState) -> None:
        """Change the state. Raises StateError and changes nothing if `TRANSITIONS` does not allow it."""
        old = self.state
        self.state = checked_transition(TRANSITIONS, f"the member of group {self.group_id}", old, state)
        log.debug("group %s: member %s: %s -> %s", self.group_id, self.member_id, old.name, state.name)

    @property
    def reconciled(self) -> bool:
        """True if the member owns its target assignment."""
        return self.target == self.current

    @property
    def reported(self) -> TopicIds:
        """The partitions that a heartbeat reports as owned.

        They include those of a newer target assignment, because the member may take these before the response arrives.
        If they were left out, the coordinator could conclude that the member will not take them, and give them to
        another member.
        """
        merged = {topic_id: frozenset(partitions) for topic_id, partitions in self.current.partitions.items()}
        for topic_id, partitions in self.target.partitions.items():
            merged[topic_id] = merged.get(topic_id, frozenset()).union(partitions)
        return merged

    @property
    def in_group(self) -> bool:
        """True if the coordinator has this member, or will have it after the next heartbeat."""
        return self.state not in NOT_IN_GROUP

    @property
    def heartbeating(self) -> bool:
        """True if heartbeats must be sent."""
        return self.in_group

    @property
    def generation(self) -> Generation:
        """The member epoch and member id as a Generation, for commits. While the member is not in the group, it is the
        empty `Generation()`."""
        if self.member_epoch <= JOIN_EPOCH:
            return Generation()
        return Generation(self.member_epoch, self.member_id)

    @property
    def may_commit(self) -> bool:
        """True if the coordinator accepts commits with the member epoch."""
        return self.member_epoch > JOIN_EPOCH

    def request_rejoin(self, reason: str) -> None:
        """Log a warning, as Java does: in this protocol only the coordinator can start a rebalance."""
        log.warning("group %s: a rebalance cannot be requested with group_protocol='consumer'", self.group_id)

    def update_epoch(self, member_epoch: int, member_id: str) -> None:
        """Set the member epoch and member id from a response. Brokers before KIP-1082 choose the member id."""
        self.member_epoch = member_epoch
        self.member_id = member_id

    def assign(self, partitions: TopicIds) -> None:
        """Set the target assignment."""
        self.target = self.target.followed_by(partitions)

    def own(self, assignment: LocalAssignment) -> None:
        """Make this the owned assignment, which the next heartbeat acknowledges."""
        self.current = assignment
        self.transition_to(S.ACKNOWLEDGING)

    def set_leave_epoch(self, *, for_good: bool = False) -> None:
        """Set the member epoch for the heartbeat that leaves the group.

        The epoch is -2 for a static member unless `for_good` is True, so that a successor can take over the partitions.
        In all other cases the epoch is -1.
        """
        is_static = self.group_instance_id is not None
        self.member_epoch = LEAVE_STATIC_EPOCH if is_static and not for_good else LEAVE_EPOCH

    def forget_assignment(self) -> None:
        """Clear both assignments, and set the member epoch to 0, so that the next heartbeat joins the group."""
        self.member_epoch = JOIN_EPOCH
        self.target = self.current = LocalAssignment()

    def __repr__(self) -> str:
        return f"<ConsumerMember {self.group_id!r} {self.state.name} epoch={self.member_epoch} id={self.member_id}>"
