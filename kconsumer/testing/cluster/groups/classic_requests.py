"""Handles SyncGroup, Heartbeat and LeaveGroup of a classic group, with checks in the order of Kafka's coordinator."""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.classic_group import (
    HeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_generation import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kconsumer.testing.cluster.requests import GroupError, Pending, Request, Response


def sync(group: ClassicGroup, request: Request, now: float) -> Response:
    """Handle SyncGroup. Returns the response, which is a `Pending` if it waits for the leader's assignment.

    Raises GroupError if the sender is not a member of this generation, names another protocol, or has to join again.
    """
    message = request.message
    if group.state == EMPTY:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    _validate(group, request)
    if _differs(message.protocol_type, group.protocol_type) or _differs(message.protocol_name, group.protocol_name):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    if group.state == PREPARING_REBALANCE:
        raise GroupError(Errors.REBALANCE_IN_PROGRESS)
    member = group.members[message.member_id]
    group.rebalance.sync_received(member.id)
    if group.state == STABLE:
        if group.coordinator.is_old(group.id):
            group.rebalance.renew_session(member, now)
        return group.rebalance.sync_response(member)
    pending = member.syncing = Pending(request)
    if member.id == group.leader_id:
        group.rebalance.assign({row.member_id: row.assignment for row in message.assignments}, now)
    return pending


def heartbeat(group: ClassicGroup, request: Request, now: float) -> Response:
    """Handle Heartbeat: restart the session of the member.

    The error of the response is REBALANCE_IN_PROGRESS if the member has to join again. Raises GroupError if the sender
    is not a member of this generation.
    """
    _validate(group, request)
    if group.state == EMPTY:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    group.rebalance.renew_session(group.members[request.message.member_id], now)
    rebalancing = group.state == PREPARING_REBALANCE
    return HeartbeatResponse(error_code=Errors.REBALANCE_IN_PROGRESS if rebalancing else Errors.NONE)


def leave(group: ClassicGroup, request: Request, now: float) -> Response:
    """Handle LeaveGroup: remove the members that the request names, then rebalance.

    Returns the response, with an error code for each of these members (NONE if it was removed).
    """
    count = len(group.members)
    rows = [_leave_row(group, identity, now) for identity in leaving_members(request)]
    # Before Kafka 4.0, a pending member leaves a group without a new rebalance.
    unchanged = len(group.members) == count and group.coordinator.is_old(group.id)
    if any(row.error_code == Errors.NONE for row in rows):
        if group.state in (STABLE, COMPLETING_REBALANCE) and not unchanged:
            group.rebalance.prepare(now)
        else:
            group.rebalance.proceed(now)
    return leave_response(rows, request.version)


def leaving_members(request: Request) -> list[MemberIdentity]:
    """Returns the members that a LeaveGroup request names. Before version 3, a request names one member."""
    message = request.message
    members: list[MemberIdentity] = message.members
    return members if request.version >= 3 else [MemberIdentity(member_id=message.member_id)]


def leave_response(rows: list[MemberResponse], version: int) -> LeaveGroupResponse:
    """Returns a LeaveGroup response. Before version 3, it has no rows, only the error of the first row."""
    return LeaveGroupResponse(members=rows) if version >= 3 else LeaveGroupResponse(error_code=rows[0].error_code)


def leave_row(identity: MemberIdentity, error: int = Errors.NONE) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def _leave_row(group: ClassicGroup, identity: MemberIdentity, now: float) -> MemberResponse:
    """Remove a member that LeaveGroup names. Returns the member's row of the response.

    If an administrator removes a static member, `identity` has no member id, only the instance id.
    """
    member_id = identity.member_id or group.static_members.get(identity.group_instance_id or "", "")
    if member_id in group.pending_members:
        group.remove_pending(member_id)
        return leave_row(identity)
    if identity.member_id:
        try:
            group.validate_member(member_id, identity.group_instance_id)
        except GroupError as error:
            return leave_row(identity, error.error)
    elif not member_id:
        return leave_row(identity, Errors.UNKNOWN_MEMBER_ID)
    group.rebalance.remove(group.members[member_id], now)
    return leave_row(identity)


def _validate(group: ClassicGroup, request: Request) -> None:
    """Raise GroupError unless the sender is a member of the present generation."""
    message = request.message
    group.validate_member(message.member_id, message.group_instance_id)
    if message.generation_id != group.generation:
        raise GroupError(Errors.ILLEGAL_GENERATION)


def _differs(name: str | None, present: str | None) -> bool:
    """Returns whether `name`, the protocol in a request, differs from `present`, the protocol of the group.

    Returns False if the request does not name a protocol, or if the group has none.
    """
    return bool(name is not None and present and name != present)
