"""Handles ListGroups and DescribeGroups."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kconsumer._common.error_codes import Errors
from kconsumer.schema.admin import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from kconsumer.schema.share_group import (
    SHARE_GROUP_DESCRIBE,
    ShareGroupDescribeGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeResponse,
)
from kconsumer.testing.cluster.acls import GROUP, TOPIC
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_generation import DEAD, STABLE
from kconsumer.testing.cluster.groups.classic_member import ClassicMember
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_member import ConsumerMember
from kconsumer.testing.cluster.groups.coordinator import GroupHandlers
from kconsumer.testing.cluster.groups.group import is_old_release
from kconsumer.testing.cluster.groups.share_group import ASSIGNOR, ShareGroup, ShareMember
from kconsumer.testing.cluster.requests import GroupError, Request, handles
from kconsumer.testing.cluster.state import ClusterState

NOT_FOUND_VERSION = 6  # of DescribeGroups; before, a missing group is reported as Dead
OLD_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8  # read, delete, describe; before Kafka 4.0


def group_operations(request: Request, cluster: ClusterState, group_id: str) -> int:
    """Returns the operations that the client may perform on a group, as the bits of their numbers."""
    found = cluster.acls.authorized_operations(request.connection.principal, GROUP, group_id)
    return found & OLD_GROUP_OPERATIONS if is_old_release(request.broker.release) else found


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
                    row.authorized_operations = group_operations(request, self._coordinator.cluster, row.group_id)
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


CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
Row = ConsumerGroupDescribeGroup | ShareGroupDescribeGroup


class ServerGroupDescriptions(GroupHandlers):
    """Handles ConsumerGroupDescribe and ShareGroupDescribe."""

    @handles(CONSUMER_GROUP_DESCRIBE)
    def _describe_consumer(self, request: Request, now: float) -> ConsumerGroupDescribeResponse:
        rows = [ConsumerGroupDescribeGroup(group_id=group_id) for group_id in request.message.group_ids]
        for row in rows:
            self._fill(row, request, now)
        return ConsumerGroupDescribeResponse(groups=rows)

    @handles(SHARE_GROUP_DESCRIBE)
    def _describe_share(self, request: Request, now: float) -> ShareGroupDescribeResponse:
        rows = [ShareGroupDescribeGroup(group_id=group_id) for group_id in request.message.group_ids]
        for row in rows:
            self._fill(row, request, now)
        return ShareGroupDescribeResponse(groups=rows)

    def _fill(self, row: Row, request: Request, now: float) -> None:
        """Add the description of a group, or an error, to its row in the response."""
        try:
            self._coordinator.validate(row.group_id, request, now)
            group = self._coordinator.require(row.group_id)
            if isinstance(row, ConsumerGroupDescribeGroup) and isinstance(group, ConsumerGroup):
                row.assignor_name = group.preferred_assignor()
                row.members = [self._consumer_member(group, member) for member in group.members.values()]
            elif isinstance(row, ShareGroupDescribeGroup) and isinstance(group, ShareGroup):
                row.assignor_name = ASSIGNOR
                row.members = [self._share_member(member) for member in group.members.values()]
            else:
                kind = "consumer" if isinstance(row, ConsumerGroupDescribeGroup) else "share"
                raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {row.group_id} is not a {kind} group.")
        except GroupError as error:
            row.error_code, row.error_message = error.error, error.message
            return
        row.group_state, row.group_epoch, row.assignment_epoch = group.state_name, group.epoch, group.target_epoch
        self._check_topics(row, request.connection.principal)
        if request.message.include_authorized_operations and not row.error_code:
            row.authorized_operations = group_operations(request, self._coordinator.cluster, row.group_id)

    def _check_topics(self, row: Row, principal: str) -> None:
        """Set an error in `row`, and remove its members, if the client may not describe all of their topics.

        These are the topics of the members' present and target assignments.
        """
        acls = self._coordinator.cluster.acls
        assignments = [member.assignment for member in row.members]
        assignments += [m.target_assignment for m in row.members if isinstance(m, ConsumerGroupDescribeMember)]
        names = sorted({topic.topic_name for assignment in assignments for topic in assignment.topic_partitions})
        if acls.enabled and not all(acls.allows(principal, "DESCRIBE", TOPIC, name) for name in names):
            row.error_code, row.members = Errors.TOPIC_AUTHORIZATION_FAILED, []
            row.error_message = "The group has described topic(s) that the client is not authorized to describe."

    def _consumer_member(self, group: ConsumerGroup, member: ConsumerMember) -> ConsumerGroupDescribeMember:
        """Returns the row of a member in the response. Partitions that it has not revoked yet count as assigned."""
        assigned: dict[bytes, list[int]] = {}
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, found in partitions.items():
                assigned.setdefault(topic_id, []).extend(sorted(found))
        return ConsumerGroupDescribeMember(
            member_id=member.id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            assignment=self._assignment(assigned),
            target_assignment=self._assignment(group.target.get(member.id, {})),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _share_member(self, member: ShareMember) -> ShareGroupDescribeMember:
        return ShareGroupDescribeMember(
            member_id=member.id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            assignment=self._assignment({topic_id: sorted(found) for topic_id, found in member.assigned.items()}),
        )

    def _assignment(self, partitions: Mapping[bytes, Collection[int]]) -> ConsumerGroupDescribeAssignment:
        """Returns an assignment in the form of the response. Partitions of deleted topics are left out.

        `partitions`: by topic id.
        """
        topics = self._coordinator.cluster.topics_by_id
        return ConsumerGroupDescribeAssignment(
            topic_partitions=[
                ConsumerGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=list(found)
                )
                for topic_id, found in partitions.items()
                if topic_id in topics
            ]
        )
