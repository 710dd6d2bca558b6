"""The requests of an administrator that list groups, read offsets and settings, or change a group: what each contains,
and how its response is parsed. `manager.py` sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import Reply
from kconsumer.coordinator.commit_messages import LAST_VERSION_WITH_NAMES, commit_message
from kconsumer.coordinator.group_member import Generation
from kconsumer.groups.manager import QueryKind
from kconsumer.groups.responses import (
    MIN_VERSION_STATES,
    MIN_VERSION_TYPES,
    parse_altered,
    parse_altered_share,
    parse_committed,
    parse_deleted,
    parse_deleted_share_offsets,
    parse_listing,
    parse_share_offsets,
    raise_error,
    raise_first,
)
from kconsumer.groups.types import GroupMember
from kconsumer.schema.admin import LIST_GROUPS, ListGroupsRequest
from kconsumer.schema.classic_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from kconsumer.schema.group_deletion import (
    DELETE_GROUPS,
    OFFSET_DELETE,
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kconsumer.schema.offsets import OFFSET_COMMIT, OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from kconsumer.schema.share_group import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kconsumer.schema.telemetry import CLIENT_METRICS, LIST_CONFIG_RESOURCES, ListConfigResourcesRequest
from kconsumer.schema.topics import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition

GROUP_RESOURCE = 32  # the type of resource in requests for settings
RESOURCES = {GROUP_RESOURCE: "group", CLIENT_METRICS: "client metrics"}
SET, DELETE = 0, 1  # operations on a setting
REASON_LENGTH = 255
HINTS: dict[int, str] = {
    Errors.GROUP_SUBSCRIBED_TO_TOPIC: "; stop the members that subscribe to it first",
    Errors.NON_EMPTY_GROUP: "; stop the members of the group first",
    Errors.UNKNOWN_MEMBER_ID: "; the group has no such member, or one that is not of the classic protocol",
}


DELETION = QueryKind(DELETE_GROUPS, lambda group: DeleteGroupsRequest(groups_names=[group]), parse_deleted)
COMMITTED = QueryKind(
    OFFSET_FETCH,
    lambda group: OffsetFetchRequest(
        group_id=group, topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
    ),
    parse_committed,
    min_version=2,  # null requests all topics
    max_version=9,  # from version 10 on, the response has topic ids in place of names
)
SHARE_OFFSETS = QueryKind(
    DESCRIBE_SHARE_GROUP_OFFSETS,
    lambda group: DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    ),
    parse_share_offsets,
)
#: The requests for the offsets of a group by partition, by type of group.
POSITIONS = {"consumer": COMMITTED, "classic": COMMITTED, "share": SHARE_OFFSETS}


def group_listing(states: Collection[str], types: Collection[str]) -> QueryKind:
    """Returns the request for the groups that a broker coordinates.

    The result contains only groups with one of `states` and one of `types`. An empty collection excludes no group.
    Brokers that cannot filter by them refuse the request with UnsupportedVersionError.
    """
    message = ListGroupsRequest(states_filter=sorted(states), types_filter=sorted(types))
    min_version = MIN_VERSION_TYPES if types else MIN_VERSION_STATES if states else 0
    needs = "filtering by types needs Kafka 3.8" if types else "filtering by states needs Kafka 2.6"
    return QueryKind(LIST_GROUPS, lambda _: message, parse_listing, min_version, needs=needs)


def offset_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> QueryKind:
    """Returns the request that commits offsets for a group without members.

    Coordinators accept such a commit, which has no member id, only while the group is empty.
    """
    return QueryKind(
        OFFSET_COMMIT,
        lambda group: commit_message(group, Generation(), None, offsets, {}),
        parse_altered,
        max_version=LAST_VERSION_WITH_NAMES,
        final_codes=(Errors.UNKNOWN_TOPIC_OR_PARTITION,),
    )


def share_offset_change(offsets: Mapping[TopicPartition, int]) -> QueryKind:
    """Returns the request that sets start offsets of a share group without members."""
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        row = AlterShareGroupOffsetsRequestPartition(partition_index=tp.partition, start_offset=offset)
        topics.setdefault(tp.topic, []).append(row)
    rows = [AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=found) for name, found in topics.items()]
    return QueryKind(
        ALTER_SHARE_GROUP_OFFSETS,
        lambda group: AlterShareGroupOffsetsRequest(group_id=group, topics=rows),
        parse_altered_share,
        final_codes=(Errors.UNKNOWN_TOPIC_OR_PARTITION,),
    )


def share_offset_deletion(topics: Collection[str]) -> QueryKind:
    """Returns the request that deletes what a share group without members has stored about topics."""
    rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in sorted(topics)]
    return QueryKind(
        DELETE_SHARE_GROUP_OFFSETS,
        lambda group: DeleteShareGroupOffsetsRequest(group_id=group, topics=rows),
        parse_deleted_share_offsets,
        final_codes=(Errors.UNKNOWN_TOPIC_OR_PARTITION,),
    )


def offset_deletion(partitions: Iterable[TopicPartition]) -> QueryKind:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(OffsetDeleteRequestPartition(partition_index=tp.partition))
    rows = [OffsetDeleteRequestTopic(name=name, partitions=found) for name, found in topics.items()]
    return QueryKind(
        OFFSET_DELETE,
        lambda group: OffsetDeleteRequest(group_id=group, topics=rows),
        _parse_deleted_offsets,
        final_codes=(Errors.UNKNOWN_TOPIC_OR_PARTITION,),
    )


def _parse_deleted_offsets(reply: Reply) -> None:
    raise_error(reply.message.error_code, f"deleting offsets{HINTS.get(reply.message.error_code, '')}", None, "Delete")
    raise_first(
        (
            (f"deleting the offset of {TopicPartition(topic.name, row.partition_index)}", row.error_code, None)
            for topic in reply.message.topics
            for row in topic.partitions
        ),
        "row",
        HINTS,
        "Delete",
    )


def removal(members: Collection[str | GroupMember], reason: str | None) -> QueryKind:
    """Returns the request that removes members. A text is the instance id of a static member."""
    text = f"removed by an administrator{': ' if reason else ''}{reason or ''}"[:REASON_LENGTH]
    identities = [
        MemberIdentity(group_instance_id=member, reason=text)
        if isinstance(member, str)
        else MemberIdentity(member_id=member.member_id, group_instance_id=member.group_instance_id, reason=text)
        for member in members
    ]
    return QueryKind(
        LEAVE_GROUP,
        lambda group: LeaveGroupRequest(group_id=group, members=identities),
        _parse_removed,
        min_version=3,
        needs="removing members needs Kafka 2.4",
    )


def _parse_removed(reply: Reply) -> None:
    raise_error(reply.message.error_code, "removing members")
    members = reply.message.members
    rows = ((f"removing member {row.group_instance_id or row.member_id!r}", row.error_code, None) for row in members)
    raise_first(rows, "row", HINTS, "Delete")


def config_query(names: Iterable[str], kind: int = GROUP_RESOURCE) -> QueryKind:
    """Returns the request for the settings of groups, or of other resources. Its result has them by name."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names
    ]
    return QueryKind(DESCRIBE_CONFIGS, lambda _: DescribeConfigsRequest(resources=resources), _parse_configs)


def _parse_configs(reply: Reply) -> dict[str, dict[str, str | None]]:
    found = {}
    for row in reply.message.results:
        raise_error(row.error_code, _what(row), row.error_message)
        configs = sorted(row.configs, key=lambda config: config.name)
        found[row.resource_name] = {config.name: config.value for config in configs}
    return found


def _what(row: Any) -> str:
    return f"settings of {RESOURCES[row.resource_type]} {row.resource_name!r}"


def config_change(name: str, configs: Mapping[str, Any], kind: int = GROUP_RESOURCE) -> QueryKind:
    """Returns the request that sets settings of a group, or of another resource. None removes a setting."""
    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=_text(value))
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    message = IncrementalAlterConfigsRequest(resources=[resource])
    return QueryKind(INCREMENTAL_ALTER_CONFIGS, lambda _: message, _parse_altered_configs)


def _text(value: object) -> str | None:
    """Returns the value of a setting in Kafka's format."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_altered_configs(reply: Reply) -> None:
    (row,) = reply.message.responses
    raise_error(row.error_code, _what(row), row.error_message, "AlterConfigs")


def subscription_listing() -> QueryKind:
    """Returns the request for the names of the subscriptions for metrics of clients."""
    message = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
    needs = "subscriptions for metrics of clients need Kafka 3.7"
    return QueryKind(LIST_CONFIG_RESOURCES, lambda _: message, _parse_listing, needs=needs)


def _parse_listing(reply: Reply) -> list[str]:
    raise_error(reply.message.error_code, "listing subscriptions for metrics of clients")
    return sorted(row.resource_name for row in reply.message.config_resources)
