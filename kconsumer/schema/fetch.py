"""Fetch: record batches from a partition's leader or follower.

v5 adds the log start offset, v7 fetch sessions (KIP-227), v9 the leader epoch (KIP-320). v10 allows zstd in responses
(KIP-110). v11 adds the rack and the preferred read replica (KIP-392), v12 the diverging epoch, and the new leader if it
changed. v13 has topic ids in place of names (KIP-516). v14 supports tiered storage (KIP-405). v15 adds the replica
state (KIP-903), v16 the addresses of new leaders (KIP-951), v17 and v18 fields for followers (KIP-853, KIP-1166). In
fields for followers, a consumer sends the defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.schema.dsl import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Api, F, Message, array

if TYPE_CHECKING:
    from kconsumer._core.wire import Slice


class ReplicaState(Message):
    replica_id: int = F(INT32, "15+", default=-1)
    replica_epoch: int = F(INT64, "15+", default=-1)


class FetchPartition(Message):
    partition: int = F(INT32)
    current_leader_epoch: int = F(INT32, "9+", default=-1)
    fetch_offset: int = F(INT64)
    last_fetched_epoch: int = F(INT32, "12+", default=-1)
    log_start_offset: int = F(INT64, "5+", default=-1)
    partition_max_bytes: int = F(INT32)
    replica_directory_id: bytes = F(UUID, "17+", tag=0)
    high_watermark: int = F(INT64, "18+", tag=1, default=(1 << 63) - 1)


class FetchTopic(Message):
    topic: str = F(STRING, "0-12")
    topic_id: bytes = F(UUID, "13+")
    partitions: list[FetchPartition] = F(array(FetchPartition))


class ForgottenTopic(Message):
    topic: str = F(STRING, "7-12")
    topic_id: bytes = F(UUID, "13+")
    partitions: list[int] = F(array(INT32), "7+")


class FetchRequest(Message):
    cluster_id: str | None = F(STRING, "12+", tag=0, null="12+", default=None)
    replica_id: int = F(INT32, "0-14", default=-1)
    replica_state: ReplicaState | None = F(ReplicaState, "15+", tag=1)
    max_wait_ms: int = F(INT32)
    min_bytes: int = F(INT32)
    max_bytes: int = F(INT32, "3+", default=(1 << 31) - 1)
    isolation_level: int = F(INT8, "4+")
    session_id: int = F(INT32, "7+")
    session_epoch: int = F(INT32, "7+", default=-1)
    topics: list[FetchTopic] = F(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = F(array(ForgottenTopic), "7+")
    rack_id: str = F(STRING, "11+")


class FetchEpochEndOffset(Message):
    epoch: int = F(INT32, "12+", default=-1)
    end_offset: int = F(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = F(INT32, "12+", default=-1)
    leader_epoch: int = F(INT32, "12+", default=-1)


class SnapshotId(Message):
    end_offset: int = F(INT64, default=-1)
    epoch: int = F(INT32, default=-1)


class AbortedTransaction(Message):
    producer_id: int = F(INT64, "4+")
    first_offset: int = F(INT64, "4+")


class FetchPartitionData(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    high_watermark: int = F(INT64)
    last_stable_offset: int = F(INT64, "4+", default=-1)
    log_start_offset: int = F(INT64, "5+", default=-1)
    diverging_epoch: FetchEpochEndOffset | None = F(FetchEpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = F(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = F(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = F(array(AbortedTransaction), "4+", null="4+")
    preferred_read_replica: int = F(INT32, "11+", default=-1)
    records: Slice | bytes | None = F(RECORDS, null="0+")


class FetchableTopicResponse(Message):
    topic: str = F(STRING, "0-12")
    topic_id: bytes = F(UUID, "13+")
    partitions: list[FetchPartitionData] = F(array(FetchPartitionData))


class NodeEndpoint(Message):
    node_id: int = F(INT32, "16+")
    host: str = F(STRING, "16+")
    port: int = F(INT32, "16+")
    rack: str | None = F(STRING, "16+", null="16+", default=None)


class FetchResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    error_code: int = F(INT16, "7+")
    session_id: int = F(INT32, "7+")
    responses: list[FetchableTopicResponse] = F(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = F(array(NodeEndpoint), "16+", tag=0)


FETCH = Api(FetchRequest, FetchResponse, key=1, versions="4-18", flexible=12, throttle=8)
