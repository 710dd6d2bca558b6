"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For them, the member epoch is the generation. Their assignment comes from the coordinator, so they have no leader, and
JoinGroup does not wait for other members. When a new target assignment is ready, or when they can get more partitions,
the response to Heartbeat is REBALANCE_IN_PROGRESS, and they join again.
"""

from __future__ import annotations

from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.errors import ProtocolError
from kconsumer.schema.classic_group import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupResponse,
)
from kconsumer.schema.embedded import PROTOCOL_TYPE
from kconsumer.testing.cluster.groups import migration
from kconsumer.testing.cluster.groups.classic_join import CLIENT_HOST, protocols_of, rebalance_timeout_of
from kconsumer.testing.cluster.groups.classic_member import for_join_version
from kconsumer.testing.cluster.groups.classic_requests import leave_response, leave_row, leaving_members
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_leave import fence, require_static
from kconsumer.testing.cluster.groups.consumer_member import (
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ClassicProtocol,
    ConsumerMember,
)
from kconsumer.testing.cluster.groups.embedded_protocol import partitions_by_id, read_subscription, write_assignment
from kconsumer.testing.cluster.requests import GroupError, Request
from kconsumer.testing.cluster.timers import Timer

KNOWN_ID_VERSION = 4  # of JoinGroup: dynamic members join with an id


def join(group: ConsumerGroup, request: Request, now: float) -> JoinGroupResponse:
    """Handle JoinGroup. Returns the response without waiting for other members.

    Since version 4, the response to a new dynamic member has its member id and the error MEMBER_ID_REQUIRED. All other
    errors raise GroupError.
    """
    message = request.message
    is_new = not message.member_id
    member_id = message.member_id or group.new_member_id()
    _validate_join(group, request, member_id)
    if is_new and message.group_instance_id is None and request.version >= KNOWN_ID_VERSION:
        return for_join_version(
            JoinGroupResponse(member_id=member_id, error_code=Errors.MEMBER_ID_REQUIRED), request.version
        )
    before, replaced = _find_member(group, message, member_id, is_new=is_new)
    try:
        subscription = read_subscription(message.protocols[0].metadata)
    except ProtocolError:
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR) from None
    static = group.static_member(message.group_instance_id)
    downgrades = (
        static is not None and static.classic is None and migration.can_downgrade(group, [static.id], replaced=True)
    )
    updated = _update(before, request, subscription)
    changed = updated.topics != before.topics or updated.regex != before.regex
    assignor = group.preferred_assignor(before, updated)
    if replaced is None:
        group.put_member(updated)
    else:
        group.replace_member(replaced, updated)
    if before.regex and before.regex not in group.regex_counts():
        group.regexes.remove(before.regex)
    group.update_epoch(subscription_changed=changed)
    stale = group.target_epoch < group.epoch
    if not downgrades:
        group.update_target(assignor, now)
    if not (downgrades and stale):
        owned = partitions_by_id(subscription.owned_partitions, group.coordinator.cluster.topics)
        group.reconcile(updated, owned, now, subscription_changed=changed)
    member = group.members[updated.id]
    response = JoinGroupResponse(
        member_id=member.id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=message.protocols[0].name,
        leader="",
        members=[],
    )
    if downgrades:
        migration.downgrade(group, list(group.members.values()), now, rebalance=stale)
    else:
        member.joining.cancel()
        group.start_session(member.id, now)
        member.syncing.cancel()
        member.syncing = _fence_later(group, member.id, now + rebalance_timeout_of(request))
    return response


def _validate_join(group: ConsumerGroup, request: Request, member_id: str) -> None:
    """Raise GroupError if the sender of JoinGroup must not join.

    The settings must allow the classic protocol. A new member must find the group not full. One of the sender's
    protocols must be supported by all members that use the classic protocol.
    """
    message = request.message
    settings = group.coordinator.cluster.settings
    if settings.group_consumer_migration_policy == "disabled":
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    known = member_id in group.members or message.group_instance_id in group.static_members
    if len(group.members) >= settings.group_consumer_max_size and not known:
        raise GroupError(Errors.GROUP_MAX_SIZE_REACHED)
    classics = [member.classic for member in group.members.values() if member.classic is not None]
    names = [name for name, _ in protocols_of(request)]
    common = any(all(name in dict(classic.protocols) for classic in classics) for name in names)
    if message.protocol_type != PROTOCOL_TYPE or not common:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)


def _find_member(
    group: ConsumerGroup, message: Any, member_id: str, *, is_new: bool
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Returns the member that joins, in its present state, and the static member that it replaces, or None.

    If the group does not have the member, the first is a new `ConsumerMember`. Raises GroupError if the member id in
    the request is not that of the member with the instance id.
    """
    if message.group_instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if not is_new:
        return require_static(group, member_id, message.group_instance_id), None
    old = group.static_member(message.group_instance_id)
    return (ConsumerMember(member_id), None) if old is None else (old.successor(member_id), old)


def _update(member: ConsumerMember, request: Request, subscription: Any) -> ConsumerMember:
    """Returns a copy of a member with the values of a JoinGroup request.

    `subscription`: the decoded subscription in this request.
    """
    message = request.message
    updated = member.copy()
    updated.instance_id = message.group_instance_id or member.instance_id
    updated.rack_id = subscription.rack_id or member.rack_id
    if rebalance_timeout_of(request) != -1:
        updated.rebalance_timeout_ms = rebalance_timeout_of(request)
    updated.topics = frozenset(subscription.topics)
    updated.regex = ""
    updated.client_id = request.client_id or ""
    updated.client_host = CLIENT_HOST
    updated.classic = ClassicProtocol(message.session_timeout_ms, protocols_of(request))
    return updated


def sync(group: ConsumerGroup, request: Request, now: float) -> SyncGroupResponse:
    """Handle SyncGroup. Returns the response with the member's assignment.

    Raises GroupError with REBALANCE_IN_PROGRESS if the member has to join again first.
    """
    message = request.message
    member, classic = _classic_member(group, message)
    name, metadata = classic.protocols[0]
    if message.protocol_type not in (None, PROTOCOL_TYPE) or message.protocol_name not in (None, name):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    if group.target_epoch > member.epoch and member.state != UNREVOKED_PARTITIONS:
        _expect_join(group, member, now)
        raise GroupError(Errors.REBALANCE_IN_PROGRESS)
    member.syncing.cancel()
    group.start_session(member.id, now)
    assigned = {topic_id: set(found) for topic_id, found in member.assigned.items()}
    return SyncGroupResponse(
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignment=write_assignment(assigned, metadata, group.coordinator.cluster.topics_by_id),
    )


def heartbeat(group: ConsumerGroup, request: Request, now: float) -> HeartbeatResponse:
    """Handle Heartbeat. The error of the response is REBALANCE_IN_PROGRESS if the member has to join again."""
    member, _ = _classic_member(group, request.message)
    group.start_session(member.id, now)
    if (
        member.epoch < group.target_epoch
        or member.state == UNREVOKED_PARTITIONS
        or (member.state == UNRELEASED_PARTITIONS and not group.waits_for_partitions(member))
    ):
        _expect_join(group, member, now)
        return HeartbeatResponse(error_code=Errors.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leave(group: ConsumerGroup, request: Request, now: float) -> LeaveGroupResponse:
    """Handle LeaveGroup. The request may also name members that use the consumer protocol."""
    rows = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in leaving_members(request):
        try:
            member = _leaving_member(group, identity)
        except GroupError as error:
            rows.append(leave_row(identity, error.error))
        else:
            leaving[member.id] = member
            rows.append(leave_row(identity))
    if leaving:
        fence(group, list(leaving.values()), now)
    return leave_response(rows, request.version)


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Returns the member that a row of LeaveGroup names. Raises GroupError if there is no such member.

    If an administrator removes a static member, the row has no member id, only the instance id.
    """
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    static = group.static_member(identity.group_instance_id)
    known_id = identity.member_id or (static.id if static is not None else "")
    return require_static(group, known_id, identity.group_instance_id)


def _classic_member(group: ConsumerGroup, message: Any) -> tuple[ConsumerMember, ClassicProtocol]:
    """Returns the member that sent SyncGroup or Heartbeat, and its settings of the classic protocol.

    Raises GroupError if there is no such member, if it uses the consumer protocol, or if the generation in the request
    is not its member epoch.
    """
    if message.group_instance_id is None:
        member = group.member(message.member_id)
    else:
        member = require_static(group, message.member_id, message.group_instance_id)
    if member.classic is None:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    if message.generation_id != member.epoch:
        raise GroupError(Errors.ILLEGAL_GENERATION)
    return member, member.classic


# --- timers ---


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
    """Start a timer that removes a member if it does not join again within its rebalance timeout.

    Does nothing if the timer runs already.
    """
    if not member.joining.active:
        member.joining = _fence_later(group, member.id, now + member.rebalance_timeout_ms)


def _fence_later(group: ConsumerGroup, member_id: str, deadline: float) -> Timer:
    """Returns a new timer that removes a member from the group at `deadline` (ms)."""
    return group.coordinator.cluster.timers.add(deadline, lambda now: fence(group, [group.members[member_id]], now))
