"""The state of a classic group: generation, protocol, and what is stored in the offsets topic.

Decides which protocol the members choose, and which operations the state allows. The members are in
`classic_members.py`. How members join is in `classic_join.py`, how a rebalance proceeds in `classic_rebalance.py`, and
the other requests are in `classic_requests.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import decode
from kconsumer.errors import ProtocolError
from kconsumer.schema.dsl import plan
from kconsumer.schema.embedded import PROTOCOL_TYPE, ConsumerProtocolSubscription
from kconsumer.testing.cluster.groups.classic_member import Protocols
from kconsumer.testing.cluster.groups.classic_members import ClassicMembers
from kconsumer.testing.cluster.groups.classic_rebalance import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicRebalance,
)
from kconsumer.testing.cluster.groups.group import Group, GroupError

if TYPE_CHECKING:
    from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
    from kconsumer.testing.cluster.groups.offset_store import CommittedOffset


class Stored:
    """A copy of a classic group's state, as Kafka stores it in the offsets topic.

    `ClassicGroup.store` creates it, for example when a rebalance has completed.
    """

    def __init__(self, group: ClassicGroup) -> None:
        self.generation = group.generation
        self.protocol_type = group.protocol_type
        self.protocol_name = group.protocol_name
        self.leader_id = group.leader_id
        self.state_since_ms = group.state_since_ms
        name = group.protocol_name or ""
        self.members = [member.copy(member.id, [(name, member.metadata(name))]) for member in group.members.values()]


class ClassicGroup(ClassicMembers, Group):
    """A group that uses JoinGroup and SyncGroup, or a group without members that only has committed offsets."""

    type = "classic"

    def __init__(self, coordinator: GroupCoordinator, group_id: str, now: float) -> None:
        Group.__init__(self, group_id)
        ClassicMembers.__init__(self)
        self.coordinator = coordinator
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_since_ms = coordinator.cluster.wall_ms(now)
        self.generation = 0
        self.subscribed_topics: set[str] | None = None  # None: unknown
        self.rebalance = ClassicRebalance(self)
        self._stored: Stored | None = None

    # --- the protocol ---

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether a member with this protocol type and these protocols can join.

        The type must be that of the group, and one of the protocols must be supported by all present members. An empty
        group accepts any type and any protocols.
        """
        if self.state == EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(protocols)
        candidates = self.common_protocols()
        return any(name in candidates for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Returns the protocol with the most votes of the members.

        If several protocols have equally many votes, returns the first of them by name. Kafka's choice depends on a
        hash map.
        """
        candidates = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name))

    # --- state and generation ---

    def transition(self, state: str, now: float) -> None:
        """Set the state, and remember the previous state and the time of the change."""
        self.previous_state, self.state = self.state, state
        self.state_since_ms = self.coordinator.cluster.wall_ms(now)

    def begin_generation(self, now: float) -> None:
        """Begin the next generation with the present members.

        The state becomes CompletingRebalance, or Empty if the group has no members.
        """
        self.generation += 1
        self.protocol_name = self.choose_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        self.transition(COMPLETING_REBALANCE if self.members else EMPTY, now)
        self.pending_sync.clear()

    def _compute_subscribed_topics(self) -> set[str] | None:
        """Returns the topics to which the members subscribe.

        Returns None if the members are not consumers, or if a subscription cannot be decoded.
        """
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        try:
            rows = [subscribed_topics(member.metadata(self.protocol_name)) for member in self.members.values()]
        except ProtocolError:
            return None
        return {topic for topics in rows for topic in topics}

    def store(self) -> None:
        """Write the group to the offsets topic."""
        self._stored = Stored(self)

    # --- the interface of groups ---

    @property
    def state_name(self) -> str:
        return self.state

    @property
    def is_empty(self) -> bool:
        """True if the state is Empty. Pending members, which have an id and have not joined yet, do not count."""
        return self.state == EMPTY

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Raise GroupError if the sender must not commit offsets.

        The sender must be a member, and `epoch` must be the present generation. A sender without a generation may
        commit if the group is empty, or in a transaction if it has no member id. Outside of transactions, the error is
        REBALANCE_IN_PROGRESS while the members wait for the leader's assignment.
        """
        if epoch < 0 and self.state == EMPTY:
            return
        if epoch >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            if epoch != self.generation:
                raise GroupError(Errors.ILLEGAL_GENERATION)
        elif not transactional:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)
        if not transactional and self.state == COMPLETING_REBALANCE:
            raise GroupError(Errors.REBALANCE_IN_PROGRESS)

    def validate_commit_partition(self, member_id: str, epoch: int, topic: str, partition: int) -> None:
        """Do nothing: a member may commit the offset of any partition."""

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Do nothing: any client may fetch the offsets of a classic group."""

    def validate_offset_delete(self) -> None:
        """Raise GroupError with NON_EMPTY_GROUP if the group has members that are not consumers."""
        if self.state != EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise GroupError(Errors.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def retention_start(self, offset: CommittedOffset) -> int | None:
        """Returns when the retention time of an offset began (wall-clock ms), or None if it cannot expire now.

        In an empty group, this is when the group became empty. In a stable group of consumers, and in a group that
        never had members, it is when the offset was committed.
        """
        if not self.protocol_type:
            return offset.commit_ms
        if self.state == EMPTY:
            return self.state_since_ms
        stable_consumers = self.state == STABLE and self.subscribed_topics is not None
        return offset.commit_ms if stable_consumers else None

    def on_offset_commit(self, member_id: str, now: float) -> None:
        """Restart the session of a member that commits offsets.

        Does nothing if there is no such member, or if the state is CompletingRebalance.
        """
        if self.state in (STABLE, PREPARING_REBALANCE) and member_id in self.members:
            self.rebalance.renew_session(self.members[member_id], now)

    def on_unloaded(self, now: float) -> None:
        """Respond to all waiting requests with NOT_COORDINATOR, cancel all timers, and set the state to Dead."""
        self.rebalance.stop(Errors.NOT_COORDINATOR, now)
        self.transition(DEAD, now)

    def on_loaded(self, now: float) -> bool:
        """Restore the stored state, and start the sessions of the members. Returns whether the group exists.

        If no state is stored, the group becomes empty. An empty group without a stored state exists only if it has
        offsets, either committed or in an open transaction.
        """
        stored = self._stored
        self.clear_members()
        self.state = EMPTY
        if stored is None:
            self.generation, self.protocol_type, self.protocol_name, self.leader_id = 0, "", None, None
            store = self.coordinator.offsets
            return bool(store.of_group(self.id)) or store.has_open_transactions(self.id)
        self.generation = stored.generation
        for member in stored.members:
            self.add_member(member.copy(member.id, member.protocols))
        if self.members:
            self.state = STABLE
        self.protocol_type, self.protocol_name = stored.protocol_type, stored.protocol_name
        self.leader_id, self.state_since_ms = stored.leader_id, stored.state_since_ms
        self.subscribed_topics = self._compute_subscribed_topics()
        self.rebalance.restart(now)
        return True

    def close(self, now: float) -> None:
        """Cancel all timers, respond to all waiting requests with UNKNOWN_MEMBER_ID, and set the state to Dead."""
        self.rebalance.stop(Errors.UNKNOWN_MEMBER_ID, now)
        self.state = DEAD


def subscribed_topics(metadata: bytes) -> Sequence[str]:
    """Returns the topics in the subscription that a consumer sent in JoinGroup.

    Raises ProtocolError if `metadata`, the encoded subscription, cannot be decoded.
    """
    if len(metadata) < 2:
        raise ProtocolError("the subscription has no version")
    subscription = decode(plan(ConsumerProtocolSubscription, 0, False), metadata, 2, allow_trailing=True)
    topics: Collection[str] = subscription.topics
    return list(topics)
