"""Finds the names of assigned topics. The coordinator assigns topic ids, but the rest of the consumer uses names.

A name is kept while its topic is assigned. Metadata may lack an assigned topic for a moment, because the topic is being
deleted or because a broker with outdated metadata sent the response. No partition is revoked because of that.
"""

from __future__ import annotations

from kconsumer.coordinator.consumer_protocol.state import LocalAssignment
from kconsumer.metadata.manager import MetadataManager
from kconsumer.state.cluster import Cluster
from kconsumer.types import TopicPartition


class TopicNames:
    """Maps the topic ids of assignments to names, and requests metadata of unknown ids."""

    def __init__(self, cluster: Cluster, metadata: MetadataManager) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._names: dict[bytes, str] = {}

    @property
    def version(self) -> int:
        """The version of the metadata. Until it changes, `resolve` finds the same names."""
        return self._cluster.update_version

    def in_metadata(self, target: LocalAssignment) -> bool:
        """Returns True if the metadata have the names of all topics of an assignment."""
        return all(self._cluster.topic_name(topic_id) for topic_id in target.partitions)

    def resolve(self, target: LocalAssignment) -> tuple[LocalAssignment, frozenset[TopicPartition]]:
        """Find the topic names of the target assignment. Requests metadata of topics whose name is unknown.

        Returns the assignment without these topics in two forms: by topic id, and as TopicPartitions with names.
        """
        known = {
            topic_id: self._cluster.topic_name(topic_id) or self._names.get(topic_id) for topic_id in target.partitions
        }
        self._names = {topic_id: name for topic_id, name in known.items() if name}
        self._metadata.add_topic_ids(frozenset(target.partitions))
        partitions = {t: numbers for t, numbers in target.partitions.items() if t in self._names}
        wanted = frozenset(TopicPartition(self._names[t], n) for t, numbers in partitions.items() for n in numbers)
        return LocalAssignment(target.local_epoch, partitions), wanted

    def forget(self) -> None:
        """Forget all names, because no topic is assigned any more."""
        self._names.clear()
        self._metadata.add_topic_ids(frozenset())
