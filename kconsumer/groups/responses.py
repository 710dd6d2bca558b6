"""What the answers about groups mean: ListGroups, the three ways to describe a group, the two to read its offsets.

Plain functions from an answer to values; an error code in the answer is raised. Whom to ask, and what to do about an
error, is `groups.py`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kconsumer.coordinator.classic_protocol.embedded import decode_assignment
from kconsumer.error_codes import Errors
from kconsumer.errors import BrokerError, error_for
from kconsumer.groups.types import GroupDescription, GroupListing, GroupMember
from kconsumer.managers import Reply
from kconsumer.schema.admin import (
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from kconsumer.schema.share_group import (
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeMember,
    ShareGroupDescribeResponse,
)
from kconsumer.types import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"
SHARE_PROTOCOL_TYPE = "share"
DEAD = "Dead"  # how a broker without error 69 says that there is no such group
MIN_VERSION_STATES = 4  # versions of ListGroups
MIN_VERSION_TYPES = 5


class GroupPosition(NamedTuple):
    """What a group says of one partition; `lag` only if the broker counts it."""

    committed: int
    leader_epoch: int | None = None
    metadata: str = ""
    lag: int | None = None


def parse_listing(reply: Reply) -> list[GroupListing]:
    """The groups that one broker coordinates."""
    message: ListGroupsResponse = reply.message
    _raise(message.error_code, "listing groups")
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
    """A group of the classic protocol."""
    message: DescribeGroupsResponse = reply.message
    group = message.groups[0]
    about = f"group {group.group_id!r}"
    _raise(group.error_code, about, group.error_message)
    if group.group_state == DEAD:
        raise error_for(Errors.GROUP_ID_NOT_FOUND, about)
    ours = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members=tuple(_classic_member(member, ours) for member in group.members),
    )


def parse_consumer(reply: Reply) -> GroupDescription:
    """A group of the consumer protocol (KIP-848)."""
    message: ConsumerGroupDescribeResponse = reply.message
    group = message.groups[0]
    _raise(group.error_code, f"group {group.group_id!r}", group.error_message)
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        CONSUMER_PROTOCOL_TYPE,
        group.assignor_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(map(_consumer_member, group.members)),
    )


def parse_share(reply: Reply) -> GroupDescription:
    """A share group (KIP-932)."""
    message: ShareGroupDescribeResponse = reply.message
    group = message.groups[0]
    _raise(group.error_code, f"group {group.group_id!r}", group.error_message)
    return GroupDescription(
        group.group_id,
        "share",
        group.group_state,
        SHARE_PROTOCOL_TYPE,
        group.assignor_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(map(_share_member, group.members)),
    )


def parse_committed(reply: Reply) -> dict[TopicPartition, GroupPosition]:
    """All that a group of either consumer protocol committed."""
    group = reply.message.groups[0] if reply.version >= 8 else reply.message
    _raise(group.error_code, "committed offsets")
    found = {}
    for topic in group.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            _raise(row.error_code, f"committed offset of {tp}")
            if row.committed_offset >= 0:
                epoch = row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None
                found[tp] = GroupPosition(row.committed_offset, epoch, row.metadata or "")
    return found


def parse_share_offsets(reply: Reply) -> dict[TopicPartition, GroupPosition]:
    """Where a share group is in each partition, and how many records are left to deliver."""
    message: DescribeShareGroupOffsetsResponse = reply.message
    group = message.groups[0]
    _raise(group.error_code, f"offsets of group {group.group_id!r}", group.error_message)
    found = {}
    for topic in group.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.topic_name, row.partition_index)
            _raise(row.error_code, f"offset of {tp}", row.error_message)
            if row.start_offset >= 0:
                epoch = row.leader_epoch if row.leader_epoch >= 0 else None
                found[tp] = GroupPosition(row.start_offset, epoch, "", row.lag if row.lag >= 0 else None)
    return found


def _classic_member(member: DescribedGroupMember, ours: bool) -> GroupMember:
    """`ours`: the group is one of consumers, so that the assignment can be read."""
    data = bytes(member.member_assignment)
    assigned = decode_assignment(data).assigned_partitions if ours and data else []
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


def _raise(code: int, about: str, text: str | None = None) -> None:
    if code:
        error: BrokerError = error_for(code, f"{about}: {text}" if text else about, operation="Describe")
        raise error
