"""The APIs for committed offsets of groups and for offsets of logs.

They are OffsetCommit and OffsetFetch for groups, and ListOffsets and OffsetForLeaderEpoch for logs.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Api, F, Message, array

# --- OffsetCommit -------------------------------------------------------------------------------------------
# Until v4 the client could set retention_time_ms (-1: the broker's setting). v6 adds the leader epoch (KIP-320), v7
# static membership (KIP-345). Since v9, members that use the protocol of KIP-848 send this request, too, with their
# member epoch in generation_id_or_member_epoch. v10 has topic ids in place of names.


class OffsetCommitRequestPartition(Message):
    partition_index: int = F(INT32)
    committed_offset: int = F(INT64)
    committed_leader_epoch: int = F(INT32, "6+", default=-1)
    committed_metadata: str | None = F(STRING, null="0+")


class OffsetCommitRequestTopic(Message):
    name: str = F(STRING, "0-9")
    topic_id: bytes = F(UUID, "10+")
    partitions: list[OffsetCommitRequestPartition] = F(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message):
    group_id: str = F(STRING)
    generation_id_or_member_epoch: int = F(INT32, "1+", default=-1)
    member_id: str = F(STRING, "1+")
    group_instance_id: str | None = F(STRING, "7+", null="7+", default=None)
    retention_time_ms: int = F(INT64, "2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = F(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class OffsetCommitResponseTopic(Message):
    name: str = F(STRING, "0-9")
    topic_id: bytes = F(UUID, "10+")
    partitions: list[OffsetCommitResponsePartition] = F(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message):
    throttle_time_ms: int = F(INT32, "3+")
    topics: list[OffsetCommitResponseTopic] = F(array(OffsetCommitResponseTopic))


OFFSET_COMMIT = Api(OffsetCommitRequest, OffsetCommitResponse, key=8, versions="2-10", flexible=8, throttle=4)

# --- OffsetFetch --------------------------------------------------------------------------------------------
# Since v2, null in place of the list of topics means all topics. v5 adds the leader epoch, v7 a flag to wait for open
# transactions (KIP-447). Since v8, request and response contain lists of groups (KIP-709). v9 adds member id and member
# epoch (KIP-848). v10 has topic ids in place of names.


class OffsetFetchRequestTopic(Message):
    name: str = F(STRING, "0-7")
    partition_indexes: list[int] = F(array(INT32), "0-7")


class OffsetFetchRequestTopics(Message):
    name: str = F(STRING, "8-9")
    topic_id: bytes = F(UUID, "10+")
    partition_indexes: list[int] = F(array(INT32), "8+")


class OffsetFetchRequestGroup(Message):
    group_id: str = F(STRING, "8+")
    member_id: str | None = F(STRING, "9+", null="9+", default=None)
    member_epoch: int = F(INT32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = F(array(OffsetFetchRequestTopics), "8+", null="8+")


class OffsetFetchRequest(Message):
    group_id: str = F(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = F(array(OffsetFetchRequestTopic), "0-7", null="2-7")
    groups: list[OffsetFetchRequestGroup] = F(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = F(BOOL, "7+")


class OffsetFetchResponsePartition(Message):
    partition_index: int = F(INT32, "0-7")
    committed_offset: int = F(INT64, "0-7")
    committed_leader_epoch: int = F(INT32, "5-7", default=-1)
    metadata: str | None = F(STRING, "0-7", null="0-7")
    error_code: int = F(INT16, "0-7")


class OffsetFetchResponseTopic(Message):
    name: str = F(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = F(array(OffsetFetchResponsePartition), "0-7")


class OffsetFetchResponsePartitions(Message):
    partition_index: int = F(INT32, "8+")
    committed_offset: int = F(INT64, "8+")
    committed_leader_epoch: int = F(INT32, "8+", default=-1)
    metadata: str | None = F(STRING, "8+", null="8+")
    error_code: int = F(INT16, "8+")


class OffsetFetchResponseTopics(Message):
    name: str = F(STRING, "8-9")
    topic_id: bytes = F(UUID, "10+")
    partitions: list[OffsetFetchResponsePartitions] = F(array(OffsetFetchResponsePartitions), "8+")


class OffsetFetchResponseGroup(Message):
    group_id: str = F(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = F(array(OffsetFetchResponseTopics), "8+")
    error_code: int = F(INT16, "8+")


class OffsetFetchResponse(Message):
    throttle_time_ms: int = F(INT32, "3+")
    topics: list[OffsetFetchResponseTopic] = F(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = F(INT16, "2-7")
    groups: list[OffsetFetchResponseGroup] = F(array(OffsetFetchResponseGroup), "8+")


OFFSET_FETCH = Api(OffsetFetchRequest, OffsetFetchResponse, key=9, versions="1-10", flexible=6, throttle=4)

# --- ListOffsets --------------------------------------------------------------------------------------------
# Special timestamps: -1 latest, -2 earliest, -3 (v7) maximum timestamp, -4 (v8) earliest local, -5 (v9)
# latest tiered, -6 (v11) earliest not yet tiered. v2 adds the isolation level, v4 the leader epoch to request and
# response (KIP-320), v10 a timeout for lookups in tiered storage (KIP-1075).


class ListOffsetsPartition(Message):
    partition_index: int = F(INT32)
    current_leader_epoch: int = F(INT32, "4+", default=-1)
    timestamp: int = F(INT64)


class ListOffsetsTopic(Message):
    name: str = F(STRING)
    partitions: list[ListOffsetsPartition] = F(array(ListOffsetsPartition))


class ListOffsetsRequest(Message):
    replica_id: int = F(INT32, default=-1)  # -1 means a consumer; Kafka's default of 0 is the id of a broker
    isolation_level: int = F(INT8, "2+")
    topics: list[ListOffsetsTopic] = F(array(ListOffsetsTopic))
    timeout_ms: int = F(INT32, "10+")


class ListOffsetsPartitionResponse(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    timestamp: int = F(INT64, "1+", default=-1)
    offset: int = F(INT64, "1+", default=-1)
    leader_epoch: int = F(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = F(STRING)
    partitions: list[ListOffsetsPartitionResponse] = F(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Message):
    throttle_time_ms: int = F(INT32, "2+")
    topics: list[ListOffsetsTopicResponse] = F(array(ListOffsetsTopicResponse))


LIST_OFFSETS = Api(ListOffsetsRequest, ListOffsetsResponse, key=2, versions="1-11", flexible=6, throttle=3)

# --- OffsetForLeaderEpoch -----------------------------------------------------------------------------------
# Returns the end offset of a leader epoch. With it, consumers detect that the log was truncated below their position
# (KIP-320). v2 requires a permission for the cluster, so consumers use v3 and newer.


class OffsetForLeaderPartition(Message):
    partition: int = F(INT32)
    current_leader_epoch: int = F(INT32, "2+", default=-1)
    leader_epoch: int = F(INT32)


class OffsetForLeaderTopic(Message):
    topic: str = F(STRING)
    partitions: list[OffsetForLeaderPartition] = F(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Message):
    replica_id: int = F(INT32, "3+", default=-1)  # -1 means a consumer; Kafka's default of -2 is for debugging
    topics: list[OffsetForLeaderTopic] = F(array(OffsetForLeaderTopic))


class EpochEndOffset(Message):
    error_code: int = F(INT16)
    partition: int = F(INT32)
    leader_epoch: int = F(INT32, "1+", default=-1)
    end_offset: int = F(INT64, default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = F(STRING)
    partitions: list[EpochEndOffset] = F(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = F(INT32, "2+")
    topics: list[OffsetForLeaderTopicResult] = F(array(OffsetForLeaderTopicResult))


OFFSET_FOR_LEADER_EPOCH = Api(
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, key=23, versions="2-4", flexible=4, throttle=2
)
