"""Leaders, in-sync replicas and the high watermark of the cluster model, as brokers and replicas stop and return."""

from __future__ import annotations

import pytest

from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import NO_LEADER, Partition
from support.fakes.cluster_client import advance


def partition_of(cluster: Cluster, replicas: int = 3, **configs: str) -> Partition:
    """Returns a partition whose preferred leader is broker 1. Settings have underscores in place of dots."""
    configs = {name.replace("_", "."): value for name, value in configs.items()}
    return cluster.create_topic("t", 1, replicas, configs).partitions[0]


def state(partition: Partition) -> tuple[int, int, list[int]]:
    """Returns leader, leader epoch and in-sync replicas."""
    return partition.leader, partition.leader_epoch, partition.isr


def test_a_stopped_replica_holds_the_high_watermark(cluster: Cluster) -> None:
    """Records become readable when the replica that lags has left the in-sync replicas, or has caught up."""
    clock = VirtualClock()
    partition = partition_of(cluster)
    cluster.replication.stop_replica(partition, 2, clock.now())
    partition.append(build_batch([b"a"]), 5)
    advance(cluster, clock, 29_999)
    assert (0, [1, 2, 3]) == (partition.log.high_watermark, partition.isr)
    advance(cluster, clock, 1)
    assert (1, [1, 3]) == (partition.log.high_watermark, partition.isr)
    cluster.replication.resume_replica(partition, 2)
    assert [1, 2, 3] == partition.isr
    cluster.replication.stop_replica(partition, 3, clock.now())
    partition.append(build_batch([b"b"]), 5)
    assert 1 == partition.log.high_watermark
    cluster.replication.resume_replica(partition, 3)
    assert 2 == partition.log.high_watermark
    advance(cluster, clock, 60_000)
    assert [1, 2, 3] == partition.isr


def test_only_followers_can_stop_replicating(cluster: Cluster) -> None:
    """The leader, and a broker without a replica, do not replicate."""
    partition = partition_of(cluster, 2)
    for broker in (1, 3):
        with pytest.raises(ValueError, match="no follower"):
            cluster.replication.stop_replica(partition, broker, 0)


def test_min_insync_replicas(cluster: Cluster) -> None:
    """The high watermark stays while fewer replicas than `min.insync.replicas` are in sync."""
    partition = partition_of(cluster, min_insync_replicas="2")
    cluster.kill(2)
    cluster.kill(3)
    partition.append(build_batch([b"a"]), 5)
    assert (0, [1]) == (partition.log.high_watermark, partition.isr)
    cluster.start(3)
    assert (1, [1, 3]) == (partition.log.high_watermark, partition.isr)


def test_a_partition_without_in_sync_replicas(cluster: Cluster) -> None:
    """Only the last in-sync replica brings the partition back; nothing is lost."""
    partition = partition_of(cluster, 2)
    cluster.kill(2)
    partition.append(build_batch([b"a"]), 5)
    cluster.kill(1)
    assert NO_LEADER == partition.leader
    cluster.start(2)
    assert NO_LEADER == partition.leader
    cluster.start(1)
    assert (1, [1, 2], 1) == (partition.leader, partition.isr, partition.log.high_watermark)


def test_unclean_election(cluster: Cluster) -> None:
    """With unclean elections a replica that is out of sync becomes the leader. Records that it lacks are lost."""
    partition = partition_of(cluster, 2, unclean_leader_election_enable="true")
    partition.append(build_batch([b"a"]), 5)
    cluster.kill(2)
    partition.append(build_batch([b"b", b"c"]), 5)
    cluster.kill(1)
    cluster.start(2)
    assert (2, [2]) == (partition.leader, partition.isr)
    assert (1, 1) == (partition.log.end, partition.log.high_watermark)
    partition.append(build_batch([b"d"]), 5)
    cluster.start(1)
    assert (2, [1, 2]) == (partition.leader, partition.isr)
    assert (2, (0, 1)) == (partition.log.high_watermark, partition.log.end_offset_for(0))


def test_records_that_were_not_replicated_are_lost_with_their_leader(cluster: Cluster) -> None:
    """A clean election truncates only records above the high watermark."""
    partition = partition_of(cluster)
    partition.append(build_batch([b"a"]), 5)
    for broker in (2, 3):
        cluster.replication.stop_replica(partition, broker, 0)
    partition.append(build_batch([b"b"]), 5)
    assert (1, 2) == (partition.log.high_watermark, partition.log.end)
    cluster.kill(1)
    assert (2, 1, 1) == (partition.leader, partition.log.end, partition.log.high_watermark)


@pytest.mark.parametrize(("release", "leader"), [("4.0", NO_LEADER), ("4.1", 2)])
def test_eligible_leader_replicas(release: str, leader: int) -> None:
    """Since Kafka 4.1 a replica that left too few in-sync replicas may lead: it has all replicated records."""
    cluster = Cluster(3, release=release)
    partition = partition_of(cluster, 2, min_insync_replicas="2")
    partition.append(build_batch([b"a"]), 5)
    cluster.kill(2)
    partition.append(build_batch([b"b"]), 5)
    assert 1 == partition.log.high_watermark
    cluster.kill(1)
    cluster.start(2)
    assert leader == partition.leader
    cluster.start(1)
    assert (leader if leader == 2 else 1, [1, 2], []) == (partition.leader, partition.isr, partition.elr)
    assert (1 if leader == 2 else 2) == partition.log.high_watermark


def test_stopping_again_begins_a_new_lag(cluster: Cluster) -> None:
    """The time after which a replica is out of sync begins when it stops, not when it stopped before."""
    clock = VirtualClock()
    partition = partition_of(cluster)
    cluster.replication.stop_replica(partition, 2, clock.now())
    cluster.replication.resume_replica(partition, 2)
    advance(cluster, clock, 20_000)
    cluster.replication.stop_replica(partition, 2, clock.now())
    advance(cluster, clock, 20_000)
    assert [1, 2, 3] == partition.isr
    advance(cluster, clock, 10_000)
    assert [1, 3] == partition.isr


def test_preferred_leaders_return(cluster: Cluster) -> None:
    """Five minutes after a leader moved, the preferred replica is elected, as soon as it is in sync."""
    clock = VirtualClock()
    partition = partition_of(cluster)
    cluster.kill(1)
    assert cluster.next_deadline() is None
    cluster.start(1)
    advance(cluster, clock, 299_999)
    assert (2, 1) == state(partition)[:2]
    advance(cluster, clock, 1)
    assert (1, 2) == state(partition)[:2]
    assert cluster.next_deadline() is None


def test_topics_are_created_on_running_brokers(cluster: Cluster) -> None:
    """A replica on a stopped broker is not in sync in a new topic."""
    cluster.kill(1)
    assert (2, 0, [2, 3]) == state(partition_of(cluster))


def test_a_leader_must_run(cluster: Cluster) -> None:
    """A stopped broker cannot become the leader."""
    partition_of(cluster)
    cluster.kill(2)
    with pytest.raises(ValueError, match="is stopped"):
        cluster.move_leader("t", 0, 2)
