"""What commits and fetches of committed offsets depend on the group protocol for.

The engine chooses one implementation with `group_protocol`: `classic_protocol/classic_commits.py` or
`consumer_protocol/consumer_commits.py`. Decides how requests name topics and members, which action follows from an
error code, and what a refused commit means for the membership. When requests are sent is decided in `commits.py` and
`offset_fetches.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

from kconsumer.coordinator.classic_protocol.state import Generation
from kconsumer.coordinator.commit_messages import Ids
from kconsumer.coordinator.error_actions import Table
from kconsumer.errors import KafkaError
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.coordinator.classic_protocol.state import Member
    from kconsumer.coordinator.consumer_protocol.state import ConsumerMember


class CommitProtocol(ABC):
    """The group protocol as OffsetCommit and OffsetFetch see it."""

    commit_actions: Table  # for error codes of a partition in OffsetCommit
    fetch_group_actions: Table  # for error codes of the group in OffsetFetch
    fetch_partition_actions: Table  # for error codes of a partition in OffsetFetch

    @property
    @abstractmethod
    def member(self) -> Member | ConsumerMember:
        """The member whose offsets are committed."""

    @property
    @abstractmethod
    def fetch_generation(self) -> Generation:
        """The member that OffsetFetch names; an invalid generation names none."""

    @property
    @abstractmethod
    def fencing_error(self) -> KafkaError | None:
        """The error of the request that found this member fenced by another one with its group_instance_id."""

    @abstractmethod
    def on_commit_refused(self, error: KafkaError, *, keep_member_id: bool) -> None:
        """Handle that the coordinator refused a commit of the present generation."""

    @abstractmethod
    def consumed_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns the topic ids that a commit names: those of the topics that the positions come from."""

    @abstractmethod
    def current_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns the topic ids that OffsetFetch names: those of the topics as they are now."""

    @abstractmethod
    def is_recreated(self, ids: Ids) -> bool:
        """Returns True if a topic of these ids was deleted and created again since."""

    @abstractmethod
    def on_unknown_topic_id(self) -> None:
        """Handle that the coordinator does not know a topic id."""
