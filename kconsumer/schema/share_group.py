"""The APIs that describe share groups (KIP-932): ShareGroupDescribe, DescribeShareGroupOffsets."""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT16, INT32, INT64, STRING, UUID, F, api, array, struct
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

# --- ShareGroupDescribe -------------------------------------------------------------------------------------
# v0 was an early access version of Kafka 4.0 and was removed.

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
