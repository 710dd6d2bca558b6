"""Names of assigned topics: the coordinator assigns topic ids, everything else in a consumer goes by name.

A name once seen is kept while its topic is assigned, so that metadata that forgets the topic for a moment (it is being
deleted, or the answer came from a broker that is behind) takes no partition away.
"""

from __future__ import annotations

from kconsumer.coordinator.consumer_protocol.state import LocalAssignment
from kconsumer.metadata.manager import MetadataManager
from kconsumer.state.cluster import Cluster
from kconsumer.types import TopicPartition


class TopicNames:
    """Resolves assignments; asks for the metadata of ids it does not know."""

    def __init__(self, cluster: Cluster, metadata: MetadataManager) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._names: dict[bytes, str] = {}

    def resolve(self, target: LocalAssignment) -> tuple[LocalAssignment, frozenset[TopicPartition]]:
        """The part of the target whose names are known, and its partitions; the rest is asked for."""
        known = {
            topic_id: self._cluster.topic_name(topic_id) or self._names.get(topic_id) for topic_id in target.partitions
        }
        self._names = {topic_id: name for topic_id, name in known.items() if name}
        self._metadata.add_topic_ids(frozenset(target.partitions))
        partitions = {t: numbers for t, numbers in target.partitions.items() if t in self._names}
        wanted = frozenset(TopicPartition(self._names[t], n) for t, numbers in partitions.items() for n in numbers)
        return LocalAssignment(target.local_epoch, partitions), wanted

    def forget(self) -> None:
        """Nothing is assigned any more."""
        self._names.clear()
        self._metadata.add_topic_ids(frozenset())
