"""The group coordinator: the registry of all groups, and which broker coordinates a group.

The groups of one partition of the offsets topic form a shard. The leader of the partition coordinates the shard's
groups. When the leader changes, the old leader unloads the shard, and the new leader loads it: requests that wait get
NOT_COORDINATOR, and groups start again with their stored state. What a request does to a group is decided by the group
and the modules of the APIs.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.groups.group import Group, is_old_release
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError, Request
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.timers import Timer
from kconsumer.testing.cluster.topic import NO_LEADER, Partition


class Shard:
    """The groups of one partition of the offsets topic."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.leader_epoch = partition.leader_epoch  # of the leader that loaded the groups
        self.loaded = True  # False: the leader is still loading the groups, or the partition has no leader


class GroupCoordinator:
    """The registry of all groups of the cluster. Removes expired offsets, and then empty groups without offsets."""

    def __init__(self, cluster: ClusterState) -> None:
        self.cluster = cluster
        #: How long a broker loads the groups of a partition after it became the leader (ms).
        self.load_ms = 0.0
        self._shards: dict[int, Shard] = {}  # by partition of the offsets topic
        self._expiry_timer: Timer | None = None

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
            partition.log.add_listener(lambda: self._on_change(shard))
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
        self.cluster.offsets.remove_group(group_id)
        self.cluster.share_states.remove_group(group_id)

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
        self._start_expiry(now)

    def _on_change(self, shard: Shard) -> None:
        """Move the groups of a shard, when the timers run next, if its partition has a new leader."""
        if shard.leader_epoch != shard.partition.leader_epoch:
            self.cluster.timers.soon(lambda now: self._follow_leader(shard, now))

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

    # --- expiry ---

    def _start_expiry(self, now: float) -> None:
        """Start the timer that removes expired offsets and empty groups. Does nothing if the timer runs.

        After each check, the timer starts again if there are groups.
        """
        if self._expiry_timer is None:
            interval = self.cluster.settings.offsets_retention_check_interval_ms
            self._expiry_timer = self.cluster.timers.add(now + interval, self._expire)

    def _expire(self, now: float) -> None:
        """Remove offsets that have expired, and empty groups without offsets."""
        self._expiry_timer = None
        for group in self.loaded_groups():
            self._expire_offsets(group, now)
            store = self.cluster.offsets
            has_offsets = bool(store.of_group(group.id)) or store.has_open_transactions(group.id)
            if group.is_empty and not has_offsets:
                self.delete(group.id, now)
        if self.has_groups():
            self._start_expiry(now)

    def _expire_offsets(self, group: Group, now: float) -> None:
        """Remove the offsets of one group whose retention time has passed."""
        store = self.cluster.offsets
        wall_ms = self.cluster.wall_ms(now)
        expired = [
            (topic, index)
            for topic, offsets in store.of_group(group.id).items()
            if not group.is_subscribed_to(topic)
            for index, offset in offsets.items()
            if self._has_expired(group, offset, wall_ms) and not store.is_pending(group.id, topic, index)
        ]
        for topic, index in expired:
            store.remove(group.id, topic, index)

    def _has_expired(self, group: Group, offset: CommittedOffset, wall_ms: int) -> bool:
        """Returns whether the retention time of an offset has passed.

        This is the retention time that the broker's settings set, or that the client has set for the offset
        (OffsetCommit version 2 to 4).
        """
        start = group.retention_start(offset)
        if start is None:
            return False
        if offset.expire_ms is not None:
            return wall_ms >= offset.expire_ms
        return wall_ms - start >= self.cluster.settings.offsets_retention_minutes * 60_000


class GroupHandlers:
    """Handles requests about groups."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
