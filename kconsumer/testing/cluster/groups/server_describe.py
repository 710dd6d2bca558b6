"""ConsumerGroupDescribe and ShareGroupDescribe: groups whose coordinator assigns partitions, with their members."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kconsumer._common.error_codes import Errors
from kconsumer.schema import CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE
from kconsumer.schema.admin import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from kconsumer.schema.share_group import (
    ShareGroupDescribeGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeResponse,
)
from kconsumer.testing.cluster.acls import TOPIC
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_member import ConsumerMember
from kconsumer.testing.cluster.groups.describe import GROUP_OPERATIONS
from kconsumer.testing.cluster.groups.group import GroupError, GroupHandlers
from kconsumer.testing.cluster.groups.share_group import ASSIGNOR, ShareGroup, ShareMember
from kconsumer.testing.cluster.requests import Request, handles

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
            row.authorized_operations = GROUP_OPERATIONS

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
