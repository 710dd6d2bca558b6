"""The state of a member of a share group (KIP-932): member id, member epoch, state and assignment.

Decides which changes of state are legal. The member chooses its id and keeps it. There are no rebalance callbacks, so
an assignment is applied as soon as it arrives.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.transitions import checked_transition
from kconsumer.coordinator.consumer_protocol.state import JOIN_EPOCH, LEAVE_EPOCH, LocalAssignment, TopicIds

log = get_logger(__name__)


class ShareMemberState(enum.Enum):
    """The state of a member at the coordinator of its share group."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"  # the heartbeat with member epoch 0 is due or in flight
    STABLE = "stable"
    LEAVING = "leaving"  # the heartbeat that leaves is due
    STALE = "stale"  # left because the caller did not poll; the next poll joins again
    FATAL = "fatal"  # ended by an error that every poll raises


S = ShareMemberState
TRANSITIONS: Mapping[ShareMemberState, frozenset[ShareMemberState]] = {
    S.UNSUBSCRIBED: frozenset({S.JOINING}),
    S.JOINING: frozenset({S.JOINING, S.STABLE, S.LEAVING, S.FATAL}),
    S.STABLE: frozenset({S.JOINING, S.LEAVING, S.FATAL}),
    S.LEAVING: frozenset({S.UNSUBSCRIBED, S.STALE}),
    S.STALE: frozenset({S.JOINING, S.UNSUBSCRIBED}),
    S.FATAL: frozenset({S.UNSUBSCRIBED}),
}
NOT_IN_GROUP = frozenset({S.UNSUBSCRIBED, S.STALE, S.FATAL})  # no heartbeats are sent


class ShareMember:
    """The member's id, member epoch, state and assignment; `transition_to` is the only way to change the state."""

    __slots__ = ("group_id", "member_epoch", "member_id", "state", "target")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id  # kept through every fence and rejoin
        self.member_epoch = JOIN_EPOCH
        self.state = ShareMemberState.UNSUBSCRIBED
        self.target = LocalAssignment()  # what the coordinator assigned

    def transition_to(self, state: ShareMemberState) -> None:
        """Change the state. Raises StateError and changes nothing if `TRANSITIONS` does not allow it."""
        old = self.state
        self.state = checked_transition(TRANSITIONS, f"the member of share group {self.group_id}", old, state)
        log.debug("share group %s: member %s: %s -> %s", self.group_id, self.member_id, old.name, state.name)

    @property
    def in_group(self) -> bool:
        """True if the coordinator has this member, or will have it after the next heartbeat."""
        return self.state not in NOT_IN_GROUP

    def assign(self, partitions: TopicIds) -> None:
        """Set the assignment."""
        self.target = self.target.followed_by(partitions)

    def rejoin(self) -> None:
        """Make the next heartbeat join the group."""
        self.member_epoch = JOIN_EPOCH
        self.target = LocalAssignment()
        self.transition_to(S.JOINING)

    def start_leaving(self) -> None:
        """Make the next heartbeat leave the group."""
        self.member_epoch = LEAVE_EPOCH
        self.target = LocalAssignment()
        self.transition_to(S.LEAVING)

    def __repr__(self) -> str:
        return f"<ShareMember {self.group_id!r} {self.state.name} epoch={self.member_epoch} id={self.member_id}>"
