# Written by `python -m kconsumer.schema.stubs`; the tables are in share_group.py.

from kconsumer.schema.dsl import Api, Message

NO_AUTHORIZED_OPERATIONS: int

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
