"""ShareGroupDescribe: the members, epochs and assignments of share groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kconsumer._common.error_codes import Errors
from kconsumer.schema import SHARE_GROUP_DESCRIBE, Api
from kconsumer.schema.share_group import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribeGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)
from kconsumer.testing.cluster.acls import TOPIC
from kconsumer.testing.cluster.groups.consumer_describe import GROUP_OPERATIONS
from kconsumer.testing.cluster.groups.group import GroupError
from kconsumer.testing.cluster.groups.share_group import ASSIGNOR, ShareGroup, ShareMember
from kconsumer.testing.cluster.requests import Handler, Request

if TYPE_CHECKING:
    from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator


class ShareDescribeHandler:
    """Handles ShareGroupDescribe."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handlers(self) -> Mapping[Api, Handler]:
        """Returns the handler of the API."""
        return {SHARE_GROUP_DESCRIBE: self._handle}

    def _handle(self, request: Request, now: float) -> ShareGroupDescribeResponse:
        rows = [self._describe(group_id, request, now) for group_id in request.message.group_ids]
        for row in rows:
            self._check_topics(row, request.connection.principal)
            if request.message.include_authorized_operations and not row.error_code:
                row.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=rows)

    def _check_topics(self, row: ShareGroupDescribeGroup, principal: str) -> None:
        """Set an error in `row`, and remove its members, if the client may not describe all of their topics."""
        acls = self._coordinator.cluster.acls
        if not acls.enabled:
            return
        names = {topic.topic_name for member in row.members for topic in member.assignment.topic_partitions}
        if not all(acls.allows(principal, "DESCRIBE", TOPIC, name) for name in sorted(names)):
            row.error_code, row.members = Errors.TOPIC_AUTHORIZATION_FAILED, []
            row.error_message = "The group has described topic(s) that the client is not authorized to describe."

    def _describe(self, group_id: str, request: Request, now: float) -> ShareGroupDescribeGroup:
        """Returns the row of one group in the response: the description of the group, or an error."""
        try:
            self._coordinator.validate(group_id, request, now)
            group = self._coordinator.require(group_id)
            if not isinstance(group, ShareGroup):
                raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        except GroupError as error:
            return ShareGroupDescribeGroup(group_id=group_id, error_code=error.error, error_message=error.message)
        return ShareGroupDescribeGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=ASSIGNOR,
            members=[self._member(member) for member in group.members.values()],
        )

    def _member(self, member: ShareMember) -> ShareGroupDescribeMember:
        """Returns the row of a member in the response. Partitions of deleted topics are left out."""
        topics = self._coordinator.cluster.topics_by_id
        return ShareGroupDescribeMember(
            member_id=member.id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            assignment=ShareGroupDescribeAssignment(
                topic_partitions=[
                    ShareGroupDescribeTopicPartitions(
                        topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(found)
                    )
                    for topic_id, found in member.assigned.items()
                    if topic_id in topics
                ]
            ),
        )
