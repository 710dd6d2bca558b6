"""The interface for the differences between the two group protocols in OffsetCommit and OffsetFetch.

The option `group_protocol` selects the implementation: `classic_protocol/classic_commits.py` or
`consumer_protocol/consumer_commits.py`. The implementation decides how requests identify topics and members, which
action follows from an error code, and how a refused commit changes the membership. `commits.py` and
`offset_fetches.py` decide when requests are sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from kconsumer.coordinator.commit_messages import Ids
from kconsumer.coordinator.error_actions import Table
from kconsumer.coordinator.group_member import Generation, GroupMember
from kconsumer.errors import KafkaError
from kconsumer.types import TopicPartition


class CommitProtocol(ABC):
    """The rules of one group protocol for OffsetCommit and OffsetFetch."""

    commit_actions: Table  # for error codes of a partition in OffsetCommit
    fetch_group_actions: Table  # for error codes of the group in OffsetFetch
    fetch_partition_actions: Table  # for error codes of a partition in OffsetFetch

    @property
    @abstractmethod
    def member(self) -> GroupMember:
        """The member whose offsets are committed."""

    @property
    @abstractmethod
    def fetch_generation(self) -> Generation:
        """The generation (or member epoch) and member id for OffsetFetch. If it is not valid, the request contains
        neither."""

    @property
    @abstractmethod
    def fencing_error(self) -> KafkaError | None:
        """The error to raise because another consumer with the same group_instance_id has fenced this member, or
        None."""

    @abstractmethod
    def on_commit_refused(self, error: KafkaError, *, keep_member_id: bool) -> None:
        """Handle the coordinator's refusal of a commit. The commit was sent with the current generation.

        `error` is the reason. `keep_member_id` is True if the member id is still valid.
        """

    @abstractmethod
    def consumed_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns the topic ids for a commit: those of the topics from which the records were read.

        Empty if the commit must contain topic names.
        """

    @abstractmethod
    def current_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns the topic ids for OffsetFetch: those that metadata contains now.

        Empty if the request must contain topic names.
        """

    @abstractmethod
    def is_recreated(self, ids: Ids) -> bool:
        """Returns True if one of these topics was deleted and created again, so that its id in `ids` is outdated."""

    @abstractmethod
    def on_unknown_topic_id(self) -> None:
        """Handle the error code UNKNOWN_TOPIC_ID in a response of the coordinator."""
