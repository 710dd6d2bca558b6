"""DeleteGroups and OffsetDelete: the APIs that delete groups and committed offsets.

Only `kconsumer.testing` uses OffsetDelete.
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, STRING, F, api, array, struct

DeleteGroupsRequest = struct("DeleteGroupsRequest", F("groups_names", array(STRING)))

DeletableGroupResult = struct(
    "DeletableGroupResult",
    F("group_id", STRING),
    F("error_code", INT16),
    F("error_message", STRING, "3+", null="3+", default=None),
)

DeleteGroupsResponse = struct(
    "DeleteGroupsResponse",
    F("throttle_time_ms", INT32),
    F("results", array(DeletableGroupResult)),
)

DELETE_GROUPS = api(
    "DeleteGroups",
    key=42,
    versions="0-3",
    flexible=2,
    throttle=1,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)

OffsetDeleteRequestPartition = struct("OffsetDeleteRequestPartition", F("partition_index", INT32))

OffsetDeleteRequestTopic = struct(
    "OffsetDeleteRequestTopic",
    F("name", STRING),
    F("partitions", array(OffsetDeleteRequestPartition)),
)

OffsetDeleteRequest = struct(
    "OffsetDeleteRequest",
    F("group_id", STRING),
    F("topics", array(OffsetDeleteRequestTopic)),
)

OffsetDeleteResponsePartition = struct(
    "OffsetDeleteResponsePartition",
    F("partition_index", INT32),
    F("error_code", INT16),
)

OffsetDeleteResponseTopic = struct(
    "OffsetDeleteResponseTopic",
    F("name", STRING),
    F("partitions", array(OffsetDeleteResponsePartition)),
)

OffsetDeleteResponse = struct(
    "OffsetDeleteResponse",
    F("error_code", INT16),
    F("throttle_time_ms", INT32),
    F("topics", array(OffsetDeleteResponseTopic)),
)

OFFSET_DELETE = api(
    "OffsetDelete",
    key=47,
    versions="0",
    throttle=0,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
