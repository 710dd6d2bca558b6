"""The APIs of share groups (KIP-932): those of their members, those that describe them, those that change offsets.

v0 of the APIs of members was an early access version of Kafka 4.0 and was removed. v2 of ShareFetch and
ShareAcknowledge adds the renewal of acquisition locks, v2 of ShareFetch the acquire mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.schema.admin import ConsumerGroupDescribeAssignment
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatAssignment
from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Api, F, Message, array
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

if TYPE_CHECKING:
    from kconsumer._core.wire import Slice

# --- ShareGroupHeartbeat ------------------------------------------------------------------------------------
# The member chooses its id. Epoch 0 joins the group, -1 leaves it. Null means "unchanged" in fields of later requests,
# and in the assignment of a response.


class ShareGroupHeartbeatRequest(Message):
    group_id: str = F(STRING)
    member_id: str = F(STRING)
    member_epoch: int = F(INT32)
    rack_id: str | None = F(STRING, null="0+", default=None)
    subscribed_topic_names: list[str] | None = F(array(STRING), null="0+", default=None)


class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    member_id: str | None = F(STRING, null="0+", default=None)
    member_epoch: int = F(INT32)
    heartbeat_interval_ms: int = F(INT32)
    assignment: ConsumerGroupHeartbeatAssignment | None = F(ConsumerGroupHeartbeatAssignment, null="0+", default=None)


SHARE_GROUP_HEARTBEAT = Api(
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, key=76, versions="1", flexible=0, throttle=0
)

# --- ShareGroupDescribe -------------------------------------------------------------------------------------


class ShareGroupDescribeRequest(Message):
    group_ids: list[str] = F(array(STRING))
    include_authorized_operations: bool = F(BOOL)


class ShareGroupDescribeMember(Message):
    member_id: str = F(STRING)
    rack_id: str | None = F(STRING, null="0+", default=None)
    member_epoch: int = F(INT32)
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    subscribed_topic_names: list[str] = F(array(STRING))
    assignment: ConsumerGroupDescribeAssignment = F(ConsumerGroupDescribeAssignment)


class ShareGroupDescribeGroup(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    group_id: str = F(STRING)
    group_state: str = F(STRING)
    group_epoch: int = F(INT32)
    assignment_epoch: int = F(INT32)
    assignor_name: str = F(STRING)
    members: list[ShareGroupDescribeMember] = F(array(ShareGroupDescribeMember))
    authorized_operations: int = F(INT32, default=NO_AUTHORIZED_OPERATIONS)


class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int = F(INT32)
    groups: list[ShareGroupDescribeGroup] = F(array(ShareGroupDescribeGroup))


SHARE_GROUP_DESCRIBE = Api(
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, key=77, versions="1", flexible=0, throttle=0
)

# --- ShareFetch ---------------------------------------------------------------------------------------------
# Acquires records, and acknowledges those that were acquired before: a share session remembers the partitions, as a
# fetch session does. An acknowledgement batch has one type for all of its offsets, or one type for each of them:
# 0 gap, 1 accept, 2 release, 3 reject, 4 renew.


class ShareFetchAcknowledgementBatch(Message):
    first_offset: int = F(INT64)
    last_offset: int = F(INT64)
    acknowledge_types: list[int] = F(array(INT8))


class ShareFetchPartition(Message):
    partition_index: int = F(INT32)
    partition_max_bytes: int = F(INT32, "0")
    acknowledgement_batches: list[ShareFetchAcknowledgementBatch] = F(array(ShareFetchAcknowledgementBatch))


class ShareFetchTopic(Message):
    topic_id: bytes = F(UUID)
    partitions: list[ShareFetchPartition] = F(array(ShareFetchPartition))


class ShareForgottenTopic(Message):
    topic_id: bytes = F(UUID)
    partitions: list[int] = F(array(INT32))


class ShareFetchRequest(Message):
    group_id: str | None = F(STRING, null="0+", default=None)
    member_id: str | None = F(STRING, null="0+")
    share_session_epoch: int = F(INT32)
    max_wait_ms: int = F(INT32)
    min_bytes: int = F(INT32)
    max_bytes: int = F(INT32, default=(1 << 31) - 1)
    max_records: int = F(INT32, "1+")
    batch_size: int = F(INT32, "1+")
    share_acquire_mode: int = F(INT8, "2+")
    is_renew_ack: bool = F(BOOL, "2+")
    topics: list[ShareFetchTopic] = F(array(ShareFetchTopic))
    forgotten_topics_data: list[ShareForgottenTopic] = F(array(ShareForgottenTopic))


class ShareLeaderIdAndEpoch(Message):
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32)


class AcquiredRecords(Message):
    first_offset: int = F(INT64)
    last_offset: int = F(INT64)
    delivery_count: int = F(INT16)


class ShareFetchPartitionData(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    acknowledge_error_code: int = F(INT16)
    acknowledge_error_message: str | None = F(STRING, null="0+", default=None)
    current_leader: ShareLeaderIdAndEpoch = F(ShareLeaderIdAndEpoch)
    records: Slice | bytes | None = F(RECORDS, null="0")
    acquired_records: list[AcquiredRecords] = F(array(AcquiredRecords))


class ShareFetchableTopicResponse(Message):
    topic_id: bytes = F(UUID)
    partitions: list[ShareFetchPartitionData] = F(array(ShareFetchPartitionData))


class ShareNodeEndpoint(Message):
    node_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(INT32)
    rack: str | None = F(STRING, null="0+", default=None)


class ShareFetchResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    acquisition_lock_timeout_ms: int = F(INT32, "1+")
    responses: list[ShareFetchableTopicResponse] = F(array(ShareFetchableTopicResponse))
    node_endpoints: list[ShareNodeEndpoint] = F(array(ShareNodeEndpoint))


SHARE_FETCH = Api(ShareFetchRequest, ShareFetchResponse, key=78, versions="1-2", flexible=0, throttle=0)

# --- ShareAcknowledge ---------------------------------------------------------------------------------------
# Acknowledges records without fetching, in the share session of ShareFetch.


class ShareAcknowledgementBatch(Message):
    first_offset: int = F(INT64)
    last_offset: int = F(INT64)
    acknowledge_types: list[int] = F(array(INT8))


class ShareAcknowledgePartition(Message):
    partition_index: int = F(INT32)
    acknowledgement_batches: list[ShareAcknowledgementBatch] = F(array(ShareAcknowledgementBatch))


class ShareAcknowledgeTopic(Message):
    topic_id: bytes = F(UUID)
    partitions: list[ShareAcknowledgePartition] = F(array(ShareAcknowledgePartition))


class ShareAcknowledgeRequest(Message):
    group_id: str | None = F(STRING, null="0+", default=None)
    member_id: str | None = F(STRING, null="0+")
    share_session_epoch: int = F(INT32)
    is_renew_ack: bool = F(BOOL, "2+")
    topics: list[ShareAcknowledgeTopic] = F(array(ShareAcknowledgeTopic))


class ShareAcknowledgePartitionData(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    current_leader: ShareLeaderIdAndEpoch = F(ShareLeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Message):
    topic_id: bytes = F(UUID)
    partitions: list[ShareAcknowledgePartitionData] = F(array(ShareAcknowledgePartitionData))


class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    acquisition_lock_timeout_ms: int = F(INT32, "2+")
    responses: list[ShareAcknowledgeTopicResponse] = F(array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[ShareNodeEndpoint] = F(array(ShareNodeEndpoint))


SHARE_ACKNOWLEDGE = Api(
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, key=79, versions="1-2", flexible=0, throttle=0
)

# --- DescribeShareGroupOffsets ------------------------------------------------------------------------------
# Returns for each partition the first offset that may not have been processed yet. v1 adds the lag, which is the number
# of records from there on (KIP-1226). Null in place of the list of topics means all topics.


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = F(STRING)
    partitions: list[int] = F(array(INT32))


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = F(STRING)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = F(
        array(DescribeShareGroupOffsetsRequestTopic), null="0+"
    )


class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = F(array(DescribeShareGroupOffsetsRequestGroup))


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int = F(INT32)
    start_offset: int = F(INT64)
    leader_epoch: int = F(INT32)
    lag: int = F(INT64, "1+", default=-1)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = F(STRING)
    topic_id: bytes = F(UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = F(array(DescribeShareGroupOffsetsResponsePartition))


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = F(STRING)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = F(array(DescribeShareGroupOffsetsResponseTopic))
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = F(INT32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = F(array(DescribeShareGroupOffsetsResponseGroup))


DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, key=90, versions="0-1", flexible=0, throttle=0
)

# --- AlterShareGroupOffsets ---------------------------------------------------------------------------------
# Sets start offsets of an empty group.


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int = F(INT32)
    start_offset: int = F(INT64)


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str = F(STRING)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = F(array(AlterShareGroupOffsetsRequestPartition))


class AlterShareGroupOffsetsRequest(Message):
    group_id: str = F(STRING)
    topics: list[AlterShareGroupOffsetsRequestTopic] = F(array(AlterShareGroupOffsetsRequestTopic))


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str = F(STRING)
    topic_id: bytes = F(UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = F(array(AlterShareGroupOffsetsResponsePartition))


class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = F(array(AlterShareGroupOffsetsResponseTopic))


ALTER_SHARE_GROUP_OFFSETS = Api(
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, key=91, versions="0", flexible=0, throttle=0
)

# --- DeleteShareGroupOffsets --------------------------------------------------------------------------------
# Removes whole topics from an empty group.


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = F(STRING)


class DeleteShareGroupOffsetsRequest(Message):
    group_id: str = F(STRING)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = F(array(DeleteShareGroupOffsetsRequestTopic))


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = F(STRING)
    topic_id: bytes = F(UUID)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = F(array(DeleteShareGroupOffsetsResponseTopic))


DELETE_SHARE_GROUP_OFFSETS = Api(
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, key=92, versions="0", flexible=0, throttle=0
)
