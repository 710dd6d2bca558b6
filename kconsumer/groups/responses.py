"""Parses the responses to requests about groups: the list, the description, the offsets, and changes of them.

Each function returns the values of a response, or raises the error that the response contains. `manager.py` decides
where requests are sent and which errors are retried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import Reply
from kconsumer.coordinator.classic_protocol.embedded import decode_assignment
from kconsumer.coordinator.commit_messages import commit_codes
from kconsumer.errors import BrokerError, CoordinatorError, error_for
from kconsumer.groups.types import GroupDescription, GroupListing, GroupMember
from kconsumer.schema.admin import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from kconsumer.schema.group_deletion import DeleteGroupsResponse
from kconsumer.schema.share_group import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeResponse,
)
from kconsumer.types import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"
SHARE_PROTOCOL_TYPE = "share"
DEAD = "Dead"  # the state that old brokers report in place of GROUP_ID_NOT_FOUND
MIN_VERSION_STATES = 4  # the first version of ListGroups with states
MIN_VERSION_TYPES = 5  # the first version of ListGroups with types


class GroupPosition(NamedTuple):
    """The offset of a group in one partition."""

    committed: int  # the committed offset; in a share group, the start offset
    leader_epoch: int | None = None
    metadata: str = ""
    lag: int | None = None  # None unless the broker reports it


def parse_listing(reply: Reply) -> list[GroupListing]:
    """Returns the groups that one broker coordinates."""
    message: ListGroupsResponse = reply.message
    raise_error(message.error_code, "listing groups")
    return [
        GroupListing(
            group.group_id,
            group.group_type if reply.version >= MIN_VERSION_TYPES else None,
            group.group_state if reply.version >= MIN_VERSION_STATES else None,
            group.protocol_type,
        )
        for group in message.groups
    ]


def parse_classic(reply: Reply) -> GroupDescription:
    message: DescribeGroupsResponse = reply.message
    group = message.groups[0]
    context = f"group {group.group_id!r}"
    raise_error(group.error_code, context, group.error_message)
    if group.group_state == DEAD:
        raise error_for(Errors.GROUP_ID_NOT_FOUND, context)
    is_consumer_group = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members=tuple(_classic_member(member, is_consumer_group) for member in group.members),
    )


def parse_consumer(reply: Reply) -> GroupDescription:
    """Returns the description of a group of the consumer protocol (KIP-848)."""
    message: ConsumerGroupDescribeResponse = reply.message
    group = message.groups[0]
    return _with_epochs(group, "consumer", CONSUMER_PROTOCOL_TYPE, map(_consumer_member, group.members))


def parse_share(reply: Reply) -> GroupDescription:
    """Returns the description of a share group (KIP-932)."""
    message: ShareGroupDescribeResponse = reply.message
    group = message.groups[0]
    return _with_epochs(group, "share", SHARE_PROTOCOL_TYPE, map(_share_member, group.members))


def parse_committed(reply: Reply) -> dict[TopicPartition, GroupPosition]:
    """Returns all committed offsets of a group of the classic or the consumer protocol."""
    group = reply.message.groups[0] if reply.version >= 8 else reply.message
    raise_error(group.error_code, "committed offsets")
    offsets = {}
    for topic in group.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            raise_error(row.error_code, f"committed offset of {tp}")
            if row.committed_offset >= 0:
                epoch = row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None
                offsets[tp] = GroupPosition(row.committed_offset, epoch, row.metadata or "")
    return offsets


def parse_share_offsets(reply: Reply) -> dict[TopicPartition, GroupPosition]:
    """Returns the start offset of a share group in each partition, and the group's lag if the broker reports it."""
    message: DescribeShareGroupOffsetsResponse = reply.message
    group = message.groups[0]
    raise_error(group.error_code, f"offsets of group {group.group_id!r}", group.error_message)
    offsets = {}
    for topic in group.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.topic_name, row.partition_index)
            raise_error(row.error_code, f"offset of {tp}", row.error_message)
            if row.start_offset >= 0:
                epoch = row.leader_epoch if row.leader_epoch >= 0 else None
                offsets[tp] = GroupPosition(row.start_offset, epoch, "", row.lag if row.lag >= 0 else None)
    return offsets


def parse_altered(reply: Reply) -> None:
    """Check the response to a commit of a client that is not a member. Raises the error of the first partition."""
    codes = commit_codes(reply.message, {})
    hint = "; the group has members, and only they can commit: stop them first"
    raise_first(
        ((f"committing the offset of {tp}", code, None) for tp, code in codes.items()),
        "partition",
        {Errors.UNKNOWN_MEMBER_ID: hint},
    )


def parse_altered_share(reply: Reply) -> None:
    """Check the response to a change of start offsets. Raises the error of the group, or of the first partition."""
    message: AlterShareGroupOffsetsResponse = reply.message
    _raise_share_change(message.error_code, "setting start offsets", message.error_message)
    raise_first(
        (
            (f"setting the start offset of {topic.topic_name}-{row.partition_index}", row.error_code, row.error_message)
            for topic in message.responses
            for row in topic.partitions
        ),
        "partition",
    )


def parse_deleted_share_offsets(reply: Reply) -> None:
    """Check the response to a deletion of start offsets. Raises the error of the group, or of the first topic."""
    message: DeleteShareGroupOffsetsResponse = reply.message
    _raise_share_change(message.error_code, "deleting start offsets", message.error_message)
    raise_first(
        (
            (f"deleting the start offsets of topic {topic.topic_name!r}", topic.error_code, topic.error_message)
            for topic in message.responses
        ),
        "topic",
    )


def _raise_share_change(code: int, context: str, text: str | None) -> None:
    if code == Errors.NON_EMPTY_GROUP:
        context += "; stop the members of the group first"
    raise_error(code, context, text, "Read")


def raise_first(
    rows: Iterable[tuple[str, int, str | None]],
    what: str,
    hints: Mapping[int, str] = MappingProxyType({}),
    operation: str = "Read",
) -> None:
    """Raise the error of the first row that failed. Errors after which the request is retried come first.

    A row has its context, its error code and the broker's text. `what` is the name of a row. `hints` say what to do
    about an error code.
    """
    failed = [row for row in rows if row[1]]
    failed.sort(key=lambda row: not isinstance(error_for(row[1], ""), CoordinatorError))
    if failed:
        context, code, text = failed[0]
        count = len(failed) - 1
        others = f" and of {count} other {what}{'s' * (count > 1)}" if count else ""
        raise_error(code, f"{context}{others}{hints.get(code, '')}", text, operation)


def parse_deleted(reply: Reply) -> None:
    """Check the response to a request that deletes one group. Raises the error of the group."""
    message: DeleteGroupsResponse = reply.message
    group = message.results[0]
    context = f"deleting group {group.group_id!r}"
    if group.error_code == Errors.NON_EMPTY_GROUP:
        context += "; stop its members first"
    raise_error(group.error_code, context, group.error_message, "Delete")


def _classic_member(member: DescribedGroupMember, is_consumer_group: bool) -> GroupMember:
    """Returns a member of a classic group.

    Its assignment is parsed only if the group consists of consumers. Other groups, such as those of Kafka Connect, have
    other formats.
    """
    data = bytes(member.member_assignment)
    assigned = decode_assignment(data).assigned_partitions if is_consumer_group and data else []
    partitions = sorted(TopicPartition(t.topic, p) for t in assigned for p in t.partitions)
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, tuple(partitions)
    )


def _consumer_member(member: ConsumerGroupDescribeMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment.topic_partitions),
        _partitions(member.target_assignment.topic_partitions),
        member.member_epoch,
        member.rack_id,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
    )


def _share_member(member: ShareGroupDescribeMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        _partitions(member.assignment.topic_partitions),
        None,
        member.member_epoch,
        member.rack_id,
        tuple(sorted(member.subscribed_topic_names)),
    )


def _partitions(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(t.topic_name, p) for t in topics for p in t.partitions))


def _with_epochs(
    group: ConsumerGroupDescribeGroup | ShareGroupDescribeGroup,
    group_type: str,
    protocol_type: str,
    members: Iterable[GroupMember],
) -> GroupDescription:
    """Returns the description of a group whose coordinator assigns partitions. Raises the error of the group."""
    raise_error(group.error_code, f"group {group.group_id!r}", group.error_message)
    return GroupDescription(
        group.group_id,
        group_type,
        group.group_state,
        protocol_type,
        group.assignor_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(members),
    )


def raise_error(code: int, context: str, text: str | None = None, operation: str = "Describe") -> None:
    """Raise the error of a code, unless it is NONE. `text` is what the broker says about it."""
    if code:
        error: BrokerError = error_for(code, f"{context}: {text}" if text else context, operation=operation)
        raise error
