"""Decides which replicas lead and which are in sync, as brokers stop and start and replicas fall behind.

Follows the rules of Kafka's controller. A stopped broker leaves the in-sync replicas at once, as after a controlled
shutdown. A partition without a leader gets one again when its last in-sync replica returns. Since Kafka 4.1, an
eligible leader replica (KIP-966) that returns can also become the leader. Any other replica becomes the leader only by
an unclean election.
"""

from __future__ import annotations

from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.timers import NO_TIMER, Timer
from kconsumer.testing.cluster.topic import NO_LEADER, Partition


class Replication:
    """Changes leaders and in-sync replicas of all partitions."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._lag_timers: dict[tuple[Partition, int], Timer] = {}
        self._balance_timer: Timer = NO_TIMER
        cluster.on_partition_created.append(self._elect_first)

    @property
    def _has_elr(self) -> bool:
        """True if the release of the controller supports eligible leader replicas (KIP-966)."""
        broker = self._cluster.brokers[max(self._cluster.controller_id, 1)]
        return is_at_least(broker.release, "4.1")

    def visible_isr(self, partition: Partition) -> list[int]:
        """Returns the in-sync replicas that a Metadata response contains.

        If the controller supports eligible leader replicas, a partition without a leader has none.
        """
        return [] if partition.leader == NO_LEADER and self._has_elr else partition.isr

    def _elect_first(self, partition: Partition) -> None:
        """Elect the first leader of a new partition. Replicas on stopped brokers are not in sync."""
        running = [node for node in partition.replicas if self._cluster.brokers[node].alive]
        if running != partition.replicas:
            partition.stopped = {node: 0 for node in partition.replicas if node not in running}
            partition.isr = running or partition.replicas[:1]
            partition.leader = next(iter(running), NO_LEADER)

    def broker_stopped(self, broker_id: int) -> None:
        """Remove a stopped broker from the in-sync replicas of its partitions.

        Elects another leader for each partition that the broker led.
        """
        for partition in self._cluster.partitions():
            if broker_id not in partition.replicas:
                continue
            partition.stop_replica(broker_id)
            partition.remove_from_isr(broker_id)
            if partition.leader == broker_id:
                self.elect(partition)

    def broker_started(self, broker_id: int) -> None:
        """Update the partitions of a broker that was started.

        Partitions without a leader elect one. In partitions with a leader, the replicas on running brokers catch up.
        """
        for partition in self._cluster.partitions():
            if broker_id not in partition.replicas:
                continue
            if partition.leader == NO_LEADER:
                self.elect(partition)
            if partition.leader != NO_LEADER:
                self._resume_replicas(partition)
            self._balance_later(partition)

    def elect(self, partition: Partition) -> None:
        """Elect a leader of a partition. Only replicas on running brokers can be elected.

        The first in-sync replica becomes the leader. If there is none, an eligible leader replica does. If there is
        none either, and the topic allows unclean elections, any other replica does. If no replica can be elected, the
        partition has no leader.
        """
        running = [node for node in partition.replicas if self._cluster.brokers[node].alive]
        clean = [node for node in running if node in partition.isr]
        if self._has_elr:
            clean += [node for node in running if node in partition.elr]
        unclean = running if partition.topic.configs["unclean.leader.election.enable"] == "true" else []
        leader = next(iter(clean or unclean), NO_LEADER)
        if leader != NO_LEADER or partition.leader != NO_LEADER:
            self._set_leader(partition, leader)

    def move_leader(self, partition: Partition, broker_id: int) -> None:
        """Make a broker the leader of a partition. This is an unclean election if the broker's replica is not in sync.

        Raises ValueError if the broker has no replica of the partition, or is stopped.
        """
        name = f"{partition.topic.name}-{partition.index}"
        if broker_id not in partition.replicas:
            raise ValueError(f"broker {broker_id} has no replica of {name}; the replicas are on {partition.replicas}")
        if not self._cluster.brokers[broker_id].alive:
            raise ValueError(f"broker {broker_id} is stopped and cannot lead {name}")
        self._set_leader(partition, broker_id)

    def stop_replica(self, partition: Partition, broker_id: int, now: float) -> None:
        """Let a follower stop replicating. It leaves the in-sync replicas after `replica.lag.time.max.ms`.

        Raises ValueError if the broker is the leader, or has no replica of the partition.
        """
        if broker_id not in partition.replicas or broker_id == partition.leader:
            raise ValueError(f"broker {broker_id} is no follower of {partition.topic.name}-{partition.index}")
        partition.stop_replica(broker_id)
        deadline = now + self._cluster.settings.replica_lag_time_max_ms
        self._lag_timers[partition, broker_id] = self._cluster.timers.add(
            deadline, lambda _: partition.remove_from_isr(broker_id)
        )

    def resume_replica(self, partition: Partition, broker_id: int) -> None:
        """Let a follower catch up with the leader and be in sync again.

        Does nothing if the broker is stopped, or if the partition has no leader.
        """
        if partition.leader != NO_LEADER and self._cluster.brokers[broker_id].alive:
            self._lag_timers.pop((partition, broker_id), NO_TIMER).cancel()
            partition.resume_replica(broker_id)

    def _set_leader(self, partition: Partition, leader: int) -> None:
        partition.elect(leader)
        self._balance_later(partition)

    def _balance_later(self, partition: Partition) -> None:
        """Set the timer of `_balance_leaders` if a partition's preferred leader runs but does not lead.

        The timer runs after `leader.imbalance.check.interval.seconds`. It is set only if `auto.leader.rebalance.enable`
        is true.
        """
        settings = self._cluster.settings
        preferred = partition.replicas[0]
        if partition.leader == preferred or not self._cluster.brokers[preferred].alive:
            return
        if settings.auto_leader_rebalance_enable and not self._balance_timer.active:
            delay_ms = 1000 * settings.leader_imbalance_check_interval_seconds
            self._balance_timer = self._cluster.timers.soon(lambda now: self._schedule_balance(now + delay_ms))

    def _schedule_balance(self, deadline: float) -> None:
        self._balance_timer = self._cluster.timers.add(deadline, self._balance_leaders)

    def _balance_leaders(self, _: float) -> None:
        """Make the preferred replica of each partition its leader, if that replica is running and in sync."""
        for partition in self._cluster.partitions():
            preferred = partition.replicas[0]
            if partition.leader != preferred and self._cluster.brokers[preferred].alive and preferred in partition.isr:
                self._set_leader(partition, preferred)
            self._balance_later(partition)

    def _resume_replicas(self, partition: Partition) -> None:
        """Let all replicas on running brokers catch up."""
        for node in list(partition.stopped):
            self.resume_replica(partition, node)
