"""How members of a consumer group leave: by a heartbeat with epoch -1 or -2, or because a timer has fenced them."""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.groups import migration
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_member import LEFT_STATIC_EPOCH, ConsumerMember
from kconsumer.testing.cluster.requests import GroupError


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, now: float) -> str:
    """Handle a heartbeat with which a member leaves. Returns the member id.

    The epoch is -1, or -2 if a static member may return. Raises GroupError if there is no such member.
    """
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = require_static(group, member_id, instance_id)
        if epoch == LEFT_STATIC_EPOCH:
            _leave_temporarily(group, member)
            return member.id
    fence(group, [member], now)
    return member_id


def require_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Returns the static member with an instance id.

    Raises GroupError with UNKNOWN_MEMBER_ID if there is none, and with FENCED_INSTANCE_ID if its member id is not
    `member_id`, because a newer member has the instance id.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        raise GroupError(
            Errors.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}.",
        )
    return member


def _leave_temporarily(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Record that a static member has left and may return. It keeps its partitions until its session expires."""
    member = member.copy()
    member.epoch = LEFT_STATIC_EPOCH
    member.pending_revocation = {}
    member.assigned = {topic_id: dict.fromkeys(found, 0) for topic_id, found in member.assigned.items()}
    group.put_member(member)


def fence(group: ConsumerGroup, members: list[ConsumerMember], now: float) -> None:
    """Remove members, and begin a new group epoch.

    If all remaining members use the classic protocol, and the migration policy allows it, the group becomes a classic
    group.
    """
    leaving = {member.id for member in members}
    if migration.can_downgrade(group, leaving):
        remaining = [member for member in group.members.values() if member.id not in leaving]
        migration.downgrade(group, remaining, now, rebalance=True)
        return
    for member in members:
        group.remove_member(member)
        if member.regex and member.regex not in group.regex_counts():
            group.regexes.remove(member.regex)
    group.update_epoch(subscription_changed=True)
    if not group.members:
        group.target_epoch, group.assigned_at = group.epoch, None
