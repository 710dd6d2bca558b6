"""The transaction coordinator of the cluster model: producer epochs, partitions of a transaction, markers."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kconsumer.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.transactions import EXHAUSTED_EPOCH
from support.fakes.cluster_client import ClusterClient, advance

ID = "transfer"


class Producer:
    """A transactional producer of a topic with two partitions, on one broker."""

    def __init__(self, cluster: Cluster | None = None, clock: VirtualClock | None = None) -> None:
        self.cluster, self.clock = cluster or Cluster(), clock or VirtualClock()
        if "t" not in self.cluster.topics:
            self.cluster.create_topic("t", 2)
        self.client = ClusterClient(self.cluster, self.clock)
        self.id = self.epoch = -1
        self.sequence = 0

    def init(self, version: int = 5, timeout_ms: int = 60_000, **fields: Any) -> int:
        """Get a producer id and epoch. Returns the error code."""
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms, **fields)
        response = self.client.call(INIT_PRODUCER_ID, version, request)
        if not response.error_code:
            self.id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0
        return int(response.error_code)

    def add(self, *partitions: int, version: int = 3) -> list[int]:
        """Add partitions to the transaction. Returns their error codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        (topic,) = self.client.call(ADD_PARTITIONS_TO_TXN, version, request).results_by_topic_v3_and_below
        return [row.partition_error_code for row in topic.results_by_partition]

    def produce(self, value: bytes, partition: int = 0, version: int = 11) -> int:
        """Produce one record in the transaction. Returns the error code."""
        data = build_batch(
            [value],
            transactional=True,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        row = PartitionProduceData(index=partition, records=data)
        topics = [TopicProduceData(name="t", partition_data=[row])]
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=topics)
        response = self.client.call(PRODUCE, version, request)
        return int(response.responses[0].partition_responses[0].error_code)

    def end(self, *, commit: bool, version: int = 3) -> int:
        """End the transaction. Returns the error code. Since version 5 the producer gets its next epoch."""
        request = EndTxnRequest(transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, committed=commit)
        response = self.client.call(END_TXN, version, request)
        if version >= 5 and not response.error_code:
            self.id, self.epoch = response.producer_id, response.producer_epoch
        return int(response.error_code)

    def log(self, partition: int = 0) -> Any:
        """Returns the log of a partition."""
        return self.cluster.topics["t"].partitions[partition].log


@pytest.fixture
def producer() -> Producer:
    found = Producer()
    assert 0 == found.init()
    return found


@pytest.mark.parametrize(
    ("fields", "metadata", "error"),
    [
        ({"producer_id": 4242}, "", Errors.INVALID_PRODUCER_ID_MAPPING),
        ({"member_id": "x"}, "", Errors.NONE),
        ({}, "x" * 4097, Errors.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_offsets_in_a_transaction(producer: Producer, fields: dict[str, Any], metadata: str, error: int) -> None:
    """The producer must be valid and the metadata short. A group that does not exist has no members to check."""
    known: dict[str, Any] = {"transactional_id": ID, "producer_id": producer.id, "producer_epoch": producer.epoch}
    known["group_id"] = "g"
    assert 0 == producer.client.call(ADD_OFFSETS_TO_TXN, 3, AddOffsetsToTxnRequest(**known)).error_code
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=metadata)
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[row])]
    request = TxnOffsetCommitRequest(**{**known, "topics": topics, **fields})
    response = producer.client.call(TXN_OFFSET_COMMIT, 4, request)
    assert error == response.topics[0].partitions[0].error_code


def test_exhausted_epochs(producer: Producer) -> None:
    """After the last epoch, a producer gets a new producer id with epoch 0."""
    transaction = producer.cluster.transactions.get(ID)
    assert transaction is not None
    transaction.producer_epoch = EXHAUSTED_EPOCH
    old = producer.id
    assert 0 == producer.init()
    assert (old + 1, 0) == (producer.id, producer.epoch)


def test_a_marker_waits_for_a_leader() -> None:
    """A partition without a leader gets its marker later; until then the transaction has not ended."""
    cluster = Cluster(2)
    cluster.create_topic("t", 2)  # the second partition is on broker 2
    partition = cluster.coordinator_partition(ID, "transaction")
    if partition.leader != 1:
        partition.elect(1)
    producer = Producer(cluster)
    producer.init()
    producer.add(0, 1)
    cluster.kill(2)
    assert 0 == producer.end(commit=True)
    assert [Errors.CONCURRENT_TRANSACTIONS] == producer.add(0)
    cluster.start(2)
    advance(cluster, producer.clock, 100)
    assert 1 == producer.log(1).end
    assert [0] == producer.add(0)


def test_brokers_verify_partitions(producer: Producer) -> None:
    """A broker asks with AddPartitionsToTxn v4 whether partitions are in a transaction."""
    producer.add(0)
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    row = AddPartitionsToTxnTransaction(
        transactional_id=ID, producer_id=producer.id, producer_epoch=producer.epoch, verify_only=True, topics=topics
    )
    response = producer.client.call(ADD_PARTITIONS_TO_TXN, 5, AddPartitionsToTxnRequest(transactions=[row]))
    (result,) = response.results_by_transaction
    codes = [found.partition_error_code for found in result.topic_results[0].results_by_partition]
    assert [0, Errors.TRANSACTION_ABORTABLE] == codes


def test_another_broker_is_the_coordinator() -> None:
    """A broker that does not coordinate the transactional id refuses requests."""
    cluster = Cluster(2)
    coordinator = cluster.coordinator(ID, "transaction")
    assert coordinator is not None
    client = ClusterClient(cluster, VirtualClock(), broker=3 - coordinator.id)
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000)
    assert Errors.NOT_COORDINATOR == client.call(INIT_PRODUCER_ID, 5, request).error_code
