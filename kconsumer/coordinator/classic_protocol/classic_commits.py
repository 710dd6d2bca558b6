"""Commits under the classic protocol: requests contain topic names, and a refused commit may end the membership.

Implements `CommitProtocol`. `commits.py` and `offset_fetches.py` decide when requests are sent.
"""

from __future__ import annotations

from collections.abc import Collection

from kconsumer.coordinator.classic_protocol.state import Member
from kconsumer.coordinator.commit_messages import Ids
from kconsumer.coordinator.commit_protocol import CommitProtocol
from kconsumer.coordinator.error_actions import COMMIT_ACTIONS, OFFSET_FETCH_ACTIONS, OFFSET_FETCH_GROUP_ACTIONS
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import KafkaError
from kconsumer.types import TopicPartition


class ClassicCommitProtocol(CommitProtocol):
    """Commits with a generation and topic names."""

    commit_actions = COMMIT_ACTIONS
    fetch_group_actions = OFFSET_FETCH_GROUP_ACTIONS
    fetch_partition_actions = OFFSET_FETCH_ACTIONS

    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def member(self) -> Member:
        return self._member

    @property
    def fetch_generation(self) -> Generation:
        """An invalid generation, so that OffsetFetch contains no member id. The coordinator would not check a member
        id."""
        return Generation()

    @property
    def fencing_error(self) -> KafkaError | None:
        """The error of the heartbeat whose response showed that this member is fenced, or None."""
        return self._member.fenced

    def on_commit_refused(self, error: KafkaError, *, keep_member_id: bool) -> None:
        """Reset the generation, so that the next poll joins again. If `keep_member_id` is True, keeps the member id."""
        self._member.reset(str(error), keep_member_id=keep_member_id)

    def consumed_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns no ids, because requests contain topic names."""
        return {}

    def current_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns no ids, because requests contain topic names."""
        return {}

    def is_recreated(self, ids: Ids) -> bool:
        """Returns False, because requests contain names, and a topic that was created again has the same name."""
        return False

    def on_unknown_topic_id(self) -> None:
        """Do nothing: no request contains topic ids."""
