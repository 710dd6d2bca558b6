"""How the cluster model handles Produce: checks, idempotent producers, acks."""

from __future__ import annotations

from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import Partition
from support.fakes.cluster_client import ClusterClient, advance

VERSION = 12


class Producer:
    """A producer of one partition of a cluster with three brokers."""

    def __init__(self, replication_factor: int = 1, broker: int = 1) -> None:
        self.cluster, self.clock = Cluster(3), VirtualClock(1000.0)
        self.topic = self.cluster.create_topic("t", 1, replication_factor)
        self.partition: Partition = self.topic.partitions[0]
        self.client = ClusterClient(self.cluster, self.clock, broker=broker)

    def request(self, data: bytes, acks: int = 1) -> ProduceRequest:
        """Returns a request with the bytes for the partition."""
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=data)])
        return ProduceRequest(acks=acks, timeout_ms=500, topic_data=[topic])

    def produce(self, data: bytes, acks: int = 1) -> Any:
        """Produce bytes to the partition. Returns its row of the response."""
        response = self.client.call(PRODUCE, VERSION, self.request(data, acks), wait_ms=1000)
        return response.responses[0].partition_responses[0]


def test_no_acks() -> None:
    """With acks=0 there is no response, and an error closes the connection."""
    producer = Producer()
    assert (
        producer.client.response(producer.client.send(PRODUCE, VERSION, producer.request(build_batch([b"a"]), 0)))
        is None
    )
    assert (1, False) == (producer.partition.log.end, producer.client.connection.closed)
    producer.client.send(PRODUCE, VERSION, producer.request(b"", 0))
    assert producer.client.connection.closed


def test_another_broker_is_the_leader() -> None:
    """A broker that does not lead the partition says which one does, with its address (KIP-951)."""
    producer = Producer(broker=2)
    response = producer.client.call(PRODUCE, 12, producer.request(build_batch([b"a"])))
    row = response.responses[0].partition_responses[0]
    assert (Errors.NOT_LEADER_OR_FOLLOWER, 1, 0) == (
        row.error_code,
        row.current_leader.leader_id,
        row.current_leader.leader_epoch,
    )
    assert [(1, producer.cluster.brokers[1].port)] == [(end.node_id, end.port) for end in response.node_endpoints]


def test_all_wrong_records() -> None:
    """The response names each record of a batch that is refused, and prefers the error of timestamps, as Kafka does."""
    producer = Producer()
    producer.topic.set_config("cleanup.policy", "compact")
    producer.topic.set_config("message.timestamp.before.max.ms", "1000")
    now = producer.cluster.wall_ms(producer.clock.now())
    rows = [(None, now), (b"k", now), (b"k", now - 9_000), (None, now)]
    found = producer.produce(build_batch([Rec(b"v", key=key, timestamp=time) for key, time in rows]))
    assert (Errors.INVALID_TIMESTAMP, [0, 2, 3]) == (
        found.error_code,
        [each.batch_index for each in found.record_errors],
    )
    found = producer.produce(build_batch([Rec(b"v", timestamp=now)] * 2))
    assert (Errors.INVALID_RECORD, [0, 1]) == (found.error_code, [each.batch_index for each in found.record_errors])


def test_an_unknown_setting_that_is_deleted() -> None:
    """The deletion of an unknown setting is no error, and adds no setting to the topic."""
    topic = Producer().topic
    before = dict(topic.configs)
    topic.set_config("unknown", None)
    assert before == topic.configs


def test_an_internal_topic() -> None:
    """Clients may not write to an internal topic."""
    producer = Producer()
    producer.topic.internal = True
    assert Errors.INVALID_TOPIC_EXCEPTION == producer.produce(build_batch([b"a"])).error_code


def test_all_replicas() -> None:
    """With acks=all the response waits for the in-sync replicas, or ends with REQUEST_TIMED_OUT."""
    producer = Producer(replication_factor=2)
    producer.partition.stop_replica(2)
    number = producer.client.send(PRODUCE, VERSION, producer.request(build_batch([b"a"]), -1))
    advance(producer.cluster, producer.clock, 100)
    assert producer.client.response(number) is None
    producer.partition.resume_replica(2)
    advance(producer.cluster, producer.clock, 0)
    assert 0 == producer.client.response(number).responses[0].partition_responses[0].error_code
    producer.partition.stop_replica(2)
    assert Errors.REQUEST_TIMED_OUT == producer.produce(build_batch([b"b"]), -1).error_code


def batch(sequence: int) -> bytes:
    """Returns a batch of the idempotent producer 7."""
    return build_batch([b"v"] * 2, producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_a_truncated_batch_may_be_sent_again() -> None:
    """After an unclean election the sequences of lost batches are accepted again."""
    producer = Producer(replication_factor=2)
    producer.produce(batch(0))
    producer.partition.stop_replica(2)
    producer.produce(batch(2))
    producer.partition.elect(2)
    client = ClusterClient(producer.cluster, producer.clock, broker=2)
    response = client.call(PRODUCE, VERSION, producer.request(batch(2)))
    row = response.responses[0].partition_responses[0]
    assert (0, 2) == (row.error_code, row.base_offset)
