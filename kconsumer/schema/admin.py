"""The APIs for groups of which the client is not a member: ListGroups, DescribeGroups, ConsumerGroupDescribe."""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, Api, F, Message, array
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

# --- ListGroups ---------------------------------------------------------------------------------------------
# Each broker lists the groups that it coordinates. v4 adds states (KIP-518), v5 types (KIP-848).


class ListGroupsRequest(Message):
    states_filter: list[str] = F(array(STRING), "4+")
    types_filter: list[str] = F(array(STRING), "5+")


class ListedGroup(Message):
    group_id: str = F(STRING)
    protocol_type: str = F(STRING)
    group_state: str = F(STRING, "4+")
    group_type: str = F(STRING, "5+")


class ListGroupsResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    error_code: int = F(INT16)
    groups: list[ListedGroup] = F(array(ListedGroup))


LIST_GROUPS = Api(ListGroupsRequest, ListGroupsResponse, key=16, versions="0-5", flexible=3, throttle=2)

# --- DescribeGroups -----------------------------------------------------------------------------------------
# Classic groups. v3 adds authorized operations (KIP-430), v4 static members (KIP-345), v6 an error and a message for
# a group that does not exist (KIP-1043).


class DescribeGroupsRequest(Message):
    groups: list[str] = F(array(STRING))
    include_authorized_operations: bool = F(BOOL, "3+")


class DescribedGroupMember(Message):
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "4+", null="4+", default=None)
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    member_metadata: bytes = F(BYTES)
    member_assignment: bytes = F(BYTES)


class DescribedGroup(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "6+", null="6+", default=None)
    group_id: str = F(STRING)
    group_state: str = F(STRING)
    protocol_type: str = F(STRING)
    protocol_data: str = F(STRING)
    members: list[DescribedGroupMember] = F(array(DescribedGroupMember))
    authorized_operations: int = F(INT32, "3+", default=NO_AUTHORIZED_OPERATIONS)


class DescribeGroupsResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    groups: list[DescribedGroup] = F(array(DescribedGroup))


DESCRIBE_GROUPS = Api(DescribeGroupsRequest, DescribeGroupsResponse, key=15, versions="0-6", flexible=5, throttle=2)

# --- ConsumerGroupDescribe ----------------------------------------------------------------------------------
# Groups that use the consumer group protocol of KIP-848. v1 adds the type of each member, because some may still use
# the classic protocol (KIP-1099).


class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = F(array(STRING))
    include_authorized_operations: bool = F(BOOL)


class ConsumerGroupDescribeTopicPartitions(Message):
    topic_id: bytes = F(UUID)
    topic_name: str = F(STRING)
    partitions: list[int] = F(array(INT32))


class ConsumerGroupDescribeAssignment(Message):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = F(array(ConsumerGroupDescribeTopicPartitions))


class ConsumerGroupDescribeMember(Message):
    member_id: str = F(STRING)
    instance_id: str | None = F(STRING, null="0+", default=None)
    rack_id: str | None = F(STRING, null="0+", default=None)
    member_epoch: int = F(INT32)
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    subscribed_topic_names: list[str] = F(array(STRING))
    subscribed_topic_regex: str | None = F(STRING, null="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = F(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = F(ConsumerGroupDescribeAssignment)
    member_type: int = F(INT8, "1+", default=-1)  # -1 unknown, 0 classic, 1 consumer


class ConsumerGroupDescribeGroup(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    group_id: str = F(STRING)
    group_state: str = F(STRING)
    group_epoch: int = F(INT32)
    assignment_epoch: int = F(INT32)
    assignor_name: str = F(STRING)
    members: list[ConsumerGroupDescribeMember] = F(array(ConsumerGroupDescribeMember))
    authorized_operations: int = F(INT32, default=NO_AUTHORIZED_OPERATIONS)


class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = F(INT32)
    groups: list[ConsumerGroupDescribeGroup] = F(array(ConsumerGroupDescribeGroup))


CONSUMER_GROUP_DESCRIBE = Api(
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, key=69, versions="0-1", flexible=0, throttle=0
)
