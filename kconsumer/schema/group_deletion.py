"""DeleteGroups and OffsetDelete: the APIs that delete groups and committed offsets."""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, STRING, Api, F, Message, array


class DeleteGroupsRequest(Message):
    groups_names: list[str] = F(array(STRING))


class DeletableGroupResult(Message):
    group_id: str = F(STRING)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "3+", null="3+", default=None)


class DeleteGroupsResponse(Message):
    throttle_time_ms: int = F(INT32)
    results: list[DeletableGroupResult] = F(array(DeletableGroupResult))


DELETE_GROUPS = Api(DeleteGroupsRequest, DeleteGroupsResponse, key=42, versions="0-3", flexible=2, throttle=1)


class OffsetDeleteRequestPartition(Message):
    partition_index: int = F(INT32)


class OffsetDeleteRequestTopic(Message):
    name: str = F(STRING)
    partitions: list[OffsetDeleteRequestPartition] = F(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message):
    group_id: str = F(STRING)
    topics: list[OffsetDeleteRequestTopic] = F(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class OffsetDeleteResponseTopic(Message):
    name: str = F(STRING)
    partitions: list[OffsetDeleteResponsePartition] = F(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message):
    error_code: int = F(INT16)
    throttle_time_ms: int = F(INT32)
    topics: list[OffsetDeleteResponseTopic] = F(array(OffsetDeleteResponseTopic))


OFFSET_DELETE = Api(OffsetDeleteRequest, OffsetDeleteResponse, key=47, versions="0", throttle=0)
