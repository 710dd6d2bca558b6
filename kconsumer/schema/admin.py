"""The APIs for groups of which the client is not a member: ListGroups, DescribeGroups, ConsumerGroupDescribe."""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, F, api, array, struct
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

# --- ListGroups ---------------------------------------------------------------------------------------------
# Each broker lists the groups that it coordinates. v4 adds states (KIP-518), v5 types (KIP-848).

ListGroupsRequest = struct(
    "ListGroupsRequest",
    F("states_filter", array(STRING), "4+"),
    F("types_filter", array(STRING), "5+"),
)

ListedGroup = struct(
    "ListedGroup",
    F("group_id", STRING),
    F("protocol_type", STRING),
    F("group_state", STRING, "4+"),
    F("group_type", STRING, "5+"),
)

ListGroupsResponse = struct(
    "ListGroupsResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("error_code", INT16),
    F("groups", array(ListedGroup)),
)

LIST_GROUPS = api(
    "ListGroups",
    key=16,
    versions="0-5",
    flexible=3,
    throttle=2,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
)

# --- DescribeGroups -----------------------------------------------------------------------------------------
# Classic groups. v3 adds authorized operations (KIP-430), v4 static members (KIP-345), v6 an error and a message for
# a group that does not exist (KIP-1043).

DescribeGroupsRequest = struct(
    "DescribeGroupsRequest",
    F("groups", array(STRING)),
    F("include_authorized_operations", BOOL, "3+"),
)

DescribedGroupMember = struct(
    "DescribedGroupMember",
    F("member_id", STRING),
    F("group_instance_id", STRING, "4+", null="4+", default=None),
    F("client_id", STRING),
    F("client_host", STRING),
    F("member_metadata", BYTES),
    F("member_assignment", BYTES),
)

DescribedGroup = struct(
    "DescribedGroup",
    F("error_code", INT16),
    F("error_message", STRING, "6+", null="6+", default=None),
    F("group_id", STRING),
    F("group_state", STRING),
    F("protocol_type", STRING),
    F("protocol_data", STRING),
    F("members", array(DescribedGroupMember)),
    F("authorized_operations", INT32, "3+", default=NO_AUTHORIZED_OPERATIONS),
)

DescribeGroupsResponse = struct(
    "DescribeGroupsResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("groups", array(DescribedGroup)),
)

DESCRIBE_GROUPS = api(
    "DescribeGroups",
    key=15,
    versions="0-6",
    flexible=5,
    throttle=2,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)

# --- ConsumerGroupDescribe ----------------------------------------------------------------------------------
# Groups that use the consumer group protocol of KIP-848. v1 adds the type of each member, because some may still use
# the classic protocol (KIP-1099).

ConsumerGroupDescribeRequest = struct(
    "ConsumerGroupDescribeRequest",
    F("group_ids", array(STRING)),
    F("include_authorized_operations", BOOL),
)

ConsumerGroupDescribeTopicPartitions = struct(
    "ConsumerGroupDescribeTopicPartitions",
    F("topic_id", UUID),
    F("topic_name", STRING),
    F("partitions", array(INT32)),
)

ConsumerGroupDescribeAssignment = struct(
    "ConsumerGroupDescribeAssignment",
    F("topic_partitions", array(ConsumerGroupDescribeTopicPartitions)),
)

ConsumerGroupDescribeMember = struct(
    "ConsumerGroupDescribeMember",
    F("member_id", STRING),
    F("instance_id", STRING, null="0+", default=None),
    F("rack_id", STRING, null="0+", default=None),
    F("member_epoch", INT32),
    F("client_id", STRING),
    F("client_host", STRING),
    F("subscribed_topic_names", array(STRING)),
    F("subscribed_topic_regex", STRING, null="0+", default=None),
    F("assignment", ConsumerGroupDescribeAssignment),
    F("target_assignment", ConsumerGroupDescribeAssignment),
    F("member_type", INT8, "1+", default=-1),  # -1 unknown, 0 classic, 1 consumer
)

ConsumerGroupDescribeGroup = struct(
    "ConsumerGroupDescribeGroup",
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("group_id", STRING),
    F("group_state", STRING),
    F("group_epoch", INT32),
    F("assignment_epoch", INT32),
    F("assignor_name", STRING),
    F("members", array(ConsumerGroupDescribeMember)),
    F("authorized_operations", INT32, default=NO_AUTHORIZED_OPERATIONS),
)

ConsumerGroupDescribeResponse = struct(
    "ConsumerGroupDescribeResponse",
    F("throttle_time_ms", INT32),
    F("groups", array(ConsumerGroupDescribeGroup)),
)

CONSUMER_GROUP_DESCRIBE = api(
    "ConsumerGroupDescribe",
    key=69,
    versions="0-1",
    flexible=0,
    throttle=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
