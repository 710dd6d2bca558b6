"""Produce: record batches to the leader of a partition. A consumer does not send it; `kconsumer.testing` serves it.

v8 adds errors of single records (KIP-467), v10 the new leader if it changed (KIP-951). Since v12 a transactional
producer needs no AddPartitionsToTxn (KIP-890). v13 has topic ids in place of names (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.schema.dsl import INT16, INT32, INT64, RECORDS, STRING, UUID, Api, F, Message, array

if TYPE_CHECKING:
    from kconsumer._core.wire import Slice


class PartitionProduceData(Message):
    index: int = F(INT32)
    records: Slice | bytes | None = F(RECORDS, null="0+")


class TopicProduceData(Message):
    name: str = F(STRING, "0-12")
    topic_id: bytes = F(UUID, "13+")
    partition_data: list[PartitionProduceData] = F(array(PartitionProduceData))


class ProduceRequest(Message):
    transactional_id: str | None = F(STRING, "3+", null="3+", default=None)
    acks: int = F(INT16)
    timeout_ms: int = F(INT32)
    topic_data: list[TopicProduceData] = F(array(TopicProduceData))


class BatchIndexAndErrorMessage(Message):
    batch_index: int = F(INT32, "8+")
    batch_index_error_message: str | None = F(STRING, "8+", null="8+", default=None)


class ProduceLeaderIdAndEpoch(Message):
    leader_id: int = F(INT32, "10+", default=-1)
    leader_epoch: int = F(INT32, "10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = F(INT32)
    error_code: int = F(INT16)
    base_offset: int = F(INT64)
    log_append_time_ms: int = F(INT64, "2+", default=-1)
    log_start_offset: int = F(INT64, "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = F(array(BatchIndexAndErrorMessage), "8+")
    error_message: str | None = F(STRING, "8+", null="8+", default=None)
    current_leader: ProduceLeaderIdAndEpoch | None = F(ProduceLeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = F(STRING, "0-12")
    topic_id: bytes = F(UUID, "13+")
    partition_responses: list[PartitionProduceResponse] = F(array(PartitionProduceResponse))


class ProduceNodeEndpoint(Message):
    node_id: int = F(INT32, "10+")
    host: str = F(STRING, "10+")
    port: int = F(INT32, "10+")
    rack: str | None = F(STRING, "10+", null="10+", default=None)


class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = F(array(TopicProduceResponse))
    throttle_time_ms: int = F(INT32, "1+")
    node_endpoints: list[ProduceNodeEndpoint] = F(array(ProduceNodeEndpoint), "10+", tag=0)


PRODUCE = Api(ProduceRequest, ProduceResponse, key=0, versions="3-13", flexible=9, throttle=6)
