"""The APIs by which a producer gets its id and runs transactions. `kconsumer.testing` serves them.

They are InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn (KIP-98).
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT16, INT32, INT64, STRING, UUID, Api, F, Message, array

# --- InitProducerId -----------------------------------------------------------------------------------------
# v3 adds the previous id and epoch of the producer (KIP-360), v6 two-phase commit (KIP-939).


class InitProducerIdRequest(Message):
    transactional_id: str | None = F(STRING, null="0+")
    transaction_timeout_ms: int = F(INT32)
    producer_id: int = F(INT64, "3+", default=-1)
    producer_epoch: int = F(INT16, "3+", default=-1)
    enable2_pc: bool = F(BOOL, "6+")
    keep_prepared_txn: bool = F(BOOL, "6+")


class InitProducerIdResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    producer_id: int = F(INT64, default=-1)
    producer_epoch: int = F(INT16)
    ongoing_txn_producer_id: int = F(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = F(INT16, "6+", default=-1)


INIT_PRODUCER_ID = Api(InitProducerIdRequest, InitProducerIdResponse, key=22, versions="0-6", flexible=2, throttle=1)

# --- AddPartitionsToTxn -------------------------------------------------------------------------------------
# Clients send versions up to v3. Brokers send v4 and later, which contain several transactions (KIP-890).


class AddPartitionsToTxnTopic(Message):
    name: str = F(STRING)
    partitions: list[int] = F(array(INT32))


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = F(STRING, "4+")
    producer_id: int = F(INT64, "4+")
    producer_epoch: int = F(INT16, "4+")
    verify_only: bool = F(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = F(array(AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction] = F(array(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = F(STRING, "0-3")
    v3_and_below_producer_id: int = F(INT64, "0-3")
    v3_and_below_producer_epoch: int = F(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = F(array(AddPartitionsToTxnTopic), "0-3")


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = F(INT32)
    partition_error_code: int = F(INT16)


class AddPartitionsToTxnTopicResult(Message):
    name: str = F(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = F(array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Message):
    transactional_id: str = F(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = F(array(AddPartitionsToTxnTopicResult), "4+")


class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16, "4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = F(array(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = F(array(AddPartitionsToTxnTopicResult), "0-3")


ADD_PARTITIONS_TO_TXN = Api(
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, key=24, versions="0-5", flexible=3, throttle=1
)

# --- AddOffsetsToTxn ----------------------------------------------------------------------------------------


class AddOffsetsToTxnRequest(Message):
    transactional_id: str = F(STRING)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    group_id: str = F(STRING)


class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)


ADD_OFFSETS_TO_TXN = Api(
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, key=25, versions="0-4", flexible=3, throttle=1
)

# --- TxnOffsetCommit ----------------------------------------------------------------------------------------
# v2 adds the leader epoch (KIP-320), v3 the member and its generation (KIP-447). Since v5 it also adds the group to the
# transaction (KIP-890). v6 has topic ids in place of names (KIP-1319).


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = F(INT32)
    committed_offset: int = F(INT64)
    committed_leader_epoch: int = F(INT32, "2+", default=-1)
    committed_metadata: str | None = F(STRING, null="0+")


class TxnOffsetCommitRequestTopic(Message):
    name: str = F(STRING, "0-5")
    topic_id: bytes = F(UUID, "6+")
    partitions: list[TxnOffsetCommitRequestPartition] = F(array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Message):
    transactional_id: str = F(STRING)
    group_id: str = F(STRING)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    generation_id_or_member_epoch: int = F(INT32, "3+", default=-1)
    member_id: str = F(STRING, "3+")
    group_instance_id: str | None = F(STRING, "3+", null="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = F(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class TxnOffsetCommitResponseTopic(Message):
    name: str = F(STRING, "0-5")
    topic_id: bytes = F(UUID, "6+")
    partitions: list[TxnOffsetCommitResponsePartition] = F(array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = F(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = F(array(TxnOffsetCommitResponseTopic))


TXN_OFFSET_COMMIT = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse, key=28, versions="0-6", flexible=3, throttle=1)

# --- EndTxn -------------------------------------------------------------------------------------------------
# Since v5 the response has the producer epoch of the next transaction (KIP-890).


class EndTxnRequest(Message):
    transactional_id: str = F(STRING)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    committed: bool = F(BOOL)


class EndTxnResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    producer_id: int = F(INT64, "5+", default=-1)
    producer_epoch: int = F(INT16, "5+", default=-1)


END_TXN = Api(EndTxnRequest, EndTxnResponse, key=26, versions="0-5", flexible=3, throttle=1)
