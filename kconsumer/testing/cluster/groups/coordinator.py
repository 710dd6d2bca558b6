"""The group coordinator: the registry of all groups, and which broker coordinates a group.

The groups of one partition of the offsets topic form a shard. The leader of the partition coordinates the shard's
groups. When the leader changes, the old leader unloads the shard, and the new leader loads it: requests that wait get
NOT_COORDINATOR, and groups start again with their stored state. What a request does to a group is decided by the group
and the modules of the APIs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.groups.classic_handlers import ClassicHandlers
from kconsumer.testing.cluster.groups.consumer_heartbeat import ConsumerHeartbeatHandler
from kconsumer.testing.cluster.groups.deletion import GroupDeletion
from kconsumer.testing.cluster.groups.describe import GroupDescriptions, ServerGroupDescriptions
from kconsumer.testing.cluster.groups.group import Group, GroupError, is_old_release
from kconsumer.testing.cluster.groups.group_configs import GroupConfigs
from kconsumer.testing.cluster.groups.offset_commits import OffsetCommits, OffsetTransactions
from kconsumer.testing.cluster.groups.offset_fetches import OffsetFetches
from kconsumer.testing.cluster.groups.offset_store import OffsetStore
from kconsumer.testing.cluster.groups.share_heartbeat import ShareHeartbeatHandler
from kconsumer.testing.cluster.groups.share_offsets import ShareOffsets
from kconsumer.testing.cluster.requests import Request
from kconsumer.testing.cluster.topic import NO_LEADER, Partition

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster


class Shard:
    """The groups of one partition of the offsets topic."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.leader_epoch = partition.leader_epoch  # of the leader that loaded the groups
        self.loaded = True  # False: the leader is still loading the groups, or the partition has no leader


class GroupCoordinator:
    """The registry of all groups of the cluster, and the handlers of the APIs of groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.configs = GroupConfigs(cluster.settings)
        self.offsets = OffsetStore()
        #: How long a broker loads the groups of a partition after it became the leader (ms).
        self.load_ms = 0.0
        self.topics_version = 0  # grows with each change of the topics
        self.new_topics_version = 0  # that of the last new topic
        self._shards: dict[int, Shard] = {}  # by partition of the offsets topic
        self._deletion = GroupDeletion(self)
        self.components = (  # they handle the APIs of groups
            ClassicHandlers(self),
            ConsumerHeartbeatHandler(self),
            self._deletion,
            GroupDescriptions(self),
            OffsetCommits(self),
            OffsetFetches(self),
            OffsetTransactions(self),
            ServerGroupDescriptions(self),
            ShareHeartbeatHandler(self),
            ShareOffsets(self),
        )

    # --- the registry ---

    def get(self, group_id: str) -> Group | None:
        """Returns a group, or None if it does not exist."""
        shard = self._shards.get(self._partition(group_id).index)
        return None if shard is None else shard.groups.get(group_id)

    def require(self, group_id: str) -> Group:
        """Returns a group. Raises GroupError with GROUP_ID_NOT_FOUND if it does not exist."""
        group = self.get(group_id)
        if group is None:
            raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def add(self, group: Group) -> None:
        partition = self._partition(group.id)
        shard = self._shards.get(partition.index)
        if shard is None:
            shard = self._shards[partition.index] = Shard(partition)
        shard.groups[group.id] = group

    def replace(self, group: Group, now: float) -> None:
        """Add a group in place of the group with the same id. The committed offsets are kept."""
        self.remove(group.id, now)
        self.add(group)

    def remove(self, group_id: str, now: float) -> None:
        """Remove a group if it exists. Its committed offsets are kept, unlike with `delete`."""
        shard = self._shards.get(self._partition(group_id).index)
        group = None if shard is None else shard.groups.pop(group_id, None)
        if group is not None:
            group.close(now)

    def delete(self, group_id: str, now: float) -> None:
        """Delete a group, its committed offsets, and its state as a share group."""
        self.remove(group_id, now)
        self.offsets.remove_group(group_id)
        self.cluster.shares.store.remove_group(group_id)

    def groups_of(self, broker_id: int) -> list[Group]:
        """Returns the groups that a broker coordinates, in the order of the partitions of the offsets topic."""
        shards = [shard for _, shard in sorted(self._shards.items()) if shard.partition.leader == broker_id]
        return [group for shard in shards for group in shard.groups.values()]

    def loaded_groups(self) -> list[Group]:
        """Returns all groups that a broker has loaded, in the order of the partitions of the offsets topic."""
        return [group for _, shard in sorted(self._shards.items()) if shard.loaded for group in shard.groups.values()]

    def has_groups(self) -> bool:
        return any(shard.groups for shard in self._shards.values())

    def is_loading(self, broker_id: int, now: float) -> bool:
        for _, shard in sorted(self._shards.items()):
            self._follow_leader(shard, now)
        return any(shard.partition.leader == broker_id and not shard.loaded for shard in self._shards.values())

    # --- the coordinator of a group ---

    def error_for(self, group_id: str, request: Request, now: float) -> int:
        """Returns NONE if the broker that received a request coordinates the group and has loaded it.

        Otherwise returns NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        partition = self._partition(group_id)
        if partition.leader != request.broker.id:
            return Errors.NOT_COORDINATOR
        shard = self._shards.get(partition.index)
        if shard is None:
            return Errors.NONE
        self._follow_leader(shard, now)
        return Errors.NONE if shard.loaded else Errors.COORDINATOR_LOAD_IN_PROGRESS

    def is_old(self, group_id: str) -> bool:
        """Returns whether a broker older than Kafka 4.0 coordinates a group. Old coordinators differ in details."""
        leader = self._partition(group_id).leader
        broker = self.cluster.brokers.get(leader)
        return broker is not None and is_old_release(broker.release)

    def validate(self, group_id: str, request: Request, now: float, *, allow_empty_id: bool = False) -> None:
        """Raise GroupError if the group id is not valid, or if the broker cannot handle requests for the group.

        The broker must coordinate the group and have loaded it. Also starts the timer that removes expired offsets.
        """
        if not group_id and not allow_empty_id:
            raise GroupError(Errors.INVALID_GROUP_ID)
        error = self.error_for(group_id, request, now)
        if error:
            raise GroupError(error)
        self._deletion.start_timer(now)

    def on_leader_change(self, partition: Partition) -> None:
        """Handle a new leader of a partition of the offsets topic: move the groups when the timers run next."""
        shard = self._shards.get(partition.index)
        if shard is not None:
            self.cluster.timers.add(0.0, lambda now: self._follow_leader(shard, now))

    def on_topic_created(self) -> None:
        """Record that a topic was created. Groups detect the change at the next heartbeat of a member."""
        self.topics_version += 1
        self.new_topics_version = self.topics_version

    def on_partitions_added(self) -> None:
        """Record that a topic has got partitions. Groups detect the change at the next heartbeat of a member."""
        self.topics_version += 1

    def on_topic_deleted(self, topic: str) -> None:
        """Handle the deletion of a topic: remove its committed offsets."""
        self.topics_version += 1
        self.offsets.remove_topic(topic)

    def _follow_leader(self, shard: Shard, now: float) -> None:
        """Unload the groups of a shard if its partition has a new leader, and begin to load them at the new leader."""
        epoch = shard.partition.leader_epoch
        if shard.leader_epoch == epoch:
            return
        shard.leader_epoch = epoch
        if shard.loaded:
            shard.loaded = False
            for group in list(shard.groups.values()):
                group.on_unloaded(now)
        if shard.partition.leader == NO_LEADER:
            return
        if self.load_ms:
            self.cluster.timers.add(now + self.load_ms, lambda at: self._load(shard, epoch, at))
        else:
            self._load(shard, epoch, now)

    def _load(self, shard: Shard, epoch: int, now: float) -> None:
        """Complete loading the groups of a shard, unless the leader has changed since loading began."""
        if shard.leader_epoch == epoch:
            shard.groups = {group.id: group for group in shard.groups.values() if group.on_loaded(now)}
            shard.loaded = True

    def _partition(self, group_id: str) -> Partition:
        return self.cluster.coordinator_partition(group_id, "group")
