# Written by `python -m kconsumer.schema.stubs`; the tables are in admin.py.

from kconsumer.schema.dsl import Api, Message

NO_AUTHORIZED_OPERATIONS: int

class ListGroupsRequest(Message):
    states_filter: list[str]
    types_filter: list[str]
    def __init__(
        self,
        *,
        states_filter: list[str] = ...,
        types_filter: list[str] = ...,
    ) -> None: ...

class ListedGroup(Message):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        protocol_type: str = ...,
        group_state: str = ...,
        group_type: str = ...,
    ) -> None: ...

class ListGroupsResponse(Message):
    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: list[ListedGroup] = ...,
    ) -> None: ...

LIST_GROUPS: Api

class DescribeGroupsRequest(Message):
    groups: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        groups: list[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class DescribedGroupMember(Message):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
    def __init__(
        self,
        *,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        member_metadata: bytes = ...,
        member_assignment: bytes = ...,
    ) -> None: ...

class DescribedGroup(Message):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        group_id: str = ...,
        group_state: str = ...,
        protocol_type: str = ...,
        protocol_data: str = ...,
        members: list[DescribedGroupMember] = ...,
        authorized_operations: int = ...,
    ) -> None: ...

class DescribeGroupsResponse(Message):
    throttle_time_ms: int
    groups: list[DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[DescribedGroup] = ...,
    ) -> None: ...

DESCRIBE_GROUPS: Api

class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class ConsumerGroupDescribeTopicPartitions(Message):
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

class ConsumerGroupDescribeAssignment(Message):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions]
    def __init__(
        self,
        *,
        topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = ...,
    ) -> None: ...

class ConsumerGroupDescribeMember(Message):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeAssignment
    target_assignment: ConsumerGroupDescribeAssignment
    member_type: int
    def __init__(
        self,
        *,
        member_id: str = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        member_epoch: int = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = ...,
        assignment: ConsumerGroupDescribeAssignment = ...,
        target_assignment: ConsumerGroupDescribeAssignment = ...,
        member_type: int = ...,
    ) -> None: ...

class ConsumerGroupDescribeGroup(Message):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[ConsumerGroupDescribeMember]
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
        members: list[ConsumerGroupDescribeMember] = ...,
        authorized_operations: int = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[ConsumerGroupDescribeGroup] = ...,
    ) -> None: ...

CONSUMER_GROUP_DESCRIBE: Api
