"""The transaction coordinator of the cluster model: producer epochs, partitions of a transaction, markers."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.error_codes import Errors
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kconsumer.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.transactions import EXHAUSTED_EPOCH, State
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


def test_a_producer_without_transactions() -> None:
    """Each producer without a transactional id gets an id of its own, with epoch 0."""
    producer = Producer()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    ids = [producer.client.call(INIT_PRODUCER_ID, 4, request) for _ in range(2)]
    assert [(0, 0), (1, 0)] == [(row.producer_id, row.producer_epoch) for row in ids]


def test_each_start_gets_the_next_epoch(producer: Producer) -> None:
    """A producer that starts again with the same transactional id has the same producer id and the next epoch."""
    first = producer.id, producer.epoch
    producer.init()
    assert (first[0], first[1] + 1) == (producer.id, producer.epoch)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction(producer: Producer, commit: bool) -> None:
    """Until the end of a transaction its records are unstable; then a marker ends it in each of its partitions."""
    assert [0, 0] == producer.add(0, 1)
    assert [0, 0] == [producer.produce(b"a", 0), producer.produce(b"b", 1)]
    assert (0, 1) == (producer.log().last_stable_offset, producer.log().high_watermark)
    assert 0 == producer.end(commit=commit)
    for index in (0, 1):
        assert (2, 2) == (producer.log(index).last_stable_offset, producer.log(index).high_watermark)
        aborted = [ended.producer_id for ended in producer.log(index).aborted_between(0, 2)]
        assert ([] if commit else [producer.id]) == aborted
    assert 0 == producer.end(commit=commit), "the same request again"
    assert Errors.INVALID_TXN_STATE == producer.end(commit=not commit)


def test_a_partition_that_was_not_added(producer: Producer) -> None:
    """A batch for a partition that is not in the transaction is refused, with the error of its version of Produce."""
    producer.add(0)
    assert Errors.INVALID_TXN_STATE == producer.produce(b"a", 1, version=10)
    assert Errors.TRANSACTION_ABORTABLE == producer.produce(b"a", 1, version=11)
    assert 0 == producer.produce(b"a", 1, version=12), "since version 12 the batch adds its partition"


def test_unknown_partitions_add_nothing(producer: Producer) -> None:
    """If one partition does not exist, none is added."""
    assert [Errors.OPERATION_NOT_ATTEMPTED, Errors.UNKNOWN_TOPIC_OR_PARTITION] == producer.add(0, 9)
    transaction = producer.cluster.transactions.get(ID)
    assert transaction is not None
    assert State.EMPTY is transaction.state


def test_an_old_producer_is_fenced(producer: Producer) -> None:
    """A second producer aborts the transaction of the first one, and fences it."""
    producer.add(0)
    producer.produce(b"a")
    successor = Producer(producer.cluster, producer.clock)
    assert Errors.CONCURRENT_TRANSACTIONS == successor.init()
    assert 0 == successor.init()
    assert 1 == len(producer.log().aborted_between(0, 9))
    assert Errors.INVALID_PRODUCER_EPOCH == producer.produce(b"b")
    assert [Errors.PRODUCER_FENCED] == producer.add(0)
    assert [Errors.INVALID_PRODUCER_EPOCH] == producer.add(0, version=1)
    assert Errors.PRODUCER_FENCED == producer.end(commit=True)
    assert Errors.INVALID_PRODUCER_EPOCH == producer.end(commit=True, version=1)


def test_a_transaction_times_out() -> None:
    """A transaction that is open for longer than its timeout is aborted, and its producer is fenced."""
    producer = Producer()
    producer.init(timeout_ms=5000)
    producer.add(0)
    producer.produce(b"a")
    advance(producer.cluster, producer.clock, 4999)
    assert 0 == producer.log().last_stable_offset
    advance(producer.cluster, producer.clock, 1)
    assert (2, 1) == (producer.log().last_stable_offset, len(producer.log().aborted_between(0, 2)))
    assert Errors.PRODUCER_FENCED == producer.end(commit=True)


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_a_timeout_out_of_bounds(timeout_ms: int) -> None:
    """The transaction timeout must be positive and at most transaction.max.timeout.ms."""
    assert Errors.INVALID_TRANSACTION_TIMEOUT == Producer().init(timeout_ms=timeout_ms)


def test_resuming_a_producer(producer: Producer) -> None:
    """A producer that names its id and epoch gets the next epoch, and the same one if it asks again (KIP-360)."""
    known = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    assert 0 == producer.init(**known)
    bumped = producer.epoch
    assert 0 == producer.init(**known)
    assert bumped == producer.epoch
    producer.init()
    assert Errors.PRODUCER_FENCED == producer.init(**known)
    assert Errors.INVALID_PRODUCER_EPOCH == producer.init(version=3, **known)


def test_exhausted_epochs(producer: Producer) -> None:
    """After the last epoch, a producer gets a new producer id with epoch 0."""
    transaction = producer.cluster.transactions.get(ID)
    assert transaction is not None
    transaction.producer_epoch = EXHAUSTED_EPOCH
    old = producer.id
    assert 0 == producer.init()
    assert (old + 1, 0) == (producer.id, producer.epoch)


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_epoch_after_each_transaction(producer: Producer, commit: bool) -> None:
    """Since EndTxn v5 each transaction has an epoch of its own; the request may be sent again (KIP-890)."""
    first = producer.epoch
    producer.produce(b"a", version=12)
    assert 0 == producer.end(commit=commit, version=5)
    assert first + 1 == producer.epoch
    producer.epoch = first
    assert 0 == producer.end(commit=commit, version=5)
    assert first + 1 == producer.epoch
    assert 0 == producer.produce(b"b", version=12)
    assert 2 == producer.log().last_stable_offset


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


@pytest.mark.parametrize(("version", "error"), [(3, Errors.INVALID_TXN_STATE), (4, Errors.TRANSACTION_ABORTABLE)])
def test_offsets_of_a_group(producer: Producer, version: int, error: int) -> None:
    """AddOffsetsToTxn adds a group, so that the producer may commit its offsets with TxnOffsetCommit."""
    check = (ID, (producer.id, producer.epoch), "g", version, 0.0)
    assert error == producer.cluster.transactions.verify_group(*check)
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
    )
    assert 0 == producer.client.call(ADD_OFFSETS_TO_TXN, 3, request).error_code
    assert Errors.NONE == producer.cluster.transactions.verify_group(*check)
    wrong = AddOffsetsToTxnRequest(transactional_id=ID, producer_id=99, producer_epoch=0, group_id="g")
    assert Errors.INVALID_PRODUCER_ID_MAPPING == producer.client.call(ADD_OFFSETS_TO_TXN, 3, wrong).error_code


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
