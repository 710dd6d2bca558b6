"""Handles ListGroups and DescribeGroups."""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema import DESCRIBE_GROUPS, LIST_GROUPS
from kconsumer.schema.admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_member import ClassicMember
from kconsumer.testing.cluster.groups.classic_rebalance import DEAD, STABLE
from kconsumer.testing.cluster.groups.group import GroupError, GroupHandlers, is_old_release
from kconsumer.testing.cluster.requests import Request, handles

NOT_FOUND_VERSION = 6  # of DescribeGroups; before, a missing group is reported as Dead
OLD_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8  # read, delete, describe; before Kafka 4.0
GROUP_OPERATIONS = OLD_GROUP_OPERATIONS | 1 << 10 | 1 << 11  # also describe and alter configs


class GroupDescriptions(GroupHandlers):
    """Handles ListGroups and DescribeGroups."""

    @handles(LIST_GROUPS)
    def _list(self, request: Request, now: float) -> ListGroupsResponse:
        """Handle ListGroups.

        Returns the groups that this broker coordinates and whose states and types match the filters of the request.
        """
        broker_id = request.broker.id
        if self._coordinator.is_loading(broker_id, now):
            return ListGroupsResponse(error_code=Errors.COORDINATOR_LOAD_IN_PROGRESS)
        old = is_old_release(request.broker.release)
        states = {(state if old else state.strip()).lower() for state in request.message.states_filter}
        types = {name.lower() for name in request.message.types_filter}
        rows = [
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type,
            )
            for group in self._coordinator.groups_of(broker_id)
            if (not states or group.state_name.lower() in states) and (not types or group.type in types)
        ]
        return ListGroupsResponse(groups=rows)

    @handles(DESCRIBE_GROUPS)
    def _describe(self, request: Request, now: float) -> DescribeGroupsResponse:
        rows = [self._description(group_id, request, now) for group_id in request.message.groups]
        if request.message.include_authorized_operations:
            for row in rows:
                if row.error_code == Errors.NONE:
                    old = is_old_release(request.broker.release)
                    row.authorized_operations = OLD_GROUP_OPERATIONS if old else GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=rows)

    def _description(self, group_id: str, request: Request, now: float) -> DescribedGroup:
        """Returns the row of one group in DescribeGroups.

        A group that does not exist or is not a classic group has the state Dead and, since version 6, an error.
        """
        try:
            self._coordinator.validate(group_id, request, now, allow_empty_id=True)
        except GroupError as error:
            return DescribedGroup(group_id=group_id, error_code=error.error)
        group = self._coordinator.get(group_id)
        if isinstance(group, ClassicGroup):
            return _classic_description(group)
        row = DescribedGroup(group_id=group_id, group_state=DEAD)
        if request.version >= NOT_FOUND_VERSION:
            row.error_code = Errors.GROUP_ID_NOT_FOUND
            problem = "not found" if group is None else "is not a classic group"
            row.error_message = f"Group {group_id} {problem}."
        return row


def _classic_description(group: ClassicGroup) -> DescribedGroup:
    """Returns the row of a classic group in DescribeGroups.

    If the group is not stable, the row has no protocol and no metadata of members, and before Kafka 4.0 no assignments.
    """
    protocol = group.protocol_name if group.state == STABLE else None
    assigned = group.state == STABLE or not group.coordinator.is_old(group.id)
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[_member_row(member, protocol, assigned=assigned) for member in group.members.values()],
    )


def _member_row(member: ClassicMember, protocol: str | None, *, assigned: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment if assigned else b"",
    )
