"""The APIs for committed offsets of groups and for offsets of logs.

They are OffsetCommit and OffsetFetch for groups, and ListOffsets and OffsetForLeaderEpoch for logs.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, F, api, array, struct

# --- OffsetCommit -------------------------------------------------------------------------------------------
# Until v4 the client could set retention_time_ms (-1: the broker's setting). v6 adds the leader epoch (KIP-320), v7
# static membership (KIP-345). Since v9, members that use the protocol of KIP-848 send this request, too, with their
# member epoch in generation_id_or_member_epoch. v10 has topic ids in place of names.

OffsetCommitRequestPartition = struct(
    "OffsetCommitRequestPartition",
    F("partition_index", INT32),
    F("committed_offset", INT64),
    F("committed_leader_epoch", INT32, "6+", default=-1),
    F("committed_metadata", STRING, null="0+"),
)

OffsetCommitRequestTopic = struct(
    "OffsetCommitRequestTopic",
    F("name", STRING, "0-9"),
    F("topic_id", UUID, "10+"),
    F("partitions", array(OffsetCommitRequestPartition)),
)

OffsetCommitRequest = struct(
    "OffsetCommitRequest",
    F("group_id", STRING),
    F("generation_id_or_member_epoch", INT32, "1+", default=-1),
    F("member_id", STRING, "1+"),
    F("group_instance_id", STRING, "7+", null="7+", default=None),
    F("retention_time_ms", INT64, "2-4", default=-1),
    F("topics", array(OffsetCommitRequestTopic)),
)

OffsetCommitResponsePartition = struct(
    "OffsetCommitResponsePartition",
    F("partition_index", INT32),
    F("error_code", INT16),
)

OffsetCommitResponseTopic = struct(
    "OffsetCommitResponseTopic",
    F("name", STRING, "0-9"),
    F("topic_id", UUID, "10+"),
    F("partitions", array(OffsetCommitResponsePartition)),
)

OffsetCommitResponse = struct(
    "OffsetCommitResponse",
    F("throttle_time_ms", INT32, "3+"),
    F("topics", array(OffsetCommitResponseTopic)),
)

OFFSET_COMMIT = api(
    "OffsetCommit",
    key=8,
    versions="2-10",
    flexible=8,
    throttle=4,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)

# --- OffsetFetch --------------------------------------------------------------------------------------------
# Since v2, null in place of the list of topics means all topics. v5 adds the leader epoch, v7 a flag to wait for open
# transactions (KIP-447). Since v8, request and response contain lists of groups (KIP-709). v9 adds member id and member
# epoch (KIP-848). v10 has topic ids in place of names.

OffsetFetchRequestTopic = struct(
    "OffsetFetchRequestTopic",
    F("name", STRING, "0-7"),
    F("partition_indexes", array(INT32), "0-7"),
)

OffsetFetchRequestTopics = struct(
    "OffsetFetchRequestTopics",
    F("name", STRING, "8-9"),
    F("topic_id", UUID, "10+"),
    F("partition_indexes", array(INT32), "8+"),
)

OffsetFetchRequestGroup = struct(
    "OffsetFetchRequestGroup",
    F("group_id", STRING, "8+"),
    F("member_id", STRING, "9+", null="9+", default=None),
    F("member_epoch", INT32, "9+", default=-1),
    F("topics", array(OffsetFetchRequestTopics), "8+", null="8+"),
)

OffsetFetchRequest = struct(
    "OffsetFetchRequest",
    F("group_id", STRING, "0-7"),
    F("topics", array(OffsetFetchRequestTopic), "0-7", null="2-7"),
    F("groups", array(OffsetFetchRequestGroup), "8+"),
    F("require_stable", BOOL, "7+"),
)

OffsetFetchResponsePartition = struct(
    "OffsetFetchResponsePartition",
    F("partition_index", INT32, "0-7"),
    F("committed_offset", INT64, "0-7"),
    F("committed_leader_epoch", INT32, "5-7", default=-1),
    F("metadata", STRING, "0-7", null="0-7"),
    F("error_code", INT16, "0-7"),
)

OffsetFetchResponseTopic = struct(
    "OffsetFetchResponseTopic",
    F("name", STRING, "0-7"),
    F("partitions", array(OffsetFetchResponsePartition), "0-7"),
)

OffsetFetchResponsePartitions = struct(
    "OffsetFetchResponsePartitions",
    F("partition_index", INT32, "8+"),
    F("committed_offset", INT64, "8+"),
    F("committed_leader_epoch", INT32, "8+", default=-1),
    F("metadata", STRING, "8+", null="8+"),
    F("error_code", INT16, "8+"),
)

OffsetFetchResponseTopics = struct(
    "OffsetFetchResponseTopics",
    F("name", STRING, "8-9"),
    F("topic_id", UUID, "10+"),
    F("partitions", array(OffsetFetchResponsePartitions), "8+"),
)

OffsetFetchResponseGroup = struct(
    "OffsetFetchResponseGroup",
    F("group_id", STRING, "8+"),
    F("topics", array(OffsetFetchResponseTopics), "8+"),
    F("error_code", INT16, "8+"),
)

OffsetFetchResponse = struct(
    "OffsetFetchResponse",
    F("throttle_time_ms", INT32, "3+"),
    F("topics", array(OffsetFetchResponseTopic), "0-7"),
    F("error_code", INT16, "2-7"),
    F("groups", array(OffsetFetchResponseGroup), "8+"),
)

OFFSET_FETCH = api(
    "OffsetFetch",
    key=9,
    versions="1-10",
    flexible=6,
    throttle=4,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)

# --- ListOffsets --------------------------------------------------------------------------------------------
# Special timestamps: -1 latest, -2 earliest, -3 (v7) maximum timestamp, -4 (v8) earliest local, -5 (v9)
# latest tiered, -6 (v11) earliest not yet tiered. v2 adds the isolation level, v4 the leader epoch to request and
# response (KIP-320), v10 a timeout for lookups in tiered storage (KIP-1075).

ListOffsetsPartition = struct(
    "ListOffsetsPartition",
    F("partition_index", INT32),
    F("current_leader_epoch", INT32, "4+", default=-1),
    F("timestamp", INT64),
)

ListOffsetsTopic = struct(
    "ListOffsetsTopic",
    F("name", STRING),
    F("partitions", array(ListOffsetsPartition)),
)

ListOffsetsRequest = struct(
    "ListOffsetsRequest",
    F("replica_id", INT32, default=-1),  # -1 means a consumer; Kafka's default of 0 is the id of a broker
    F("isolation_level", INT8, "2+"),
    F("topics", array(ListOffsetsTopic)),
    F("timeout_ms", INT32, "10+"),
)

ListOffsetsPartitionResponse = struct(
    "ListOffsetsPartitionResponse",
    F("partition_index", INT32),
    F("error_code", INT16),
    F("timestamp", INT64, "1+", default=-1),
    F("offset", INT64, "1+", default=-1),
    F("leader_epoch", INT32, "4+", default=-1),
)

ListOffsetsTopicResponse = struct(
    "ListOffsetsTopicResponse",
    F("name", STRING),
    F("partitions", array(ListOffsetsPartitionResponse)),
)

ListOffsetsResponse = struct(
    "ListOffsetsResponse",
    F("throttle_time_ms", INT32, "2+"),
    F("topics", array(ListOffsetsTopicResponse)),
)

LIST_OFFSETS = api(
    "ListOffsets",
    key=2,
    versions="1-11",
    flexible=6,
    throttle=3,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)

# --- OffsetForLeaderEpoch -----------------------------------------------------------------------------------
# Returns the end offset of a leader epoch. With it, consumers detect that the log was truncated below their position
# (KIP-320). v2 requires a permission for the cluster, so consumers use v3 and newer.

OffsetForLeaderPartition = struct(
    "OffsetForLeaderPartition",
    F("partition", INT32),
    F("current_leader_epoch", INT32, "2+", default=-1),
    F("leader_epoch", INT32),
)

OffsetForLeaderTopic = struct(
    "OffsetForLeaderTopic",
    F("topic", STRING),
    F("partitions", array(OffsetForLeaderPartition)),
)

OffsetForLeaderEpochRequest = struct(
    "OffsetForLeaderEpochRequest",
    F("replica_id", INT32, "3+", default=-1),  # -1 means a consumer; Kafka's default of -2 is for debugging
    F("topics", array(OffsetForLeaderTopic)),
)

EpochEndOffset = struct(
    "EpochEndOffset",
    F("error_code", INT16),
    F("partition", INT32),
    F("leader_epoch", INT32, "1+", default=-1),
    F("end_offset", INT64, default=-1),
)

OffsetForLeaderTopicResult = struct(
    "OffsetForLeaderTopicResult",
    F("topic", STRING),
    F("partitions", array(EpochEndOffset)),
)

OffsetForLeaderEpochResponse = struct(
    "OffsetForLeaderEpochResponse",
    F("throttle_time_ms", INT32, "2+"),
    F("topics", array(OffsetForLeaderTopicResult)),
)

OFFSET_FOR_LEADER_EPOCH = api(
    "OffsetForLeaderEpoch",
    key=23,
    versions="2-4",
    flexible=4,
    throttle=2,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
