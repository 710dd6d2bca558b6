# Written by `python -m kconsumer.schema.stubs`; the tables are in offsets.py.

from kconsumer.schema.dsl import Api, Message

class OffsetCommitRequestPartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        committed_metadata: str | None = ...,
    ) -> None: ...

class OffsetCommitRequestTopic(Message):
    name: str
    topic_id: bytes
    partitions: list[OffsetCommitRequestPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partitions: list[OffsetCommitRequestPartition] = ...,
    ) -> None: ...

class OffsetCommitRequest(Message):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: list[OffsetCommitRequestTopic] = ...,
    ) -> None: ...

class OffsetCommitResponsePartition(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetCommitResponseTopic(Message):
    name: str
    topic_id: bytes
    partitions: list[OffsetCommitResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partitions: list[OffsetCommitResponsePartition] = ...,
    ) -> None: ...

class OffsetCommitResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetCommitResponseTopic] = ...,
    ) -> None: ...

OFFSET_COMMIT: Api

class OffsetFetchRequestTopic(Message):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class OffsetFetchRequestTopics(Message):
    name: str
    topic_id: bytes
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class OffsetFetchRequestGroup(Message):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestTopics] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        topics: list[OffsetFetchRequestTopics] | None = ...,
    ) -> None: ...

class OffsetFetchRequest(Message):
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
    ) -> None: ...

class OffsetFetchResponsePartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopic(Message):
    name: str
    partitions: list[OffsetFetchResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetFetchResponsePartition] = ...,
    ) -> None: ...

class OffsetFetchResponsePartitions(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopics(Message):
    name: str
    topic_id: bytes
    partitions: list[OffsetFetchResponsePartitions]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partitions: list[OffsetFetchResponsePartitions] = ...,
    ) -> None: ...

class OffsetFetchResponseGroup(Message):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: int
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetFetchResponseTopics] = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: list[OffsetFetchResponseGroup] = ...,
    ) -> None: ...

OFFSET_FETCH: Api

class ListOffsetsPartition(Message):
    partition_index: int
    current_leader_epoch: int
    timestamp: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        current_leader_epoch: int = ...,
        timestamp: int = ...,
    ) -> None: ...

class ListOffsetsTopic(Message):
    name: str
    partitions: list[ListOffsetsPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[ListOffsetsPartition] = ...,
    ) -> None: ...

class ListOffsetsRequest(Message):
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: list[ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class ListOffsetsPartitionResponse(Message):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        timestamp: int = ...,
        offset: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class ListOffsetsTopicResponse(Message):
    name: str
    partitions: list[ListOffsetsPartitionResponse]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[ListOffsetsPartitionResponse] = ...,
    ) -> None: ...

class ListOffsetsResponse(Message):
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[ListOffsetsTopicResponse] = ...,
    ) -> None: ...

LIST_OFFSETS: Api

class OffsetForLeaderPartition(Message):
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    def __init__(
        self,
        *,
        partition: int = ...,
        current_leader_epoch: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class OffsetForLeaderTopic(Message):
    topic: str
    partitions: list[OffsetForLeaderPartition]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[OffsetForLeaderPartition] = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    replica_id: int
    topics: list[OffsetForLeaderTopic]
    def __init__(
        self,
        *,
        replica_id: int = ...,
        topics: list[OffsetForLeaderTopic] = ...,
    ) -> None: ...

class EpochEndOffset(Message):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        partition: int = ...,
        leader_epoch: int = ...,
        end_offset: int = ...,
    ) -> None: ...

class OffsetForLeaderTopicResult(Message):
    topic: str
    partitions: list[EpochEndOffset]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[EpochEndOffset] = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetForLeaderTopicResult] = ...,
    ) -> None: ...

OFFSET_FOR_LEADER_EPOCH: Api
