"""Handles the requests of the classic protocol: finds the group, and converts its errors to responses.

This module checks what needs no group: the group id, the coordinator and the session timeout. The group checks the
rest. The group may also be one of the consumer protocol that has classic members.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.classic_group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kconsumer.testing.cluster.groups import classic_join, classic_requests, consumer_classic
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_join import rejected
from kconsumer.testing.cluster.groups.classic_requests import leave_response, leave_row, leaving_members
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.coordinator import GroupHandlers
from kconsumer.testing.cluster.requests import GroupError, Request, Response, handles

MANDATORY_PROTOCOL_VERSION = 5  # of SyncGroup
JoinableGroup = ClassicGroup | ConsumerGroup  # those that members of the classic protocol can join


class ClassicHandlers(GroupHandlers):
    """Handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    # --- JoinGroup ---

    @handles(JOIN_GROUP)
    def _join(self, request: Request, now: float) -> Response:
        message = request.message
        settings = self._coordinator.cluster.settings
        shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not message.group_id:
            return rejected(request, Errors.INVALID_GROUP_ID, message.member_id)
        if not shortest <= message.session_timeout_ms <= longest:
            return rejected(request, Errors.INVALID_SESSION_TIMEOUT, message.member_id)
        try:
            self._coordinator.validate(message.group_id, request, now)
            group = self._group_to_join(message.group_id, message.member_id, now)
            if group is None:
                return rejected(request, Errors.UNKNOWN_MEMBER_ID, message.member_id)
            if isinstance(group, ConsumerGroup):
                return consumer_classic.join(group, request, now)
            return classic_join.join(group, request, now)
        except GroupError as error:
            return rejected(request, error.error, "")

    def _group_to_join(self, group_id: str, member_id: str, now: float) -> JoinableGroup | None:
        """Returns the group that a JoinGroup request names, or None if the member has an id and there is no group.

        Creates a classic group if there is no group and the member has no id yet. An empty group of the consumer
        protocol is removed first, so it counts as no group. Raises GroupError for a share group.
        """
        group = self._coordinator.get(group_id)
        if group is not None and group.type == "consumer" and group.is_empty:
            self._coordinator.remove(group_id, now)
            group = None
        if group is None and not member_id:
            group = ClassicGroup(self._coordinator, group_id, now)
            if not self._coordinator.is_old(group_id):
                group.store()
            self._coordinator.add(group)
        if isinstance(group, JoinableGroup | None):
            return group
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)

    # --- SyncGroup, Heartbeat, LeaveGroup ---

    @handles(SYNC_GROUP)
    def _sync(self, request: Request, now: float) -> Response:
        message = request.message
        unnamed = message.protocol_type is None or message.protocol_name is None
        if request.version >= MANDATORY_PROTOCOL_VERSION and unnamed:
            return SyncGroupResponse(error_code=Errors.INCONSISTENT_GROUP_PROTOCOL)
        try:
            group = self._group_of_member(request, now)
            if isinstance(group, ConsumerGroup):
                return consumer_classic.sync(group, request, now)
            return classic_requests.sync(group, request, now)
        except GroupError as error:
            return SyncGroupResponse(error_code=error.error)

    @handles(HEARTBEAT)
    def _heartbeat(self, request: Request, now: float) -> Response:
        try:
            group = self._group_of_member(request, now)
            if isinstance(group, ConsumerGroup):
                return consumer_classic.heartbeat(group, request, now)
            return classic_requests.heartbeat(group, request, now)
        except GroupError as error:
            # While the group is loaded, its members may continue.
            loading = error.error == Errors.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=Errors.NONE if loading else error.error)

    @handles(LEAVE_GROUP)
    def _leave(self, request: Request, now: float) -> Response:
        try:
            group = self._group_of_member(request, now)
            if isinstance(group, ConsumerGroup):
                return consumer_classic.leave(group, request, now)
            return classic_requests.leave(group, request, now)
        except GroupError as error:
            if error.error != Errors.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=error.error)
            rows = [leave_row(identity, Errors.UNKNOWN_MEMBER_ID) for identity in leaving_members(request)]
            return leave_response(rows, request.version)

    def _group_of_member(self, request: Request, now: float) -> JoinableGroup:
        """Returns the group that a member's request names.

        Raises GroupError with UNKNOWN_MEMBER_ID if the group does not exist or is a share group. Raises GroupError with
        another code if this broker does not coordinate the group, or has not loaded it.
        """
        group_id = request.message.group_id
        self._coordinator.validate(group_id, request, now)
        group = self._coordinator.get(group_id)
        if not isinstance(group, JoinableGroup):
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)
        return group
