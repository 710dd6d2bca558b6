"""What groups of all types have in common: the interface through which the coordinator uses a group.

A method that rejects a request raises `GroupError`; the handler of the API converts it to a response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError

GroupType = Literal["classic", "consumer", "share"]


class Group(ABC):
    """One group. `ClassicGroup` and the groups of KIP-848 are its subclasses."""

    type: ClassVar[GroupType]
    #: The protocol type of an empty group with offsets only is "", otherwise usually "consumer".
    protocol_type: str

    def __init__(self, group_id: str) -> None:
        self.id = group_id

    # --- what ListGroups and the deletion of groups need ---

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of the state in responses, such as "Stable"."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if the group has no members."""

    def validate_delete(self) -> None:
        """Raise GroupError with NON_EMPTY_GROUP if the group has members."""
        if not self.is_empty:
            raise GroupError(Errors.NON_EMPTY_GROUP)

    # --- what the APIs of committed offsets need ---

    @abstractmethod
    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Raise GroupError if the sender must not commit. `epoch`: its generation or member epoch; negative: none."""

    @abstractmethod
    def validate_commit_partition(self, member_id: str, epoch: int, topic: str, partition: int) -> None:
        """Raise GroupError if the sender must not commit the offset of one partition with this epoch."""

    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise GroupError if the sender must not fetch offsets. `member_id` is None if it is not a member."""

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Raise GroupError if offsets of the group must not be deleted now."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a member subscribes to a topic. If this is unknown, returns True."""

    @abstractmethod
    def retention_start(self, offset: CommittedOffset) -> int | None:
        """Returns when the retention time of an offset began (wall-clock ms), or None if it cannot expire now."""

    @abstractmethod
    def on_offset_commit(self, member_id: str, now: float) -> None:
        """Record that a member committed offsets, which extends the session of a classic member."""

    # --- changes of the coordinator ---

    @abstractmethod
    def on_unloaded(self, now: float) -> None:
        """Handle a change of coordinator: cancel all timers, and complete waiting requests with NOT_COORDINATOR."""

    @abstractmethod
    def on_loaded(self, now: float) -> bool:
        """Handle that a broker became coordinator: restore the stored state, and restart the timers.

        Returns False if nothing is stored, so that the group does not exist any more.
        """

    @abstractmethod
    def close(self, now: float) -> None:
        """Cancel all timers, because the group was deleted or replaced."""


def is_old_release(release: str) -> bool:
    """Returns whether a release of Kafka is older than 4.0. Older releases have a different group coordinator."""
    return int(release.partition(".")[0]) < 4
