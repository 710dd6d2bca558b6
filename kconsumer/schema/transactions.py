"""The APIs by which a producer gets its id and runs transactions. `kconsumer.testing` serves them.

They are InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn (KIP-98).
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT16, INT32, INT64, STRING, UUID, F, api, array, struct

# --- InitProducerId -----------------------------------------------------------------------------------------
# v3 adds the previous id and epoch of the producer (KIP-360), v6 two-phase commit (KIP-939).

InitProducerIdRequest = struct(
    "InitProducerIdRequest",
    F("transactional_id", STRING, null="0+"),
    F("transaction_timeout_ms", INT32),
    F("producer_id", INT64, "3+", default=-1),
    F("producer_epoch", INT16, "3+", default=-1),
    F("enable2_pc", BOOL, "6+"),
    F("keep_prepared_txn", BOOL, "6+"),
)

InitProducerIdResponse = struct(
    "InitProducerIdResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("producer_id", INT64, default=-1),
    F("producer_epoch", INT16),
    F("ongoing_txn_producer_id", INT64, "6+", default=-1),
    F("ongoing_txn_producer_epoch", INT16, "6+", default=-1),
)

INIT_PRODUCER_ID = api(
    "InitProducerId",
    key=22,
    versions="0-6",
    flexible=2,
    throttle=1,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)

# --- AddPartitionsToTxn -------------------------------------------------------------------------------------
# Clients send versions up to v3. Brokers send v4 and later, which contain several transactions (KIP-890).

AddPartitionsToTxnTopic = struct(
    "AddPartitionsToTxnTopic",
    F("name", STRING),
    F("partitions", array(INT32)),
)

AddPartitionsToTxnTransaction = struct(
    "AddPartitionsToTxnTransaction",
    F("transactional_id", STRING, "4+"),
    F("producer_id", INT64, "4+"),
    F("producer_epoch", INT16, "4+"),
    F("verify_only", BOOL, "4+"),
    F("topics", array(AddPartitionsToTxnTopic), "4+"),
)

AddPartitionsToTxnRequest = struct(
    "AddPartitionsToTxnRequest",
    F("transactions", array(AddPartitionsToTxnTransaction), "4+"),
    F("v3_and_below_transactional_id", STRING, "0-3"),
    F("v3_and_below_producer_id", INT64, "0-3"),
    F("v3_and_below_producer_epoch", INT16, "0-3"),
    F("v3_and_below_topics", array(AddPartitionsToTxnTopic), "0-3"),
)

AddPartitionsToTxnPartitionResult = struct(
    "AddPartitionsToTxnPartitionResult",
    F("partition_index", INT32),
    F("partition_error_code", INT16),
)

AddPartitionsToTxnTopicResult = struct(
    "AddPartitionsToTxnTopicResult",
    F("name", STRING),
    F("results_by_partition", array(AddPartitionsToTxnPartitionResult)),
)

AddPartitionsToTxnResult = struct(
    "AddPartitionsToTxnResult",
    F("transactional_id", STRING, "4+"),
    F("topic_results", array(AddPartitionsToTxnTopicResult), "4+"),
)

AddPartitionsToTxnResponse = struct(
    "AddPartitionsToTxnResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16, "4+"),
    F("results_by_transaction", array(AddPartitionsToTxnResult), "4+"),
    F("results_by_topic_v3_and_below", array(AddPartitionsToTxnTopicResult), "0-3"),
)

ADD_PARTITIONS_TO_TXN = api(
    "AddPartitionsToTxn",
    key=24,
    versions="0-5",
    flexible=3,
    throttle=1,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)

# --- AddOffsetsToTxn ----------------------------------------------------------------------------------------

AddOffsetsToTxnRequest = struct(
    "AddOffsetsToTxnRequest",
    F("transactional_id", STRING),
    F("producer_id", INT64),
    F("producer_epoch", INT16),
    F("group_id", STRING),
)

AddOffsetsToTxnResponse = struct(
    "AddOffsetsToTxnResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
)

ADD_OFFSETS_TO_TXN = api(
    "AddOffsetsToTxn",
    key=25,
    versions="0-4",
    flexible=3,
    throttle=1,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)

# --- TxnOffsetCommit ----------------------------------------------------------------------------------------
# v2 adds the leader epoch (KIP-320), v3 the member and its generation (KIP-447). Since v5 it also adds the group to the
# transaction (KIP-890). v6 has topic ids in place of names (KIP-1319).

TxnOffsetCommitRequestPartition = struct(
    "TxnOffsetCommitRequestPartition",
    F("partition_index", INT32),
    F("committed_offset", INT64),
    F("committed_leader_epoch", INT32, "2+", default=-1),
    F("committed_metadata", STRING, null="0+"),
)

TxnOffsetCommitRequestTopic = struct(
    "TxnOffsetCommitRequestTopic",
    F("name", STRING, "0-5"),
    F("topic_id", UUID, "6+"),
    F("partitions", array(TxnOffsetCommitRequestPartition)),
)

TxnOffsetCommitRequest = struct(
    "TxnOffsetCommitRequest",
    F("transactional_id", STRING),
    F("group_id", STRING),
    F("producer_id", INT64),
    F("producer_epoch", INT16),
    F("generation_id_or_member_epoch", INT32, "3+", default=-1),
    F("member_id", STRING, "3+"),
    F("group_instance_id", STRING, "3+", null="3+", default=None),
    F("topics", array(TxnOffsetCommitRequestTopic)),
)

TxnOffsetCommitResponsePartition = struct(
    "TxnOffsetCommitResponsePartition",
    F("partition_index", INT32),
    F("error_code", INT16),
)

TxnOffsetCommitResponseTopic = struct(
    "TxnOffsetCommitResponseTopic",
    F("name", STRING, "0-5"),
    F("topic_id", UUID, "6+"),
    F("partitions", array(TxnOffsetCommitResponsePartition)),
)

TxnOffsetCommitResponse = struct(
    "TxnOffsetCommitResponse",
    F("throttle_time_ms", INT32),
    F("topics", array(TxnOffsetCommitResponseTopic)),
)

TXN_OFFSET_COMMIT = api(
    "TxnOffsetCommit",
    key=28,
    versions="0-6",
    flexible=3,
    throttle=1,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)

# --- EndTxn -------------------------------------------------------------------------------------------------
# Since v5 the response has the producer epoch of the next transaction (KIP-890).

EndTxnRequest = struct(
    "EndTxnRequest",
    F("transactional_id", STRING),
    F("producer_id", INT64),
    F("producer_epoch", INT16),
    F("committed", BOOL),
)

EndTxnResponse = struct(
    "EndTxnResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("producer_id", INT64, "5+", default=-1),
    F("producer_epoch", INT16, "5+", default=-1),
)

END_TXN = api(
    "EndTxn",
    key=26,
    versions="0-5",
    flexible=3,
    throttle=1,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
