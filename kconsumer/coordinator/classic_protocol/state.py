"""The state of a classic member: its generation, its step of the rebalance, and whether it must join again.

Decides which changes of state are legal. The managers of membership, heartbeats and commits share this state and decide
which requests are sent. Java has no states PREPARING and COMPLETING: its members are STABLE during these steps. They
exist here because the engine runs the callbacks and the commit before a rebalance as separate steps.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.transitions import checked_transition
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import KafkaError

log = get_logger(__name__)


class MemberState(enum.Enum):
    """The step of the rebalance that a member is in."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"  # commit, then on_revoke or on_lost; the old generation is still valid
    JOINING = "joining"  # JoinGroup is due or in flight (Java's PREPARING_REBALANCE)
    SYNCING = "syncing"  # joined, SyncGroup is due or in flight (Java's COMPLETING_REBALANCE)
    COMPLETING = "completing"  # the assignment is known, callbacks have to run
    STABLE = "stable"


S = MemberState
# Every state may change back to UNJOINED: any response can reset the member.
TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = {
    S.UNJOINED: frozenset({S.PREPARING, S.UNJOINED}),
    S.PREPARING: frozenset({S.JOINING, S.UNJOINED}),
    S.JOINING: frozenset({S.SYNCING, S.UNJOINED}),
    S.SYNCING: frozenset({S.COMPLETING, S.JOINING, S.UNJOINED}),
    S.COMPLETING: frozenset({S.STABLE, S.PREPARING, S.UNJOINED}),
    S.STABLE: frozenset({S.PREPARING, S.UNJOINED}),
}

_COMMIT_STATES = frozenset({S.PREPARING, S.COMPLETING, S.STABLE})


class Member:
    """The member's generation and state; `transition_to` is the only way to change the state."""

    __slots__ = ("fenced", "generation", "group_id", "group_instance_id", "join_in_flight", "rejoin_reason", "state")

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.generation = Generation()
        self.state = MemberState.UNJOINED
        self.join_in_flight = False
        self.rejoin_reason: str | None = None  # set while the member must join again; sent with JoinGroup
        self.fenced: KafkaError | None = None  # set if another consumer with the same group_instance_id took over

    def transition_to(self, state: MemberState) -> None:
        """Change the state. Raises StateError and changes nothing if `TRANSITIONS` does not allow it."""
        self.state = checked_transition(TRANSITIONS, f"the member of group {self.group_id}", self.state, state)

    @property
    def in_group(self) -> bool:
        """True if the coordinator may regard this consumer as a member of the group."""
        return bool(self.generation.member_id) and self.state is not S.UNJOINED

    @property
    def heartbeating(self) -> bool:
        """True if the coordinator expects heartbeats. It expects none while a JoinGroup is in flight.

        It does expect them in the state JOINING before the JoinGroup is sent. This may take long: if a SyncGroup fails
        while the user processes records, the next `poll` sends the JoinGroup.
        """
        return self.generation.valid and self.state is not S.UNJOINED and not self.join_in_flight

    @property
    def rebalancing(self) -> bool:
        """True while a JoinGroup or SyncGroup is due or in flight."""
        return self.state in (S.JOINING, S.SYNCING)

    @property
    def may_commit(self) -> bool:
        """True if the coordinator accepts commits of this generation."""
        return self.generation.valid and self.state in _COMMIT_STATES

    def request_rejoin(self, reason: str) -> None:
        """Make the next poll join again. If there are several reasons, the first is sent to the coordinator."""
        if self.rejoin_reason is None:
            log.info("group %s: rejoin requested: %s", self.group_id, reason)
            self.rejoin_reason = reason

    def join_sent(self) -> None:
        """Clear the request to rejoin, because a JoinGroup was sent."""
        self.rejoin_reason = None
        self.join_in_flight = True

    def join_ended(self) -> None:
        """Record that the JoinGroup has a response, or that its connection was lost."""
        self.join_in_flight = False

    def adopt_id(self, member_id: str) -> None:
        """Use the member id that the coordinator requires for the next JoinGroup (KIP-394)."""
        self.generation = Generation(member_id=member_id)

    def joined(self, generation: Generation) -> None:
        """Set the generation from a JoinGroup response, and change the state to SYNCING."""
        self.generation = generation
        self.transition_to(S.SYNCING)

    def reset(self, reason: str, *, keep_member_id: bool = False, fenced: KafkaError | None = None) -> None:
        """Forget the generation, which the coordinator no longer accepts. The next poll joins again.

        `fenced` is the error to store if another consumer with the same group_instance_id took over. It is None if the
        reset has another reason.
        """
        self.fenced = fenced
        member_id = self.generation.member_id if keep_member_id else ""
        log.info("group %s: generation %d reset: %s", self.group_id, self.generation.id, reason)
        self.generation = Generation(member_id=member_id)
        self.transition_to(S.UNJOINED)
        self.request_rejoin(reason)

    def leave(self) -> None:
        """Forget the generation and any request to rejoin, because the consumer leaves the group."""
        self.generation = Generation()
        self.rejoin_reason = None
        self.join_in_flight = False  # its response is ignored
        self.transition_to(S.UNJOINED)

    def __repr__(self) -> str:
        g = self.generation
        return f"<Member {self.group_id!r} {self.state.name} generation={g.id} id={g.member_id!r}>"
