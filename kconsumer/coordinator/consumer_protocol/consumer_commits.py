"""Commits under the consumer protocol (KIP-848).

Requests contain topic ids, and a refused commit does not end the membership.

Ids are safer than names. A topic that was deleted and created again has the same name, but offsets of the old topic
mean nothing in the new one. If the id of a topic is unknown, the request contains only names, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kconsumer.coordinator.commit_messages import Ids
from kconsumer.coordinator.commit_protocol import CommitProtocol
from kconsumer.coordinator.consumer_protocol.state import ConsumerMember
from kconsumer.coordinator.error_actions import (
    CONSUMER_COMMIT_ACTIONS,
    CONSUMER_OFFSET_FETCH_ACTIONS,
    CONSUMER_OFFSET_FETCH_GROUP_ACTIONS,
)
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import KafkaError
from kconsumer.metadata.manager import MetadataManager
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import Cluster
from kconsumer.types import TopicPartition


class ConsumerCommitProtocol(CommitProtocol):
    """Commits with a member epoch and topic ids."""

    commit_actions = CONSUMER_COMMIT_ACTIONS
    fetch_group_actions = CONSUMER_OFFSET_FETCH_GROUP_ACTIONS
    fetch_partition_actions = CONSUMER_OFFSET_FETCH_ACTIONS

    def __init__(
        self, member: ConsumerMember, cluster: Cluster, assignment: Assignment, metadata: MetadataManager
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._assignment = assignment
        self._metadata = metadata

    @property
    def member(self) -> ConsumerMember:
        return self._member

    @property
    def fetch_generation(self) -> Generation:
        """The member id and member epoch that OffsetFetch contains. The coordinator checks them."""
        return self._member.generation

    @property
    def fencing_error(self) -> KafkaError | None:
        """Always None, because the membership manager raises the error of a fenced member."""
        return None

    def on_commit_refused(self, error: KafkaError, *, keep_member_id: bool) -> None:
        """Do nothing. The response to the next heartbeat shows whether the member is still in the group."""

    def consumed_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns the ids of the topics that the records were read from, or no ids if one is unknown.

        Such an id may differ from the current one if the topic was deleted and created again.
        """
        return _all_or_none(partitions, self._consumed_id)

    def current_ids(self, partitions: Collection[TopicPartition]) -> Ids:
        """Returns the ids that the topics have in metadata, or no ids if one is unknown."""
        return _all_or_none(partitions, lambda tp: self._cluster.topic_id(tp.topic))

    def is_recreated(self, ids: Ids) -> bool:
        """Returns True if metadata has another id for one of these topics."""
        return any(self._cluster.topic_id(tp.topic) not in (None, topic_id) for tp, topic_id in ids.items())

    def on_unknown_topic_id(self) -> None:
        """Request metadata, because the ids in the cache may be outdated."""
        self._metadata.request_update()

    def _consumed_id(self, tp: TopicPartition) -> bytes | None:
        state = self._assignment.find(tp)
        read_from = None if state is None else state.topic_id
        return read_from or self._cluster.topic_id(tp.topic)


def _all_or_none(partitions: Collection[TopicPartition], find: Callable[[TopicPartition], bytes | None]) -> Ids:
    found = {tp: topic_id for tp in partitions if (topic_id := find(tp)) is not None}
    return found if len(found) == len(partitions) else {}
