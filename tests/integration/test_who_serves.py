"""The broker that a consumer fetches from: the replica in its rack (KIP-392), and new leaders (KIP-951).

The consumer's requests are taken from the brokers' own request logs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ElectedPartition
from confluent_kafka.admin import NewTopic

from kconsumer import Consumer, TopicPartition
from support.brokers.kafka import JVM_LIGHT, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.request_log import REQUEST_LOG, Served, counts, served

pytestmark = pytest.mark.classic_protocol  # the consumer has no group

LEADER, NEAR, OTHER = 1, 2, 3
NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH = 6, 74
RACKS = {
    "broker.rack": "rack-{node}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers, each in its own rack, that log their requests."""
    with KafkaCluster(nodes=3, properties=RACKS, jvm=(*JVM_LIGHT, REQUEST_LOG)) as running:
        yield running


@pytest.fixture
def partition(cluster: KafkaCluster, topic_name: str) -> TopicPartition:
    """A partition with a replica in each rack, led by LEADER."""
    topic = NewTopic(topic_name, 1, replica_assignment=[[LEADER, NEAR, OTHER]])
    cluster.create(topic)
    return TopicPartition(topic_name, 0)


def consumer_of(cluster: KafkaCluster, tp: TopicPartition, **options: Any) -> Consumer:
    """Make a consumer without a group that reads the partition from its start; its client id is the topic's name."""
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        client_id=tp.topic,
        fetch_max_wait_ms=100,
        **options,
    )
    consumer.assign([tp])
    return consumer


class Reader:
    """Writes records and reads them; each must be returned once, in order."""

    def __init__(self, cluster: KafkaCluster, consumer: Consumer, tp: TopicPartition) -> None:
        self.cluster, self.consumer, self.tp = cluster, consumer, tp
        self.end = 0

    def pass_on(self, count: int) -> None:
        """Write `count` records and read them."""
        self.write(count)
        self.read(count)

    def write(self, count: int) -> None:
        """Write `count` records, and wait until all in-sync replicas have them."""
        values = [b"%d" % offset for offset in range(self.end, self.end + count)]
        self.cluster.produce(self.tp.topic, values, partition=0, config={"acks": "all", "enable.idempotence": True})
        self.end += count

    def read(self, count: int) -> None:
        """Read the last `count` records."""
        expected = [(offset, b"%d" % offset) for offset in range(self.end - count, self.end)]
        found: list[tuple[int, bytes | None]] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            found += [(record.offset, record.value) for record in self.consumer.poll(0.5)]
            assert time.monotonic() < deadline, (expected[0], len(found))
        assert expected == found


def requests(cluster: KafkaCluster, tp: TopicPartition, api: str) -> dict[int, int]:
    """Returns the number of requests of this kind that the topic's consumer sent to each broker."""
    return {node: count for node, count in counts(cluster, tp.topic, api).items() if count}


def fetches(cluster: KafkaCluster, node: int, tp: TopicPartition) -> list[Served]:
    """Returns the fetches of the topic's consumer to which a broker responded."""
    return [entry for entry in served(cluster.node(node), tp.topic) if entry.api == "FETCH"]


def refusals(cluster: KafkaCluster, node: int, tp: TopicPartition) -> list[dict[str, Any]]:
    """Returns the partitions with an error in a broker's Fetch responses."""
    return [row for entry in fetches(cluster, node, tp) for row in entry.partitions if row["errorCode"]]


def wait_for_records_of(cluster: KafkaCluster, node: int, tp: TopicPartition) -> None:
    """Wait until the broker's log shows records for the topic's consumer; the broker logs them shortly after it sent
    them.
    """
    wait_until(lambda: any(e.record_bytes for e in fetches(cluster, node, tp)), 10, f"records from broker {node}")


def node_metric(consumer: Consumer, name: str, node: int) -> float:
    """Returns a metric of the consumer's connection to a broker."""
    wanted = {"node-id": f"node-{node}"}
    return next(
        value
        for metric, value in consumer.metrics().items()
        if metric.name == name and wanted.items() <= dict(metric.tags).items()
    )


def rest(consumer: Consumer, tp: TopicPartition, node: int) -> None:
    """Pause the partition and wait until no fetch of the consumer is in flight."""
    consumer.pause(tp)
    consumer.poll(0.2)  # receives the response to a fetch that was sent before the pause

    def responded() -> bool:
        consumer.poll(0)
        return node_metric(consumer, "request-total", node) == node_metric(consumer, "response-total", node)

    wait_until(responded, 30, f"broker {node} to respond")


def in_sync(cluster: KafkaCluster, tp: TopicPartition) -> set[int]:
    """The partition's in-sync replicas."""
    return set(cluster.metadata(tp.topic).topics[tp.topic].partitions[0].isrs)


def test_nearest_replica(cluster: KafkaCluster, partition: TopicPartition, engine: dict[str, Any]) -> None:
    """The follower in the consumer's rack serves all records. The leader serves none, but gets a fetch whenever the
    lease of the follower has expired.
    """
    with consumer_of(cluster, partition, client_rack=f"rack-{NEAR}", metadata_max_age_ms=1_000, **engine) as consumer:
        reader = Reader(cluster, consumer, partition)
        deadline = time.monotonic() + 60
        while len(fetches(cluster, LEADER, partition)) < 3:
            reader.pass_on(500)
            assert time.monotonic() < deadline, "the leader has not been asked three times"
        by_leader, by_follower = fetches(cluster, LEADER, partition), fetches(cluster, NEAR, partition)
        assert (0, []) == (sum(entry.record_bytes for entry in by_leader), fetches(cluster, OTHER, partition))
        assert {NEAR} == {row["preferredReadReplica"] for entry in by_leader for row in entry.partitions}
        assert len(by_leader) < len(by_follower)
        size = sum(entry.record_bytes for entry in by_follower)
        assert reader.end * 3 < size < node_metric(consumer, "incoming-byte-total", NEAR)
        assert node_metric(consumer, "request-total", NEAR) >= len(by_follower)
        assert node_metric(consumer, "incoming-byte-total", LEADER) < size


def elect_preferred(cluster: KafkaCluster, tp: TopicPartition) -> None:
    """Elect the first replica as leader."""
    cluster.admin.elect_leaders(ElectionType.PREFERRED, [ElectedPartition(tp.topic, tp.partition)]).result(30)
    wait_until(lambda: cluster.leader_of(tp.topic) == LEADER, 30, "the preferred leader")


def test_new_leader_is_followed_without_metadata(
    cluster: KafkaCluster, partition: TopicPartition, engine: dict[str, Any]
) -> None:
    """The old leader's Fetch response contains the new one. A consumer whose metadata requests are in backoff fetches
    from it at once, with a validated position.

    The consumer is idle during the election: the old leader may know of it before the new one does. The new one would
    then reject the validation, and the consumer would request metadata after all.
    """
    cluster.node(LEADER).restart()
    wait_until(lambda: len(in_sync(cluster, partition)) == 3, 60, "all replicas in sync")
    old = cluster.leader_of(partition.topic)
    assert old != LEADER
    with consumer_of(cluster, partition, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000, **engine) as consumer:
        reader = Reader(cluster, consumer, partition)
        reader.pass_on(1_000)
        wait_for_records_of(cluster, old, partition)
        asked = wait_until(lambda: requests(cluster, partition, "METADATA"), 30, "the first request for metadata")
        rest(consumer, partition, old)
        elect_preferred(cluster, partition)
        reader.write(1_000)  # so that both leaders know of the election
        consumer.resume(partition)
        reader.read(1_000)
        wait_for_records_of(cluster, LEADER, partition)
        checked = wait_until(lambda: requests(cluster, partition, "OFFSET_FOR_LEADER_EPOCH"), 30, "the check")
        refused = wait_until(lambda: refusals(cluster, old, partition), 30, "the hint")
        assert (asked, {LEADER: 1}) == (requests(cluster, partition, "METADATA"), checked)
        assert {LEADER} == {row["currentLeader"]["leaderId"] for row in refused}
        assert {row["errorCode"] for row in refused} <= {NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH}
