"""Group health of a cluster of three: all brokers are queried, and when a coordinator dies, the new one is found."""

from __future__ import annotations

from kconsumer import Consumer, TopicPartition
from kconsumer.groups import GroupClient
from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until

GROUPS = 8


def commit(cluster: KafkaCluster, group: str, partition: TopicPartition, offset: int) -> None:
    """Commit as a consumer that is not a member of the group."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        consumer.commit({partition: offset})


def test_groups_of_three_brokers(kafka_cluster3: KafkaCluster, topic_name: str) -> None:
    """All groups are listed, whatever their coordinators are. When a broker has died, the same client returns the same
    data of the groups that it coordinated, and shows which partitions have no leader.
    """
    cluster = kafka_cluster3
    topic = cluster.create_topic(topic_name, 1, replication=3)
    cluster.produce(topic, [b"one", b"two"], partition=0)
    partition = TopicPartition(topic, 0)
    names = [f"{topic}-{number}" for number in range(GROUPS)]
    for name in names:
        commit(cluster, name, partition, 1)
    with GroupClient(cluster.bootstrap_servers) as client:

        def coordinators() -> dict[str, int]:
            found = {group.group_id: group.coordinator for group in client.describe_all() if group.group_id in names}
            return {name: node.id for name, node in found.items() if node is not None}

        before = coordinators()
        assert set(names) == before.keys()
        assert {cluster.coordinator_of(name) for name in names} == set(before.values())
        assert len(set(before.values())) > 1, "groups of more than one broker"
        victim = before[names[0]]
        lone = next(
            name
            for name in (cluster.create_topic(f"{topic}-lone-{number}", 1) for number in range(20))
            if cluster.leader_of(name) == victim
        )
        alone = TopicPartition(lone, 0)
        commit(cluster, names[0], alone, 0)
        cluster.node(victim).kill()
        try:
            wait_until(lambda: cluster.leader_of(lone) < 0, 30, "the dead broker to be noticed")
            described = client.describe(names[0])
            assert described.coordinator is not None
            assert described.coordinator.id != victim

            def commit_is_visible() -> bool:
                # For a moment, a new coordinator returns only offsets that it knows to be replicated, without the last
                # commit. The next commit makes it return the earlier ones.
                commit(cluster, names[0], partition, 1)
                return alone in client.offsets(described)

            wait_until(commit_is_visible, 30, "the last commit at the new coordinator")
            offsets = client.offsets(described)
            assert (1, 0, 2, 1) == (
                offsets[partition].committed,
                offsets[partition].log_start,
                offsets[partition].end,
                offsets[partition].lag,
            )
            assert (0, None, None) == (offsets[alone].committed, offsets[alone].end, offsets[alone].lag)
            assert set(names) <= {group.group_id for group in client.list()}
            assert victim not in coordinators().values()
        finally:
            cluster.node(victim).start()
