"""Produce: record batches to the leader of a partition. A consumer does not send it; `kconsumer.testing` serves it.

v8 adds errors of single records (KIP-467), v10 the new leader if it changed (KIP-951). Since v12 a transactional
producer needs no AddPartitionsToTxn (KIP-890). v13 has topic ids in place of names (KIP-516).
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, INT64, RECORDS, STRING, UUID, F, api, array, struct

PartitionProduceData = struct(
    "PartitionProduceData",
    F("index", INT32),
    F("records", RECORDS, null="0+"),
)

TopicProduceData = struct(
    "TopicProduceData",
    F("name", STRING, "0-12"),
    F("topic_id", UUID, "13+"),
    F("partition_data", array(PartitionProduceData)),
)

ProduceRequest = struct(
    "ProduceRequest",
    F("transactional_id", STRING, "3+", null="3+", default=None),
    F("acks", INT16),
    F("timeout_ms", INT32),
    F("topic_data", array(TopicProduceData)),
)

BatchIndexAndErrorMessage = struct(
    "BatchIndexAndErrorMessage",
    F("batch_index", INT32, "8+"),
    F("batch_index_error_message", STRING, "8+", null="8+", default=None),
)

ProduceLeaderIdAndEpoch = struct(
    "ProduceLeaderIdAndEpoch",
    F("leader_id", INT32, "10+", default=-1),
    F("leader_epoch", INT32, "10+", default=-1),
)

PartitionProduceResponse = struct(
    "PartitionProduceResponse",
    F("index", INT32),
    F("error_code", INT16),
    F("base_offset", INT64),
    F("log_append_time_ms", INT64, "2+", default=-1),
    F("log_start_offset", INT64, "5+", default=-1),
    F("record_errors", array(BatchIndexAndErrorMessage), "8+"),
    F("error_message", STRING, "8+", null="8+", default=None),
    F("current_leader", ProduceLeaderIdAndEpoch, "10+", tag=0),
)

TopicProduceResponse = struct(
    "TopicProduceResponse",
    F("name", STRING, "0-12"),
    F("topic_id", UUID, "13+"),
    F("partition_responses", array(PartitionProduceResponse)),
)

ProduceNodeEndpoint = struct(
    "ProduceNodeEndpoint",
    F("node_id", INT32, "10+"),
    F("host", STRING, "10+"),
    F("port", INT32, "10+"),
    F("rack", STRING, "10+", null="10+", default=None),
)

ProduceResponse = struct(
    "ProduceResponse",
    F("responses", array(TopicProduceResponse)),
    F("throttle_time_ms", INT32, "1+"),
    F("node_endpoints", array(ProduceNodeEndpoint), "10+", tag=0),
)

PRODUCE = api(
    "Produce",
    key=0,
    versions="3-13",
    flexible=9,
    throttle=6,
    request=ProduceRequest,
    response=ProduceResponse,
)
