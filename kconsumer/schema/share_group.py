"""The APIs of share groups (KIP-932): those of their members, those that describe them, those that change offsets.

v0 of the APIs of members was an early access version of Kafka 4.0 and was removed. v2 of ShareFetch and
ShareAcknowledge adds the renewal of acquisition locks, v2 of ShareFetch the acquire mode.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, F, api, array, struct
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

# --- ShareGroupHeartbeat ------------------------------------------------------------------------------------
# The member chooses its id. Epoch 0 joins the group, -1 leaves it. Null means "unchanged" in fields of later requests,
# and in the assignment of a response.

ShareGroupHeartbeatRequest = struct(
    "ShareGroupHeartbeatRequest",
    F("group_id", STRING),
    F("member_id", STRING),
    F("member_epoch", INT32),
    F("rack_id", STRING, null="0+", default=None),
    F("subscribed_topic_names", array(STRING), null="0+", default=None),
)

ShareGroupHeartbeatTopicPartitions = struct(
    "ShareGroupHeartbeatTopicPartitions",
    F("topic_id", UUID),
    F("partitions", array(INT32)),
)

ShareGroupHeartbeatAssignment = struct(
    "ShareGroupHeartbeatAssignment",
    F("topic_partitions", array(ShareGroupHeartbeatTopicPartitions)),
)

ShareGroupHeartbeatResponse = struct(
    "ShareGroupHeartbeatResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("member_id", STRING, null="0+", default=None),
    F("member_epoch", INT32),
    F("heartbeat_interval_ms", INT32),
    F("assignment", ShareGroupHeartbeatAssignment, null="0+", default=None),
)

SHARE_GROUP_HEARTBEAT = api(
    "ShareGroupHeartbeat",
    key=76,
    versions="1",
    flexible=0,
    throttle=0,
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
)

# --- ShareGroupDescribe -------------------------------------------------------------------------------------

ShareGroupDescribeRequest = struct(
    "ShareGroupDescribeRequest",
    F("group_ids", array(STRING)),
    F("include_authorized_operations", BOOL),
)

ShareGroupDescribeTopicPartitions = struct(
    "ShareGroupDescribeTopicPartitions",
    F("topic_id", UUID),
    F("topic_name", STRING),
    F("partitions", array(INT32)),
)

ShareGroupDescribeAssignment = struct(
    "ShareGroupDescribeAssignment",
    F("topic_partitions", array(ShareGroupDescribeTopicPartitions)),
)

ShareGroupDescribeMember = struct(
    "ShareGroupDescribeMember",
    F("member_id", STRING),
    F("rack_id", STRING, null="0+", default=None),
    F("member_epoch", INT32),
    F("client_id", STRING),
    F("client_host", STRING),
    F("subscribed_topic_names", array(STRING)),
    F("assignment", ShareGroupDescribeAssignment),
)

ShareGroupDescribeGroup = struct(
    "ShareGroupDescribeGroup",
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("group_id", STRING),
    F("group_state", STRING),
    F("group_epoch", INT32),
    F("assignment_epoch", INT32),
    F("assignor_name", STRING),
    F("members", array(ShareGroupDescribeMember)),
    F("authorized_operations", INT32, default=NO_AUTHORIZED_OPERATIONS),
)

ShareGroupDescribeResponse = struct(
    "ShareGroupDescribeResponse",
    F("throttle_time_ms", INT32),
    F("groups", array(ShareGroupDescribeGroup)),
)

SHARE_GROUP_DESCRIBE = api(
    "ShareGroupDescribe",
    key=77,
    versions="1",
    flexible=0,
    throttle=0,
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
)

# --- ShareFetch ---------------------------------------------------------------------------------------------
# Acquires records, and acknowledges those that were acquired before: a share session remembers the partitions, as a
# fetch session does. An acknowledgement batch has one type for all of its offsets, or one type for each of them:
# 0 gap, 1 accept, 2 release, 3 reject, 4 renew.

ShareFetchAcknowledgementBatch = struct(
    "ShareFetchAcknowledgementBatch",
    F("first_offset", INT64),
    F("last_offset", INT64),
    F("acknowledge_types", array(INT8)),
)

ShareFetchPartition = struct(
    "ShareFetchPartition",
    F("partition_index", INT32),
    F("partition_max_bytes", INT32, "0"),
    F("acknowledgement_batches", array(ShareFetchAcknowledgementBatch)),
)

ShareFetchTopic = struct(
    "ShareFetchTopic",
    F("topic_id", UUID),
    F("partitions", array(ShareFetchPartition)),
)

ShareForgottenTopic = struct(
    "ShareForgottenTopic",
    F("topic_id", UUID),
    F("partitions", array(INT32)),
)

ShareFetchRequest = struct(
    "ShareFetchRequest",
    F("group_id", STRING, null="0+", default=None),
    F("member_id", STRING, null="0+"),
    F("share_session_epoch", INT32),
    F("max_wait_ms", INT32),
    F("min_bytes", INT32),
    F("max_bytes", INT32, default=(1 << 31) - 1),
    F("max_records", INT32, "1+"),
    F("batch_size", INT32, "1+"),
    F("share_acquire_mode", INT8, "2+"),
    F("is_renew_ack", BOOL, "2+"),
    F("topics", array(ShareFetchTopic)),
    F("forgotten_topics_data", array(ShareForgottenTopic)),
)

ShareLeaderIdAndEpoch = struct(
    "ShareLeaderIdAndEpoch",
    F("leader_id", INT32),
    F("leader_epoch", INT32),
)

AcquiredRecords = struct(
    "AcquiredRecords",
    F("first_offset", INT64),
    F("last_offset", INT64),
    F("delivery_count", INT16),
)

ShareFetchPartitionData = struct(
    "ShareFetchPartitionData",
    F("partition_index", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("acknowledge_error_code", INT16),
    F("acknowledge_error_message", STRING, null="0+", default=None),
    F("current_leader", ShareLeaderIdAndEpoch),
    F("records", RECORDS, null="0"),
    F("acquired_records", array(AcquiredRecords)),
)

ShareFetchableTopicResponse = struct(
    "ShareFetchableTopicResponse",
    F("topic_id", UUID),
    F("partitions", array(ShareFetchPartitionData)),
)

ShareNodeEndpoint = struct(
    "ShareNodeEndpoint",
    F("node_id", INT32),
    F("host", STRING),
    F("port", INT32),
    F("rack", STRING, null="0+", default=None),
)

ShareFetchResponse = struct(
    "ShareFetchResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("acquisition_lock_timeout_ms", INT32, "1+"),
    F("responses", array(ShareFetchableTopicResponse)),
    F("node_endpoints", array(ShareNodeEndpoint)),
)

SHARE_FETCH = api(
    "ShareFetch",
    key=78,
    versions="1-2",
    flexible=0,
    throttle=0,
    request=ShareFetchRequest,
    response=ShareFetchResponse,
)

# --- ShareAcknowledge ---------------------------------------------------------------------------------------
# Acknowledges records without fetching, in the share session of ShareFetch.

ShareAcknowledgementBatch = struct(
    "ShareAcknowledgementBatch",
    F("first_offset", INT64),
    F("last_offset", INT64),
    F("acknowledge_types", array(INT8)),
)

ShareAcknowledgePartition = struct(
    "ShareAcknowledgePartition",
    F("partition_index", INT32),
    F("acknowledgement_batches", array(ShareAcknowledgementBatch)),
)

ShareAcknowledgeTopic = struct(
    "ShareAcknowledgeTopic",
    F("topic_id", UUID),
    F("partitions", array(ShareAcknowledgePartition)),
)

ShareAcknowledgeRequest = struct(
    "ShareAcknowledgeRequest",
    F("group_id", STRING, null="0+", default=None),
    F("member_id", STRING, null="0+"),
    F("share_session_epoch", INT32),
    F("is_renew_ack", BOOL, "2+"),
    F("topics", array(ShareAcknowledgeTopic)),
)

ShareAcknowledgePartitionData = struct(
    "ShareAcknowledgePartitionData",
    F("partition_index", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("current_leader", ShareLeaderIdAndEpoch),
)

ShareAcknowledgeTopicResponse = struct(
    "ShareAcknowledgeTopicResponse",
    F("topic_id", UUID),
    F("partitions", array(ShareAcknowledgePartitionData)),
)

ShareAcknowledgeResponse = struct(
    "ShareAcknowledgeResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("acquisition_lock_timeout_ms", INT32, "2+"),
    F("responses", array(ShareAcknowledgeTopicResponse)),
    F("node_endpoints", array(ShareNodeEndpoint)),
)

SHARE_ACKNOWLEDGE = api(
    "ShareAcknowledge",
    key=79,
    versions="1-2",
    flexible=0,
    throttle=0,
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
)

# --- DescribeShareGroupOffsets ------------------------------------------------------------------------------
# Returns for each partition the first offset that may not have been processed yet. v1 adds the lag, which is the number
# of records from there on (KIP-1226). Null in place of the list of topics means all topics.

DescribeShareGroupOffsetsRequestTopic = struct(
    "DescribeShareGroupOffsetsRequestTopic",
    F("topic_name", STRING),
    F("partitions", array(INT32)),
)

DescribeShareGroupOffsetsRequestGroup = struct(
    "DescribeShareGroupOffsetsRequestGroup",
    F("group_id", STRING),
    F("topics", array(DescribeShareGroupOffsetsRequestTopic), null="0+"),
)

DescribeShareGroupOffsetsRequest = struct(
    "DescribeShareGroupOffsetsRequest",
    F("groups", array(DescribeShareGroupOffsetsRequestGroup)),
)

DescribeShareGroupOffsetsResponsePartition = struct(
    "DescribeShareGroupOffsetsResponsePartition",
    F("partition_index", INT32),
    F("start_offset", INT64),
    F("leader_epoch", INT32),
    F("lag", INT64, "1+", default=-1),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
)

DescribeShareGroupOffsetsResponseTopic = struct(
    "DescribeShareGroupOffsetsResponseTopic",
    F("topic_name", STRING),
    F("topic_id", UUID),
    F("partitions", array(DescribeShareGroupOffsetsResponsePartition)),
)

DescribeShareGroupOffsetsResponseGroup = struct(
    "DescribeShareGroupOffsetsResponseGroup",
    F("group_id", STRING),
    F("topics", array(DescribeShareGroupOffsetsResponseTopic)),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
)

DescribeShareGroupOffsetsResponse = struct(
    "DescribeShareGroupOffsetsResponse",
    F("throttle_time_ms", INT32),
    F("groups", array(DescribeShareGroupOffsetsResponseGroup)),
)

DESCRIBE_SHARE_GROUP_OFFSETS = api(
    "DescribeShareGroupOffsets",
    key=90,
    versions="0-1",
    flexible=0,
    throttle=0,
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
)

# --- AlterShareGroupOffsets ---------------------------------------------------------------------------------
# Sets start offsets of an empty group.

AlterShareGroupOffsetsRequestPartition = struct(
    "AlterShareGroupOffsetsRequestPartition",
    F("partition_index", INT32),
    F("start_offset", INT64),
)

AlterShareGroupOffsetsRequestTopic = struct(
    "AlterShareGroupOffsetsRequestTopic",
    F("topic_name", STRING),
    F("partitions", array(AlterShareGroupOffsetsRequestPartition)),
)

AlterShareGroupOffsetsRequest = struct(
    "AlterShareGroupOffsetsRequest",
    F("group_id", STRING),
    F("topics", array(AlterShareGroupOffsetsRequestTopic)),
)

AlterShareGroupOffsetsResponsePartition = struct(
    "AlterShareGroupOffsetsResponsePartition",
    F("partition_index", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
)

AlterShareGroupOffsetsResponseTopic = struct(
    "AlterShareGroupOffsetsResponseTopic",
    F("topic_name", STRING),
    F("topic_id", UUID),
    F("partitions", array(AlterShareGroupOffsetsResponsePartition)),
)

AlterShareGroupOffsetsResponse = struct(
    "AlterShareGroupOffsetsResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("responses", array(AlterShareGroupOffsetsResponseTopic)),
)

ALTER_SHARE_GROUP_OFFSETS = api(
    "AlterShareGroupOffsets",
    key=91,
    versions="0",
    flexible=0,
    throttle=0,
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
)

# --- DeleteShareGroupOffsets --------------------------------------------------------------------------------
# Removes whole topics from an empty group.

DeleteShareGroupOffsetsRequestTopic = struct(
    "DeleteShareGroupOffsetsRequestTopic",
    F("topic_name", STRING),
)

DeleteShareGroupOffsetsRequest = struct(
    "DeleteShareGroupOffsetsRequest",
    F("group_id", STRING),
    F("topics", array(DeleteShareGroupOffsetsRequestTopic)),
)

DeleteShareGroupOffsetsResponseTopic = struct(
    "DeleteShareGroupOffsetsResponseTopic",
    F("topic_name", STRING),
    F("topic_id", UUID),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
)

DeleteShareGroupOffsetsResponse = struct(
    "DeleteShareGroupOffsetsResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("responses", array(DeleteShareGroupOffsetsResponseTopic)),
)

DELETE_SHARE_GROUP_OFFSETS = api(
    "DeleteShareGroupOffsets",
    key=92,
    versions="0",
    flexible=0,
    throttle=0,
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
)
