# Written by `python -m kconsumer.schema.stubs`; the tables are in group_deletion.py.

from kconsumer.schema.dsl import Api, Message

class DeleteGroupsRequest(Message):
    groups_names: list[str]
    def __init__(
        self,
        *,
        groups_names: list[str] = ...,
    ) -> None: ...

class DeletableGroupResult(Message):
    group_id: str
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DeleteGroupsResponse(Message):
    throttle_time_ms: int
    results: list[DeletableGroupResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[DeletableGroupResult] = ...,
    ) -> None: ...

DELETE_GROUPS: Api

class OffsetDeleteRequestPartition(Message):
    partition_index: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
    ) -> None: ...

class OffsetDeleteRequestTopic(Message):
    name: str
    partitions: list[OffsetDeleteRequestPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetDeleteRequestPartition] = ...,
    ) -> None: ...

class OffsetDeleteRequest(Message):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetDeleteRequestTopic] = ...,
    ) -> None: ...

class OffsetDeleteResponsePartition(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetDeleteResponseTopic(Message):
    name: str
    partitions: list[OffsetDeleteResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetDeleteResponsePartition] = ...,
    ) -> None: ...

class OffsetDeleteResponse(Message):
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]
    def __init__(
        self,
        *,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: list[OffsetDeleteResponseTopic] = ...,
    ) -> None: ...

OFFSET_DELETE: Api
