"""Handles DeleteGroups and OffsetDelete, and removes expired offsets, and then empty groups without offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from kconsumer.testing.cluster.groups.group import Group, GroupError
from kconsumer.testing.cluster.groups.offset_commits import KnownPartition, PartitionErrors, known_partitions
from kconsumer.testing.cluster.groups.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.timers import Timer

if TYPE_CHECKING:
    from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator


class GroupDeletion:
    """Handles DeleteGroups and OffsetDelete. Removes expired offsets, and empty groups without offsets."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._settings = coordinator.cluster.settings
        self._timer: Timer | None = None

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
        self._coordinator.offsets.remove(group.id, topic, partition.index)
        return Errors.NONE

    # --- expiry ---

    def start_timer(self, now: float) -> None:
        """Start the timer that removes expired offsets and empty groups. Does nothing if the timer runs.

        After each check, the timer starts again if there are groups.
        """
        if self._timer is None:
            interval = self._settings.offsets_retention_check_interval_ms
            self._timer = self._coordinator.cluster.timers.add(now + interval, self._check)

    def _check(self, now: float) -> None:
        """Remove offsets that have expired, and empty groups without offsets."""
        self._timer = None
        for group in self._coordinator.loaded_groups():
            self._expire_offsets(group, now)
            store = self._coordinator.offsets
            has_offsets = bool(store.of_group(group.id)) or store.has_open_transactions(group.id)
            if group.is_empty and not has_offsets:
                self._coordinator.delete(group.id, now)
        if self._coordinator.has_groups():
            self.start_timer(now)

    def _expire_offsets(self, group: Group, now: float) -> None:
        """Remove the offsets of one group whose retention time has passed."""
        store = self._coordinator.offsets
        wall_ms = self._coordinator.cluster.wall_ms(now)
        expired = [
            (topic, index)
            for topic, offsets in store.of_group(group.id).items()
            if not group.is_subscribed_to(topic)
            for index, offset in offsets.items()
            if self._has_expired(group, offset, wall_ms) and not store.is_pending(group.id, topic, index)
        ]
        for topic, index in expired:
            store.remove(group.id, topic, index)

    def _has_expired(self, group: Group, offset: CommittedOffset, wall_ms: int) -> bool:
        """Returns whether the retention time of an offset has passed.

        This is the retention time that the broker's settings set, or that the client has set for the offset
        (OffsetCommit version 2 to 4).
        """
        start = group.retention_start(offset)
        if start is None:
            return False
        if offset.expire_ms is not None:
            return wall_ms >= offset.expire_ms
        return wall_ms - start >= self._settings.offsets_retention_minutes * 60_000


def _response_topic(key: tuple[str, bytes], rows: list[tuple[int, int]]) -> OffsetDeleteResponseTopic:
    partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=error) for index, error in rows]
    return OffsetDeleteResponseTopic(name=key[0], partitions=partitions)
