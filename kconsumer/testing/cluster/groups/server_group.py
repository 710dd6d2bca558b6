"""What groups have in common whose coordinator assigns partitions: those of KIP-848 and share groups.

Members are known by their heartbeats. A changed subscription or topic begins a new group epoch, for which a new target
assignment is computed.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
from kconsumer.testing.cluster.groups.group import Group
from kconsumer.testing.cluster.groups.server_assignors import Partitions
from kconsumer.testing.cluster.requests import GroupError

M = TypeVar("M")
FIRST_EPOCH = 1  # of a group that has just been created


class ServerGroup(Group, Generic[M]):
    """The members, the epochs and the target assignment of a group."""

    def __init__(self, coordinator: GroupCoordinator, group_id: str) -> None:
        super().__init__(group_id)
        self.coordinator = coordinator
        self.members: dict[str, M] = {}  # in the order in which they joined
        self.epoch = self.target_epoch = FIRST_EPOCH
        self.target: dict[str, Partitions] = {}  # the target assignment by member id
        self.assigned_at: float | None = None  # when the target was computed (ms); None: never, or the group was empty
        # Name, id and number of partitions of each subscribed topic: what the group epoch depends on.
        self._signature: tuple[tuple[str, bytes, int], ...] = ()
        self._topics_version = -1  # that of the topics to which the signature was compared last

    def member(self, member_id: str) -> M:
        """Returns the member with an id. Raises GroupError with UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}.")
        return member

    @abstractmethod
    def _subscribed_names(self) -> set[str]:
        """Returns the topics to which members subscribe."""

    def store_topics(self) -> None:
        """Store ids and partition counts of the subscribed topics, with which `update_epoch` detects later changes."""
        topics = self.coordinator.cluster.topics
        found = [topics[name] for name in sorted(self._subscribed_names()) if name in topics]
        self._signature = tuple((topic.name, topic.id, len(topic.partitions)) for topic in found)

    def update_epoch(self, *, subscription_changed: bool) -> None:
        """Increase the group epoch if a subscription or a subscribed topic has changed since the last check.

        `subscription_changed`: whether a subscription has changed. Changes of topics are detected here.
        """
        version = self.coordinator.cluster.topics_version
        if not subscription_changed and version == self._topics_version:
            return
        self._topics_version, before = version, self._signature
        self.store_topics()
        if subscription_changed or self._signature != before:
            self.epoch += 1

    def _must_assign(self, interval_ms: int, now: float) -> bool:
        """Returns whether a target assignment must be computed now: for a new epoch, and not within the interval."""
        too_soon = self.assigned_at is not None and now < self.assigned_at + interval_ms
        return self.target_epoch < self.epoch and not too_soon

    # --- the interface of groups ---

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._subscribed_names()

    def on_offset_commit(self, member_id: str, now: float) -> None:
        """Do nothing: only heartbeats extend the session of a member."""

    def on_unloaded(self, now: float) -> None:
        self.close(now)
