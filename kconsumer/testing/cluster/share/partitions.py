"""The share partitions of all groups, each with the broker that leads the partition.

A share partition begins with the first ShareFetch that its leader receives, from the stored state.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.fetch_reads import PartitionError
from kconsumer.testing.cluster.group_configs import RESET_BY_DURATION, duration_ms
from kconsumer.testing.cluster.share.dead_letters import DeadLetterTopics
from kconsumer.testing.cluster.share.partition import SharePartition
from kconsumer.testing.cluster.share_states import UNINITIALIZED
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.topic import Partition


class SharePartitions:
    """All share partitions, and their stored state."""

    def __init__(self, cluster: ClusterState) -> None:
        self._dead_letters = DeadLetterTopics(cluster)
        self._cluster = cluster
        self._known: dict[tuple[str, bytes, int], SharePartition] = {}

    def find(self, broker: Broker, group_id: str, topic_id: bytes, index: int) -> Partition:
        """Returns a partition. Raises PartitionError if it does not exist, or if the broker does not lead it."""
        topic = self._cluster.topics_by_id.get(topic_id)
        if topic is None:
            raise PartitionError(Errors.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(topic.partitions):
            raise PartitionError(Errors.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.partitions[index]
        if partition.leader != broker.id:
            raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)
        return partition

    def get(self, broker: Broker, group_id: str, topic_id: bytes, index: int) -> SharePartition | None:
        """Returns a share partition that a broker has begun, or None."""
        key = (group_id, topic_id, index)
        share = self._known.get(key)
        if share is None:
            return None
        partition = share.partition
        if partition.leader_epoch != share.leader_epoch or share.stored is not self._cluster.share_states.get(*key):
            self.drop(*key)
            return None
        return share if partition.leader == broker.id else None

    def current(self, group_id: str, topic_id: bytes, index: int) -> SharePartition | None:
        """Returns a share partition as the leader that has begun it last knows it, or None."""
        return self._known.get((group_id, topic_id, index))

    def require(self, broker: Broker, group_id: str, topic_id: bytes, index: int, now: float) -> SharePartition:
        """Returns a share partition, which begins now if its broker has not begun it.

        Raises PartitionError if the broker does not lead the partition, or if the coordinator of the group has not
        initialized its state.
        """
        partition = self.find(broker, group_id, topic_id, index)
        share = self.get(broker, group_id, topic_id, index)
        if share is None:
            stored = self._cluster.share_states.get(group_id, topic_id, index)
            if stored is None:
                raise PartitionError(Errors.UNKNOWN_SERVER_ERROR)
            start = stored.start_offset
            if start == UNINITIALIZED:
                start = self._reset(group_id, partition, broker, now)
            cluster = self._cluster
            configs, timers = cluster.group_configs, cluster.timers
            share = SharePartition(group_id, partition, stored, start, configs, timers, self._dead_letters)
            self._known[group_id, topic_id, index] = share
        return share

    def drop(self, group_id: str, topic_id: bytes, index: int) -> None:
        """Forget a share partition. Its locks end. Waiting fetches check it again."""
        share = self._known.pop((group_id, topic_id, index), None)
        if share is not None:
            share.close()
            share.notify()

    def _reset(self, group_id: str, partition: Partition, broker: Broker, now: float) -> int:
        """Returns where a group begins that has no stored offset, as `share.auto.offset.reset` says.

        Raises PartitionError if there is no record in the duration that it names.
        """
        reset = self._cluster.group_configs.text(group_id, "share.auto.offset.reset")
        if reset == "latest":
            return partition.log.high_watermark
        if reset == "earliest":
            return partition.log.start
        since = self._cluster.wall_ms(now, broker) - int(duration_ms(reset.removeprefix(RESET_BY_DURATION)) or 0)
        found = partition.log.offset_for_timestamp(since)
        if found is None:
            raise PartitionError(Errors.OFFSET_NOT_AVAILABLE)
        return found[1]
