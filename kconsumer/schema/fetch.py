"""Fetch: record batches from a partition's leader or follower.

v5 adds the log start offset, v7 fetch sessions (KIP-227), v9 the leader epoch (KIP-320). v10 allows zstd in responses
(KIP-110). v11 adds the rack and the preferred read replica (KIP-392), v12 the diverging epoch, and the new leader if it
changed. v13 has topic ids in place of names (KIP-516). v14 supports tiered storage (KIP-405). v15 adds the replica
state (KIP-903), v16 the addresses of new leaders (KIP-951), v17 and v18 fields for followers (KIP-853, KIP-1166). In
fields for followers, a consumer sends the defaults.
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, F, api, array, struct

ReplicaState = struct(
    "ReplicaState",
    F("replica_id", INT32, "15+", default=-1),
    F("replica_epoch", INT64, "15+", default=-1),
)

FetchPartition = struct(
    "FetchPartition",
    F("partition", INT32),
    F("current_leader_epoch", INT32, "9+", default=-1),
    F("fetch_offset", INT64),
    F("last_fetched_epoch", INT32, "12+", default=-1),
    F("log_start_offset", INT64, "5+", default=-1),
    F("partition_max_bytes", INT32),
    F("replica_directory_id", UUID, "17+", tag=0),
    F("high_watermark", INT64, "18+", tag=1, default=(1 << 63) - 1),
)

FetchTopic = struct(
    "FetchTopic",
    F("topic", STRING, "0-12"),
    F("topic_id", UUID, "13+"),
    F("partitions", array(FetchPartition)),
)

ForgottenTopic = struct(
    "ForgottenTopic",
    F("topic", STRING, "7-12"),
    F("topic_id", UUID, "13+"),
    F("partitions", array(INT32), "7+"),
)

FetchRequest = struct(
    "FetchRequest",
    F("cluster_id", STRING, "12+", tag=0, null="12+", default=None),
    F("replica_id", INT32, "0-14", default=-1),
    F("replica_state", ReplicaState, "15+", tag=1),
    F("max_wait_ms", INT32),
    F("min_bytes", INT32),
    F("max_bytes", INT32, "3+", default=(1 << 31) - 1),
    F("isolation_level", INT8, "4+"),
    F("session_id", INT32, "7+"),
    F("session_epoch", INT32, "7+", default=-1),
    F("topics", array(FetchTopic)),
    F("forgotten_topics_data", array(ForgottenTopic), "7+"),
    F("rack_id", STRING, "11+"),
)

FetchEpochEndOffset = struct(
    "FetchEpochEndOffset",
    F("epoch", INT32, "12+", default=-1),
    F("end_offset", INT64, "12+", default=-1),
)

LeaderIdAndEpoch = struct(
    "LeaderIdAndEpoch",
    F("leader_id", INT32, "12+", default=-1),
    F("leader_epoch", INT32, "12+", default=-1),
)

SnapshotId = struct(
    "SnapshotId",
    F("end_offset", INT64, default=-1),
    F("epoch", INT32, default=-1),
)

AbortedTransaction = struct(
    "AbortedTransaction",
    F("producer_id", INT64, "4+"),
    F("first_offset", INT64, "4+"),
)

FetchPartitionData = struct(
    "FetchPartitionData",
    F("partition_index", INT32),
    F("error_code", INT16),
    F("high_watermark", INT64),
    F("last_stable_offset", INT64, "4+", default=-1),
    F("log_start_offset", INT64, "5+", default=-1),
    F("diverging_epoch", FetchEpochEndOffset, "12+", tag=0),
    F("current_leader", LeaderIdAndEpoch, "12+", tag=1),
    F("snapshot_id", SnapshotId, "12+", tag=2),
    F("aborted_transactions", array(AbortedTransaction), "4+", null="4+"),
    F("preferred_read_replica", INT32, "11+", default=-1),
    F("records", RECORDS, null="0+"),
)

FetchableTopicResponse = struct(
    "FetchableTopicResponse",
    F("topic", STRING, "0-12"),
    F("topic_id", UUID, "13+"),
    F("partitions", array(FetchPartitionData)),
)

NodeEndpoint = struct(
    "NodeEndpoint",
    F("node_id", INT32, "16+"),
    F("host", STRING, "16+"),
    F("port", INT32, "16+"),
    F("rack", STRING, "16+", null="16+", default=None),
)

FetchResponse = struct(
    "FetchResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("error_code", INT16, "7+"),
    F("session_id", INT32, "7+"),
    F("responses", array(FetchableTopicResponse)),
    F("node_endpoints", array(NodeEndpoint), "16+", tag=0),
)

FETCH = api(
    "Fetch",
    key=1,
    versions="4-18",
    flexible=12,
    throttle=8,
    request=FetchRequest,
    response=FetchResponse,
)
