"""A classic group: which operations its state allows, and how it moves to another coordinator.

The members are in `classic_members.py`, and the state in `classic_generation.py`. How members join is in
`classic_join.py`, how a rebalance proceeds in `classic_rebalance.py`, and the other requests are in
`classic_requests.py`.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.embedded import PROTOCOL_TYPE
from kconsumer.testing.cluster.groups.classic_generation import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGeneration,
)
from kconsumer.testing.cluster.groups.classic_rebalance import ClassicRebalance
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
from kconsumer.testing.cluster.groups.group import Group
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError


class ClassicGroup(ClassicGeneration, Group):
    """A group that uses JoinGroup and SyncGroup, or a group without members that only has committed offsets."""

    type = "classic"

    def __init__(self, coordinator: GroupCoordinator, group_id: str, now: float) -> None:
        Group.__init__(self, group_id)
        ClassicGeneration.__init__(self, coordinator.cluster.wall_ms, now)
        self.coordinator = coordinator
        self.rebalance = ClassicRebalance(self, coordinator.cluster)

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
            store = self.coordinator.cluster.offsets
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
