"""The state of a share group (KIP-932): members, epochs, and the target assignment.

Members get partitions without waiting for each other, because several of them may read a partition. Only partitions
whose stored state was initialized are assigned. `share_heartbeat.py` handles heartbeats.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NoReturn

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.groups.server_assignors import AssignorMember, Partitions, assign_simple
from kconsumer.testing.cluster.groups.server_group import ServerGroup
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError
from kconsumer.testing.cluster.share_states import UNINITIALIZED
from kconsumer.testing.cluster.timers import NO_TIMER, Timer

EMPTY, STABLE = "Empty", "Stable"
ASSIGNOR = "simple"


@dataclass(slots=True)
class ShareMember:
    """One member of a share group."""

    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict)
    session: Timer = NO_TIMER

    def copy(self) -> ShareMember:
        """Returns a shallow copy."""
        return dataclasses.replace(self)


class ShareGroup(ServerGroup[ShareMember]):
    """A group whose members send ShareGroupHeartbeat."""

    type = "share"
    protocol_type = "share"

    # --- members ---

    def remove_member(self, member_id: str) -> None:
        """Remove a member, and begin a new group epoch."""
        member = self.members.pop(member_id)
        member.session.cancel()
        self.target.pop(member_id, None)
        self.epoch += 1
        if not self.members:
            self.target_epoch, self.assigned_at = self.epoch, None

    def start_session(self, member_id: str, now: float) -> None:
        """Restart the session timer of a member. When the timer expires, the member is removed."""
        member = self.members[member_id]
        member.session.cancel()
        timeout_ms = self.coordinator.cluster.group_configs.value(self.id, "share.session.timeout.ms")
        timers = self.coordinator.cluster.timers
        member.session = timers.add(now + timeout_ms, lambda _: self.remove_member(member_id))

    # --- epochs and assignments ---

    def update_epoch(self, *, subscription_changed: bool) -> None:
        """Increase the group epoch if a subscription or a subscribed topic has changed, or a partition waits for its
        assignment because its state has been initialized.
        """
        waits = self.epoch == self.target_epoch and self._waits_for_assignment()
        super().update_epoch(subscription_changed=subscription_changed or waits)

    def _waits_for_assignment(self) -> bool:
        """Returns whether the initialized partitions of a subscribed topic are not those of the target assignment."""
        cluster, names = self.coordinator.cluster, self._subscribed_names()
        assigned: Partitions = {}
        for partitions in self.target.values():
            for topic_id, found in partitions.items():
                assigned.setdefault(topic_id, set()).update(found)
        return any(
            topic_id in cluster.topics_by_id
            and cluster.topics_by_id[topic_id].name in names
            and assigned.get(topic_id) != initialized
            for topic_id, initialized in cluster.share_states.topics_of(self.id).items()
        )

    def update_target(self, now: float) -> None:
        """Compute a new target assignment for a new group epoch.

        Does nothing if the target assignment has the group epoch already, or if it was computed less than
        `share.assignment.interval.ms` ago.
        """
        interval_ms = self.coordinator.cluster.group_configs.value(self.id, "share.assignment.interval.ms")
        if not self._must_assign(interval_ms, now):
            return
        topics = self.coordinator.cluster.topics
        initialized = self.coordinator.cluster.share_states.topics_of(self.id)
        rows = [
            AssignorMember(
                member_id,
                None,
                [topics[name].id for name in self.members[member_id].topics if name in topics],
                self.target.get(member_id, {}),
            )
            for member_id in self.members
        ]
        self.target = assign_simple(rows, initialized)
        self.target_epoch, self.assigned_at = self.epoch, now

    def reconcile(self, member: ShareMember) -> None:
        """Give a member the present target assignment.

        A member whose subscription has changed before a target assignment was computed loses what it does not
        subscribe to.
        """
        topics = self.coordinator.cluster.topics
        subscribed = {topics[name].id for name in member.topics if name in topics}
        if member.epoch != self.target_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.target_epoch
            member.assigned = self.target.get(member.id, {})
        member.assigned = {topic_id: found for topic_id, found in member.assigned.items() if topic_id in subscribed}

    def initialize_partitions(self) -> None:
        """Initialize the stored state of the partitions of all subscribed topics, as far as that was not done.

        Partitions that were added to a topic begin at their first record, so that no record is missed.
        """
        cluster = self.coordinator.cluster
        store = cluster.share_states
        known = store.topics_of(self.id)
        for name in sorted(self._subscribed_names() & cluster.topics.keys()):
            topic = cluster.topics[name]
            start = 0 if topic.id in known else UNINITIALIZED
            for index in range(len(topic.partitions)):
                if index not in known.get(topic.id, ()):
                    store.initialize(self.id, topic.id, index, start)

    def _subscribed_names(self) -> set[str]:
        return {name for member in self.members.values() for name in member.topics}

    # --- the interface of groups ---

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Raise GroupError: share groups have no committed offsets."""
        self._refuse()

    def validate_commit_partition(self, member_id: str, epoch: int, topic: str, partition: int) -> None:
        """Raise GroupError: share groups have no committed offsets."""
        self._refuse()

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise GroupError: share groups have no committed offsets."""
        self._refuse()

    def validate_offset_delete(self) -> None:
        """Raise GroupError: share groups have no committed offsets."""
        self._refuse()

    def retention_start(self, offset: CommittedOffset) -> int | None:
        """Returns None, because share groups have no committed offsets."""
        return None

    def on_loaded(self, now: float) -> bool:
        """Start the timers of all members again. All other state is kept. Returns True."""
        self._topics_version = -1
        for member_id in list(self.members):
            self.start_session(member_id, now)
        return True

    def close(self, now: float) -> None:
        for member in self.members.values():
            member.session.cancel()

    def _refuse(self) -> NoReturn:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {self.id} is a share group.")
