"""Handles DeleteGroups and OffsetDelete."""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.group_deletion import (
    DELETE_GROUPS,
    OFFSET_DELETE,
    DeletableGroupResult,
    DeleteGroupsResponse,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kconsumer.testing.cluster.groups.coordinator import GroupHandlers
from kconsumer.testing.cluster.groups.group import Group
from kconsumer.testing.cluster.groups.offset_commits import KnownPartition, PartitionErrors, known_partitions
from kconsumer.testing.cluster.requests import GroupError, Request, handles


class GroupDeletion(GroupHandlers):
    """Handles DeleteGroups and OffsetDelete."""

    # --- DeleteGroups ---

    @handles(DELETE_GROUPS)
    def _delete_groups(self, request: Request, now: float) -> DeleteGroupsResponse:
        names = dict.fromkeys(request.message.groups_names)
        return DeleteGroupsResponse(results=[self._delete_group(name, request, now) for name in names])

    def _delete_group(self, group_id: str, request: Request, now: float) -> DeletableGroupResult:
        """Delete a group, its committed offsets, and its offsets in open transactions.

        Returns the row of the group in the response, with the error if the group must not be deleted.
        """
        try:
            self._coordinator.validate(group_id, request, now, allow_empty_id=True)
            self._coordinator.require(group_id).validate_delete()
        except GroupError as error:
            return DeletableGroupResult(group_id=group_id, error_code=error.error)
        self._coordinator.delete(group_id, now)
        return DeletableGroupResult(group_id=group_id)

    # --- OffsetDelete ---

    @handles(OFFSET_DELETE)
    def _delete_offsets(self, request: Request, now: float) -> OffsetDeleteResponse:
        errors = PartitionErrors()
        message = request.message
        partitions = known_partitions(self._coordinator.cluster, message.topics, errors)
        try:
            self._coordinator.validate(message.group_id, request, now)
            group = self._coordinator.require(message.group_id)
            group.validate_offset_delete()
        except GroupError as error:
            return OffsetDeleteResponse(error_code=error.error)
        for partition in partitions:
            errors.add(partition.row, partition.index, self._delete_offset(group, partition))
        return OffsetDeleteResponse(topics=[_response_topic(*item) for item in errors.topics.items()])

    def _delete_offset(self, group: Group, partition: KnownPartition) -> int:
        """Delete one offset, unless the group subscribes to its topic. Returns the error code."""
        topic = partition.topic.name
        if group.is_subscribed_to(topic):
            return Errors.GROUP_SUBSCRIBED_TO_TOPIC
        self._coordinator.cluster.offsets.remove(group.id, topic, partition.index)
        return Errors.NONE


def _response_topic(key: tuple[str, bytes], rows: list[tuple[int, int]]) -> OffsetDeleteResponseTopic:
    partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=error) for index, error in rows]
    return OffsetDeleteResponseTopic(name=key[0], partitions=partitions)
