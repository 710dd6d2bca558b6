"""What a static leader does when it returns to its group: it checks that each partition has an owner.

The coordinator asks such a leader to keep the assignments of all members (KIP-814). Partitions may have been added
while the leader was away, and it does not know the metadata from which the assignments were computed. So it requests
the assignments with DescribeGroups, and compares them with the present metadata. If it joined again without need, every
restart of a static leader would cause a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.coordinator.classic_protocol.leader import parse_assignment
from kconsumer.errors import error_for
from kconsumer.schema.admin import DESCRIBE_GROUPS, DescribedGroup, DescribeGroupsRequest
from kconsumer.types import TopicPartition


def describe_request(group_id: str, node: str | None, handler: Callable[[Reply], None]) -> UnsentRequest:
    return UnsentRequest(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group_id]), handler, node=node)


def lacks_owner(reply: Reply, partitions: Iterable[TopicPartition]) -> bool:
    """Returns True if a stable group has no owner of one of `partitions`.

    If the group rebalances, this leader joins again anyway. Raises the error of a request that failed, and
    ProtocolError if an assignment cannot be decoded.
    """
    if reply.error is not None:
        raise reply.error
    group: DescribedGroup = reply.message.groups[0]
    if group.error_code:
        raise error_for(group.error_code, f"group {group.group_id!r}", operation="Describe")
    assignments = [member.member_assignment for member in group.members if member.member_assignment]
    owned = {tp for data in assignments for tp in parse_assignment(data).partitions}
    return group.group_state == "Stable" and not owned.issuperset(partitions)
