"""TxnOffsetCommit in the cluster model: offsets that are committed together with a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema import OFFSET_FETCH
from kconsumer.schema.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from kconsumer.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient

ID = "transfer"


class Producer:
    """A transactional producer that commits offsets of topic t."""

    def __init__(self, release: str = "4.4") -> None:
        self.cluster, self.clock = Cluster(release=release), VirtualClock()
        self.topic = self.cluster.create_topic("t", 2)
        self.client = ClusterClient(self.cluster, self.clock)
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        response = self.client.call(INIT_PRODUCER_ID, 4, request)
        self.id, self.epoch = response.producer_id, response.producer_epoch

    def add(self, group: str = "g") -> int:
        """Add a group to the transaction. Returns the error code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return int(self.client.call(ADD_OFFSETS_TO_TXN, 3, request).error_code)

    def commit(
        self, *rows: tuple[str, int, int], version: int = 4, metadata: str = "", **fields: Any
    ) -> list[tuple[str, int, int]]:
        """Commit offsets given as topic, partition and offset. Returns topic, partition and error of each one."""
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=self.topic.id if name == "t" else b"x" * 16,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for name, index, offset in rows
        ]
        values = {"group_id": "g", "producer_id": self.id, "producer_epoch": self.epoch, **fields}
        request = TxnOffsetCommitRequest(transactional_id=ID, topics=topics, **values)
        response = self.client.call(TXN_OFFSET_COMMIT, version, request)
        return [
            (topic.name, row.partition_index, row.error_code) for topic in response.topics for row in topic.partitions
        ]

    def error(self, **fields: Any) -> int:
        """Commit one offset. Returns the error code."""
        ((_, _, error),) = self.commit(("t", 0, 7), **fields)
        return error

    def end(self, *, commit: bool) -> None:
        """End the transaction."""
        request = EndTxnRequest(transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, committed=commit)
        assert self.client.call(END_TXN, 3, request).error_code == 0

    def offsets(self, group: str = "g") -> list[tuple[int, int]]:
        """Returns the stable offsets of a group, as offset and error."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True)
        (row,) = self.client.call(OFFSET_FETCH, 9, request).groups
        return [(part.committed_offset, part.error_code) for topic in row.topics for part in topic.partitions]


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_epoch": 99}, Errors.INVALID_PRODUCER_EPOCH),
        ({"producer_id": 4242}, Errors.INVALID_PRODUCER_ID_MAPPING),
        ({"group_id": ""}, Errors.INVALID_GROUP_ID),
        ({"generation_id_or_member_epoch": 3}, Errors.ILLEGAL_GENERATION),
        ({"member_id": "x"}, Errors.NONE),
        ({"metadata": "x" * 4097}, Errors.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_rejected(producer: Producer, fields: dict[str, Any], error: int) -> None:
    """The producer and the group must be valid; a group that does not exist has no generation."""
    producer.add()
    assert error == producer.error(**fields)
