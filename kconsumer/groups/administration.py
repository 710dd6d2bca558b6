"""The requests of an administrator that change a group or read its settings: what each contains, and how its response
is parsed. `manager.py` sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import Reply
from kconsumer.errors import CoordinatorError, error_for
from kconsumer.groups.manager import QueryKind
from kconsumer.groups.responses import and_others, raise_error
from kconsumer.groups.types import GroupMember
from kconsumer.schema import LEAVE_GROUP
from kconsumer.schema.classic_group import LeaveGroupRequest, MemberIdentity
from kconsumer.schema.group_deletion import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
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
from kconsumer.types import TopicPartition

GROUP_RESOURCE = 32  # the type of resource in requests for settings
RESOURCES = {GROUP_RESOURCE: "group", CLIENT_METRICS: "client metrics"}
SET, DELETE = 0, 1  # operations on a setting
REASON_LENGTH = 255
HINTS: dict[int, str] = {
    Errors.GROUP_SUBSCRIBED_TO_TOPIC: "; stop the members that subscribe to it first",
    Errors.NON_EMPTY_GROUP: "; stop the members of the group first",
    Errors.UNKNOWN_MEMBER_ID: "; the group has no such member, or one that is not of the classic protocol",
}


def offset_deletion(partitions: Iterable[TopicPartition]) -> QueryKind:
    """Returns the request that deletes committed offsets of partitions."""
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
    _raise_first(
        (f"deleting the offset of {TopicPartition(topic.name, row.partition_index)}", row.error_code)
        for topic in reply.message.topics
        for row in topic.partitions
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
    _raise_first(
        (f"removing member {row.group_instance_id or row.member_id!r}", row.error_code) for row in reply.message.members
    )


def _raise_first(rows: Iterable[tuple[str, int]]) -> None:
    """Raise the error of the first row that failed. Errors after which the request is retried come first."""
    failed = [(context, code) for context, code in rows if code]
    errors = [
        error_for(code, f"{context}{and_others(len(failed) - 1, 'row')}{HINTS.get(code, '')}", operation="Delete")
        for context, code in failed
    ]
    errors.sort(key=lambda error: not isinstance(error, CoordinatorError))
    if errors:
        raise errors[0]


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
