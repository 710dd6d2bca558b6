"""Our own place in a group of the KIP-848 protocol: member id, member epoch, state, and what was assigned.

Plain state shared by the managers that need it (membership, heartbeat, commits); it decides nothing about requests.
The states and their legal order are Java's (`MemberState`); an epoch is what a generation is in the classic protocol,
except that each member has its own.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kconsumer.coordinator.classic_protocol.state import Generation
from kconsumer.deferred_calls import get_logger
from kconsumer.transitions import checked_transition

log = get_logger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(enum.Enum):
    """Where the member stands with its coordinator."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"  # a heartbeat with epoch 0 is to be sent, or to be answered
    RECONCILING = "reconciling"  # what is assigned is not yet what is owned
    ACKNOWLEDGING = "acknowledging"  # owned is what was assigned; the coordinator is to be told
    STABLE = "stable"
    FENCED = "fenced"  # the coordinator forgot us: give everything up, then join again
    PREPARE_LEAVING = "prepare leaving"  # callbacks before leaving
    LEAVING = "leaving"  # the heartbeat that leaves is to be sent
    STALE = "stale"  # left because the caller did not poll; the next poll joins again
    FATAL = "fatal"


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
NOT_IN_GROUP = frozenset({S.UNSUBSCRIBED, S.FENCED, S.FATAL, S.STALE})  # not in the group as far as heartbeats go
LEAVING_STATES = frozenset({S.PREPARE_LEAVING, S.LEAVING})

TopicIds = Mapping[bytes, frozenset[int]]  # topic id -> partition numbers


@dataclass(frozen=True, slots=True)
class LocalAssignment:
    """Partitions by topic id, numbered locally: equal partitions assigned anew are still to be acknowledged anew."""

    local_epoch: int = -1  # -1: nothing was ever assigned, which is not the same as an assignment of nothing
    partitions: TopicIds = field(default_factory=dict)

    def followed_by(self, partitions: TopicIds) -> LocalAssignment:
        """The next assignment; this one when it says the same."""
        if self.local_epoch >= 0 and partitions == self.partitions:
            return self
        return LocalAssignment(self.local_epoch + 1, partitions)


class ConsumerMember:
    """The member's id, epoch, state and assignment; `transition_to` is the only way to change the state."""

    __slots__ = ("current", "group_id", "group_instance_id", "member_epoch", "member_id", "state", "target")

    rebalancing = False  # an epoch stays good for commits while others rebalance
    rejoin_reason = None  # the coordinator decides when to rebalance

    def __init__(self, group_id: str, group_instance_id: str | None, member_id: str | None = None) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = member_id or str(uuid.uuid4())  # kept through every fence and rejoin (KIP-1082)
        self.member_epoch = JOIN_EPOCH
        self.state = MemberState.UNSUBSCRIBED
        self.target = LocalAssignment()  # what the coordinator wants us to own
        self.current = LocalAssignment()  # what we own, and have told or will tell

    def transition_to(self, state: MemberState) -> None:
        """Change the state. Raises StateError, changing nothing, if the table does not allow it."""
        old = self.state
        self.state = checked_transition(TRANSITIONS, f"the member of group {self.group_id}", old, state)
        log.debug("group %s: member %s: %s -> %s", self.group_id, self.member_id, old.name, state.name)

    @property
    def reconciled(self) -> bool:
        """Whether what is owned is what is assigned."""
        return self.target == self.current

    @property
    def in_group(self) -> bool:
        """Whether the coordinator expects, or is to be told of, this member."""
        return self.state not in NOT_IN_GROUP

    @property
    def heartbeating(self) -> bool:
        """Whether heartbeats are to be sent."""
        return self.state not in NOT_IN_GROUP

    @property
    def generation(self) -> Generation:
        """Epoch and member id in the form that commits use; -1 and "" outside the group."""
        if self.member_epoch <= JOIN_EPOCH:
            return Generation()
        return Generation(self.member_epoch, self.member_id)

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator would take a commit with the member's epoch."""
        return self.member_epoch > JOIN_EPOCH

    def request_rejoin(self, reason: str) -> None:
        """Nothing: the coordinator decides when to rebalance (Java logs the same)."""
        log.warning("group %s: a rebalance cannot be asked for with group_protocol='consumer'", self.group_id)

    def update_epoch(self, member_epoch: int, member_id: str) -> None:
        """Take over the member epoch of a response, and the member id, which brokers before KIP-1082 choose."""
        self.member_epoch = member_epoch
        self.member_id = member_id

    def assign(self, partitions: TopicIds) -> None:
        """Take over a target assignment."""
        self.target = self.target.followed_by(partitions)

    def own(self, assignment: LocalAssignment) -> None:
        """Note that this is owned now; the next heartbeat acknowledges it."""
        self.current = assignment
        self.transition_to(S.ACKNOWLEDGING)

    def set_leave_epoch(self, *, for_good: bool = False) -> None:
        """Set the member epoch of the heartbeat that leaves. A static member comes back, unless for good."""
        is_static = self.group_instance_id is not None
        self.member_epoch = LEAVE_STATIC_EPOCH if is_static and not for_good else LEAVE_EPOCH

    def forget_assignment(self) -> None:
        """Own nothing, be assigned nothing; the next heartbeat joins."""
        self.member_epoch = JOIN_EPOCH
        self.target = self.current = LocalAssignment()

    def __repr__(self) -> str:
        return f"<ConsumerMember {self.group_id!r} {self.state.name} epoch={self.member_epoch} id={self.member_id}>"
