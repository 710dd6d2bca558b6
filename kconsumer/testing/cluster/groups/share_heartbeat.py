"""Handles ShareGroupHeartbeat (KIP-932), with which members join, stay, leave, and change their subscriptions."""

from __future__ import annotations

from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.share_group import (
    SHARE_GROUP_HEARTBEAT,
    ShareGroupHeartbeatResponse,
)
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_join import CLIENT_HOST
from kconsumer.testing.cluster.groups.consumer_heartbeat import heartbeat_assignment
from kconsumer.testing.cluster.groups.coordinator import GroupHandlers
from kconsumer.testing.cluster.groups.share_group import ShareGroup, ShareMember
from kconsumer.testing.cluster.requests import GroupError, Request, handles

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
MAX_MEMBER_ID_LENGTH = 36


class ShareHeartbeatHandler(GroupHandlers):
    """Handles ShareGroupHeartbeat."""

    @handles(SHARE_GROUP_HEARTBEAT)
    def _handle(self, request: Request, now: float) -> ShareGroupHeartbeatResponse:
        message = request.message
        try:
            _check(message)
            self._coordinator.validate(message.group_id, request, now)
            if message.member_epoch == LEAVE_EPOCH:
                return self._leave(message)
            return self._heartbeat(self._group(message.group_id, now, create=message.member_epoch == 0), request, now)
        except GroupError as error:
            return ShareGroupHeartbeatResponse(error_code=error.error, error_message=error.message)

    def _leave(self, message: Any) -> ShareGroupHeartbeatResponse:
        """Handle a heartbeat with which a member leaves. Raises GroupError if there is no such member."""
        group = self._coordinator.require(message.group_id)
        if not isinstance(group, ShareGroup):
            raise _other_type(message.group_id)
        group.remove_member(group.member(message.member_id).id)
        return ShareGroupHeartbeatResponse(member_id=message.member_id, member_epoch=LEAVE_EPOCH)

    def _group(self, group_id: str, now: float, *, create: bool) -> ShareGroup:
        """Returns the group, or adds a new group if there is none and `create` is True.

        A new group also replaces a classic group that has no members. Raises GroupError if the group is missing and
        `create` is False, or if it is a group of another type.
        """
        group = self._coordinator.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        replaceable = group is None or (isinstance(group, ClassicGroup) and group.is_empty)
        if not create or not replaceable:
            raise _other_type(group_id)
        new = ShareGroup(self._coordinator, group_id)
        self._coordinator.replace(new, now)
        return new

    def _heartbeat(self, group: ShareGroup, request: Request, now: float) -> ShareGroupHeartbeatResponse:
        """Handle a heartbeat of a member that joins or stays."""
        message = request.message
        member = self._member(group, message)
        before = member.copy()
        _update(member, request)
        group.members[member.id] = member
        group.update_epoch(subscription_changed=member.topics != before.topics)
        group.update_target(now)
        group.reconcile(member)
        group.start_session(member.id, now)
        group.initialize_partitions()
        full = message.member_epoch == JOIN_EPOCH or message.subscribed_topic_names is not None
        return ShareGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._coordinator.cluster.group_configs.value(
                group.id, "share.heartbeat.interval.ms"
            ),
            assignment=heartbeat_assignment(member.assigned) if full or member.assigned != before.assigned else None,
        )

    def _member(self, group: ShareGroup, message: Any) -> ShareMember:
        """Returns the sender, which is a new member if it joins.

        Raises GroupError if the group is full, if there is no such member, or if it has another epoch.
        """
        member_id, epoch = message.member_id, message.member_epoch
        limit = self._coordinator.cluster.settings.group_share_max_size
        if epoch == JOIN_EPOCH and member_id not in group.members:
            if len(group.members) >= limit:
                raise GroupError(
                    Errors.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {limit} members.",
                )
            return ShareMember(member_id)
        member = group.member(member_id)
        if epoch not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
            size = "greater" if epoch > member.epoch else "smaller"
            raise GroupError(
                Errors.FENCED_MEMBER_EPOCH,
                f"The share group member has a {size} member epoch ({epoch}) than the one known by the group "
                f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member


def _check(message: Any) -> None:
    """Raise GroupError with INVALID_REQUEST if a field of a heartbeat is missing or not valid."""
    if not 0 < len(message.member_id) <= MAX_MEMBER_ID_LENGTH:
        raise GroupError(Errors.INVALID_REQUEST)
    joins = message.member_epoch == JOIN_EPOCH
    for invalid, text in (
        (not message.group_id, "GroupId can't be empty."),
        (message.rack_id == "", "RackId can't be empty."),
        (joins and not message.subscribed_topic_names, "SubscribedTopicNames must be set in first request."),
        (message.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid."),
    ):
        if invalid:
            raise GroupError(Errors.INVALID_REQUEST, text)


def _update(member: ShareMember, request: Request) -> None:
    """Set the values of a heartbeat. Fields that are null in the request are unchanged."""
    message = request.message
    if message.rack_id is not None:
        member.rack_id = message.rack_id
    if message.subscribed_topic_names is not None:
        member.topics = frozenset(message.subscribed_topic_names)
    member.client_id = request.client_id or ""
    member.client_host = CLIENT_HOST


def _other_type(group_id: str) -> GroupError:
    return GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
