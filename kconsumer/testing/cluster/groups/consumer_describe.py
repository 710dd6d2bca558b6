"""ConsumerGroupDescribe: the members, epochs and assignments of groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kconsumer._common.error_codes import Errors
from kconsumer.schema import CONSUMER_GROUP_DESCRIBE, Api
from kconsumer.schema.admin import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from kconsumer.testing.cluster.acls import TOPIC
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_member import ConsumerMember
from kconsumer.testing.cluster.groups.group import GroupError
from kconsumer.testing.cluster.requests import Handler, Request
from kconsumer.testing.cluster.topic import Topic

if TYPE_CHECKING:
    from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
#: The operations on a group as bits: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


class ConsumerDescribeHandler:
    """Handles ConsumerGroupDescribe."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handlers(self) -> Mapping[Api, Handler]:
        """Returns the handler of the API."""
        return {CONSUMER_GROUP_DESCRIBE: self._handle}

    def _handle(self, request: Request, now: float) -> ConsumerGroupDescribeResponse:
        rows = [self._describe(group_id, request, now) for group_id in request.message.group_ids]
        for row in rows:
            self._check_topics(row, request.connection.principal)
        if request.message.include_authorized_operations:
            for row in rows:
                if not row.error_code:
                    row.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=rows)

    def _check_topics(self, row: ConsumerGroupDescribeGroup, principal: str) -> None:
        """Set an error in `row`, and remove its members, if the client may not describe all of their topics.

        These are the topics of the members' present and target assignments.
        """
        acls = self._coordinator.cluster.acls
        if not acls.enabled:
            return
        assignments = (part for member in row.members for part in (member.assignment, member.target_assignment))
        names = sorted({topic.topic_name for assignment in assignments for topic in assignment.topic_partitions})
        if not all(acls.allows(principal, "DESCRIBE", TOPIC, name) for name in names):
            row.error_code, row.members = Errors.TOPIC_AUTHORIZATION_FAILED, []
            row.error_message = "The group has described topic(s) that the client is not authorized to describe."

    def _describe(self, group_id: str, request: Request, now: float) -> ConsumerGroupDescribeGroup:
        """Returns the row of one group in the response: the description of the group, or an error."""
        try:
            self._coordinator.validate(group_id, request, now)
            group = self._coordinator.require(group_id)
            if not isinstance(group, ConsumerGroup):
                raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        except GroupError as error:
            return ConsumerGroupDescribeGroup(
                group_id=group_id, error_code=error.error, error_message=error.message, group_state="", assignor_name=""
            )
        return ConsumerGroupDescribeGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=group.preferred_assignor(),
            members=[self._member(group, member) for member in group.members.values()],
        )

    def _member(self, group: ConsumerGroup, member: ConsumerMember) -> ConsumerGroupDescribeMember:
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

    def _assignment(self, partitions: Mapping[bytes, Collection[int]]) -> ConsumerGroupDescribeAssignment:
        """Returns an assignment in the form of the response. Partitions of deleted topics are left out.

        `partitions`: by topic id.
        """
        topics: Mapping[bytes, Topic] = self._coordinator.cluster.topics_by_id
        return ConsumerGroupDescribeAssignment(
            topic_partitions=[
                ConsumerGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=list(found)
                )
                for topic_id, found in partitions.items()
                if topic_id in topics
            ]
        )
