# Written by `python -m kconsumer.schema.stubs`; the tables are in share_group.py.

from kconsumer._core.wire import Slice
from kconsumer.schema.dsl import Api, Message

NO_AUTHORIZED_OPERATIONS: int

class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        rack_id: str | None = ...,
        subscribed_topic_names: list[str] | None = ...,
    ) -> None: ...

class ShareGroupHeartbeatTopicPartitions(Message):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ShareGroupHeartbeatAssignment(Message):
    topic_partitions: list[ShareGroupHeartbeatTopicPartitions]
    def __init__(
        self,
        *,
        topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = ...,
    ) -> None: ...

class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatAssignment | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ShareGroupHeartbeatAssignment | None = ...,
    ) -> None: ...

SHARE_GROUP_HEARTBEAT: Api

class ShareGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class ShareGroupDescribeTopicPartitions(Message):
    topic_id: bytes
    topic_name: str
    partitions: list[int]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        topic_name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ShareGroupDescribeAssignment(Message):
    topic_partitions: list[ShareGroupDescribeTopicPartitions]
    def __init__(
        self,
        *,
        topic_partitions: list[ShareGroupDescribeTopicPartitions] = ...,
    ) -> None: ...

class ShareGroupDescribeMember(Message):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: ShareGroupDescribeAssignment
    def __init__(
        self,
        *,
        member_id: str = ...,
        rack_id: str | None = ...,
        member_epoch: int = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        assignment: ShareGroupDescribeAssignment = ...,
    ) -> None: ...

class ShareGroupDescribeGroup(Message):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[ShareGroupDescribeMember]
    authorized_operations: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        group_id: str = ...,
        group_state: str = ...,
        group_epoch: int = ...,
        assignment_epoch: int = ...,
        assignor_name: str = ...,
        members: list[ShareGroupDescribeMember] = ...,
        authorized_operations: int = ...,
    ) -> None: ...

class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int
    groups: list[ShareGroupDescribeGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[ShareGroupDescribeGroup] = ...,
    ) -> None: ...

SHARE_GROUP_DESCRIBE: Api

class ShareFetchAcknowledgementBatch(Message):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]
    def __init__(
        self,
        *,
        first_offset: int = ...,
        last_offset: int = ...,
        acknowledge_types: list[int] = ...,
    ) -> None: ...

class ShareFetchPartition(Message):
    partition_index: int
    partition_max_bytes: int
    acknowledgement_batches: list[ShareFetchAcknowledgementBatch]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        partition_max_bytes: int = ...,
        acknowledgement_batches: list[ShareFetchAcknowledgementBatch] = ...,
    ) -> None: ...

class ShareFetchTopic(Message):
    topic_id: bytes
    partitions: list[ShareFetchPartition]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[ShareFetchPartition] = ...,
    ) -> None: ...

class ShareForgottenTopic(Message):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ShareFetchRequest(Message):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[ShareFetchTopic]
    forgotten_topics_data: list[ShareForgottenTopic]
    def __init__(
        self,
        *,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        max_records: int = ...,
        batch_size: int = ...,
        share_acquire_mode: int = ...,
        is_renew_ack: bool = ...,
        topics: list[ShareFetchTopic] = ...,
        forgotten_topics_data: list[ShareForgottenTopic] = ...,
    ) -> None: ...

class ShareLeaderIdAndEpoch(Message):
    leader_id: int
    leader_epoch: int
    def __init__(
        self,
        *,
        leader_id: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class AcquiredRecords(Message):
    first_offset: int
    last_offset: int
    delivery_count: int
    def __init__(
        self,
        *,
        first_offset: int = ...,
        last_offset: int = ...,
        delivery_count: int = ...,
    ) -> None: ...

class ShareFetchPartitionData(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: ShareLeaderIdAndEpoch
    records: Slice | bytes | None
    acquired_records: list[AcquiredRecords]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acknowledge_error_code: int = ...,
        acknowledge_error_message: str | None = ...,
        current_leader: ShareLeaderIdAndEpoch = ...,
        records: Slice | bytes | None = ...,
        acquired_records: list[AcquiredRecords] = ...,
    ) -> None: ...

class ShareFetchableTopicResponse(Message):
    topic_id: bytes
    partitions: list[ShareFetchPartitionData]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[ShareFetchPartitionData] = ...,
    ) -> None: ...

class ShareNodeEndpoint(Message):
    node_id: int
    host: str
    port: int
    rack: str | None
    def __init__(
        self,
        *,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        rack: str | None = ...,
    ) -> None: ...

class ShareFetchResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[ShareNodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareFetchableTopicResponse] = ...,
        node_endpoints: list[ShareNodeEndpoint] = ...,
    ) -> None: ...

SHARE_FETCH: Api

class ShareAcknowledgementBatch(Message):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]
    def __init__(
        self,
        *,
        first_offset: int = ...,
        last_offset: int = ...,
        acknowledge_types: list[int] = ...,
    ) -> None: ...

class ShareAcknowledgePartition(Message):
    partition_index: int
    acknowledgement_batches: list[ShareAcknowledgementBatch]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        acknowledgement_batches: list[ShareAcknowledgementBatch] = ...,
    ) -> None: ...

class ShareAcknowledgeTopic(Message):
    topic_id: bytes
    partitions: list[ShareAcknowledgePartition]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[ShareAcknowledgePartition] = ...,
    ) -> None: ...

class ShareAcknowledgeRequest(Message):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[ShareAcknowledgeTopic]
    def __init__(
        self,
        *,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        is_renew_ack: bool = ...,
        topics: list[ShareAcknowledgeTopic] = ...,
    ) -> None: ...

class ShareAcknowledgePartitionData(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: ShareLeaderIdAndEpoch
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        current_leader: ShareLeaderIdAndEpoch = ...,
    ) -> None: ...

class ShareAcknowledgeTopicResponse(Message):
    topic_id: bytes
    partitions: list[ShareAcknowledgePartitionData]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[ShareAcknowledgePartitionData] = ...,
    ) -> None: ...

class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[ShareNodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareAcknowledgeTopicResponse] = ...,
        node_endpoints: list[ShareNodeEndpoint] = ...,
    ) -> None: ...

SHARE_ACKNOWLEDGE: Api

class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    partitions: list[int]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup]
    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequestGroup] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        start_offset: int = ...,
        leader_epoch: int = ...,
        lag: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: bytes
    partitions: list[DescribeShareGroupOffsetsResponsePartition]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        topic_id: bytes = ...,
        partitions: list[DescribeShareGroupOffsetsResponsePartition] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[DescribeShareGroupOffsetsResponseTopic] = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[DescribeShareGroupOffsetsResponseGroup] = ...,
    ) -> None: ...

DESCRIBE_SHARE_GROUP_OFFSETS: Api

class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int
    start_offset: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        start_offset: int = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        partitions: list[AlterShareGroupOffsetsRequestPartition] = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[AlterShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: bytes
    partitions: list[AlterShareGroupOffsetsResponsePartition]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        topic_id: bytes = ...,
        partitions: list[AlterShareGroupOffsetsResponsePartition] = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[AlterShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[AlterShareGroupOffsetsResponseTopic] = ...,
    ) -> None: ...

ALTER_SHARE_GROUP_OFFSETS: Api

class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    def __init__(
        self,
        *,
        topic_name: str = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[DeleteShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        topic_name: str = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[DeleteShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[DeleteShareGroupOffsetsResponseTopic] = ...,
    ) -> None: ...

DELETE_SHARE_GROUP_OFFSETS: Api
