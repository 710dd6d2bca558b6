"""Handles JoinGroup of a classic group: who may join, with which id, and whether a rebalance begins.

Since version 4, a new dynamic member first gets an id, and then joins with it. A new static member replaces the member
with the same instance id. A member that joins again with unchanged protocols gets the present generation.
`classic_rebalance.py` decides when the waiting members get their responses.
"""

from __future__ import annotations

import uuid

from kconsumer._common.error_codes import Errors
from kconsumer.schema.classic_group import JoinGroupResponse
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_generation import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kconsumer.testing.cluster.groups.classic_member import ClassicMember, Protocols, for_join_version
from kconsumer.testing.cluster.requests import GroupError, Pending, Request, Response

CLIENT_HOST = "/127.0.0.1"
MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


def join(group: ClassicGroup, request: Request, now: float) -> Response:
    """Handle JoinGroup. Returns the response, which is a `Pending` if it waits for the rebalance."""
    member_id: str = request.message.member_id
    if not _has_room(group, member_id):
        group.remove_member(member_id)
        return rejected(request, Errors.GROUP_MAX_SIZE_REACHED, "")
    if not group.supports(request.message.protocol_type, protocols_of(request)):
        return rejected(request, Errors.INCONSISTENT_GROUP_PROTOCOL, member_id)
    return _join_again(group, request, now) if member_id else _join_new(group, request, now)


def rejected(request: Request, error: int, member_id: str) -> JoinGroupResponse:
    return for_join_version(JoinGroupResponse(error_code=error, member_id=member_id), request.version)


def protocols_of(request: Request) -> Protocols:
    """Returns the protocols of a JoinGroup request, the preferred one first."""
    return [(protocol.name, protocol.metadata) for protocol in request.message.protocols]


def rebalance_timeout_of(request: Request) -> int:
    """Returns the rebalance timeout (ms) of a JoinGroup request. In version 0, it is the session timeout."""
    message = request.message
    timeout: int = message.session_timeout_ms if request.version == 0 else message.rebalance_timeout_ms
    return timeout


def new_member_id(group: ClassicGroup, request: Request) -> str:
    """Returns a new member id: the instance id, or without it the client id, followed by a random UUID."""
    prefix = request.message.group_instance_id
    if prefix is None:
        prefix = "null" if request.client_id is None else request.client_id
    bits = group.coordinator.cluster.random.getrandbits(128)
    return f"{prefix}-{uuid.UUID(int=bits, version=4)}"


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Returns whether the setting `group_max_size` allows the sender of JoinGroup to be a member.

    In PreparingRebalance, only the members that wait in JoinGroup are counted. So if a group is too large, the members
    that join last are rejected. In other states, present members are never rejected.
    """
    limit = group.coordinator.cluster.settings.group_max_size
    if group.state == EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state == PREPARING_REBALANCE:
        return (member is not None and member.joining is not None) or group.joining_count() < limit
    return member is not None or len(group.members) < limit


# --- new members ---


def _join_new(group: ClassicGroup, request: Request, now: float) -> Response:
    """Handle JoinGroup without a member id: send a new id, replace a static member, or add a new member."""
    instance_id = request.message.group_instance_id
    member_id = new_member_id(group, request)
    if instance_id is None and request.version >= MEMBER_ID_REQUIRED_VERSION:
        group.rebalance.add_pending(member_id, request.message.session_timeout_ms, now)
        return rejected(request, Errors.MEMBER_ID_REQUIRED, member_id)
    if instance_id is not None and instance_id in group.static_members:
        return _replace_static(group, request, member_id, now)
    return _add(group, request, member_id, now)


def _add(group: ClassicGroup, request: Request, member_id: str, now: float) -> Pending:
    """Add a new member, and begin a rebalance. Returns the response, which is complete when all members have joined."""
    message = request.message
    member = ClassicMember(
        member_id,
        message.group_instance_id,
        client_id="" if request.client_id is None else request.client_id,
        client_host=CLIENT_HOST,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        session_timeout_ms=message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=protocols_of(request),
    )
    pending = Pending(request)
    group.start_joining(member, pending)
    group.rebalance.add_member(member, now)
    return pending


def _replace_static(group: ClassicGroup, request: Request, member_id: str, now: float) -> Response:
    """Handle JoinGroup of a static member that has no member id and whose instance id is in the group.

    The new member replaces the member with the same instance id. If the group is stable and its protocol stays the
    same, there is no rebalance, and the response is complete at once. Otherwise, the response waits for the rebalance.
    """
    old_leader = group.leader_id
    member = group.replace_static_member(request.message.group_instance_id, member_id, now)
    group.rebalance.renew_session(member, now)
    pending = _update(group, member, request)
    if group.state == STABLE and group.choose_protocol() == group.protocol_name:
        group.store()
        group.complete_join(member, _static_response(group, member, request, old_leader), now)
    elif group.state == COMPLETING_REBALANCE:
        group.rebalance.prepare(now)
    else:
        group.rebalance.rebalance(now)
    return pending


def _static_response(
    group: ClassicGroup, member: ClassicMember, request: Request, old_leader: str | None
) -> JoinGroupResponse:
    """Returns the response to a static member that joins a stable group again.

    If this member is the leader, it must not compute a new assignment. Since version 9, `skip_assignment` is set for
    this. In older versions, the response names the leader by its old member id, so the member does not recognize itself
    as the leader.
    """
    response = group.rebalance.join_response(member)
    if request.version >= SKIP_ASSIGNMENT_VERSION:
        response.skip_assignment = member.id == group.leader_id
    else:
        response.leader = old_leader or ""
        response.members = []
    return response


# --- known members ---


def _join_again(group: ClassicGroup, request: Request, now: float) -> Response:
    """Handle JoinGroup with a member id. The sender is a pending member, or a member that joins again."""
    message = request.message
    member_id: str = message.member_id
    if member_id in group.pending_members:
        if message.group_instance_id is not None:
            return rejected(request, Errors.UNKNOWN_SERVER_ERROR, "")
        return _add(group, request, member_id, now)
    try:
        group.validate_member(member_id, message.group_instance_id)
    except GroupError as error:
        return rejected(request, error.error, member_id)
    if group.state == EMPTY:
        return rejected(request, Errors.UNKNOWN_MEMBER_ID, member_id)
    member = group.members[member_id]
    if _unchanged(group, member, request):
        return for_join_version(group.rebalance.join_response(member), request.version)
    pending = _update(group, member, request)
    group.rebalance.rebalance(now)
    return pending


def _unchanged(group: ClassicGroup, member: ClassicMember, request: Request) -> bool:
    """Returns whether a member that joins again gets the present generation, without a rebalance.

    This is the case if its protocols are unchanged. However, returns False in PreparingRebalance, and for the leader of
    a stable group. A leader joins again to cause a rebalance, for example when a topic has got more partitions.
    """
    if group.state == PREPARING_REBALANCE or (group.state == STABLE and group.leader_id == member.id):
        return False
    return member.protocols == protocols_of(request)


def _update(group: ClassicGroup, member: ClassicMember, request: Request) -> Pending:
    """Store the protocols and timeouts that a member sends when it joins again. Returns the pending response."""
    session_timeout_ms = request.message.session_timeout_ms
    group.update_member(member, protocols_of(request), rebalance_timeout_of(request), session_timeout_ms)
    pending = Pending(request)
    group.start_joining(member, pending)
    return pending
