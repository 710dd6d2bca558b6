"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets: the start offsets of share groups."""

from __future__ import annotations

from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.share_group import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kconsumer.testing.cluster.acls import TOPIC
from kconsumer.testing.cluster.authorizer import ERRORS, REFUSED
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
from kconsumer.testing.cluster.groups.share_group import ShareGroup
from kconsumer.testing.cluster.requests import GroupError, Request, handles
from kconsumer.testing.cluster.share_states import UNINITIALIZED


class ShareOffsets:
    """Handles the APIs of start offsets."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator, self._cluster = coordinator, coordinator.cluster

    # --- DescribeShareGroupOffsets ---

    @handles(DESCRIBE_SHARE_GROUP_OFFSETS)
    def _describe(self, request: Request, now: float) -> DescribeShareGroupOffsetsResponse:
        rows = [self._describe_group(group, request, now) for group in request.message.groups]
        return DescribeShareGroupOffsetsResponse(groups=rows)

    def _describe_group(self, asked: Any, request: Request, now: float) -> DescribeShareGroupOffsetsResponseGroup:
        """Returns the row of one group. A partition whose state was not initialized has the start offset -1."""
        row = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        try:
            self._coordinator.validate(asked.group_id, request, now)
        except GroupError as error:
            row.error_code, row.error_message = error.error, error.message
            return row
        topics = self._cluster.topics
        if asked.topics is None:
            found = self._cluster.share_states.topics_of(asked.group_id)
            names = {topic.name: topic.id for topic in topics.values() if topic.id in found}
            partitions = {name: sorted(found[topic_id]) for name, topic_id in names.items()}
        else:
            partitions = {topic.topic_name: list(topic.partitions) for topic in asked.topics}
        for name, indexes in partitions.items():
            if not self._cluster.acls.allowed(request, "DESCRIBE", TOPIC, name):
                if asked.topics is not None:
                    row.topics.append(_not_described(name, indexes))
                continue
            topic_id = topics[name].id if name in topics else ZERO_UUID
            rows = [self._start_offset(asked.group_id, topic_id, index) for index in indexes]
            row.topics.append(
                DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=rows)
            )
        return row

    def _start_offset(self, group_id: str, topic_id: bytes, index: int) -> DescribeShareGroupOffsetsResponsePartition:
        stored = self._cluster.share_states.get(group_id, topic_id, index)
        if stored is None or stored.start_offset == UNINITIALIZED:
            return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNINITIALIZED)
        log = self._cluster.topics_by_id[topic_id].partitions[index].log
        lag = max(0, log.high_watermark - stored.start_offset - stored.complete)
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=stored.start_offset, lag=lag
        )

    # --- AlterShareGroupOffsets ---

    @handles(ALTER_SHARE_GROUP_OFFSETS)
    def _alter(self, request: Request, now: float) -> AlterShareGroupOffsetsResponse:
        message = request.message
        allowed = {topic.topic_name: self._may_read(request, topic.topic_name) for topic in message.topics}
        try:
            if any(allowed.values()) or not message.topics:
                self._empty_group(request, now, create=True)
        except GroupError as error:
            return AlterShareGroupOffsetsResponse(error_code=error.error, error_message=error.message)
        return AlterShareGroupOffsetsResponse(
            responses=[
                self._alter_topic(message.group_id, topic, allowed=allowed[topic.topic_name])
                for topic in message.topics
            ]
        )

    def _may_read(self, request: Request, topic: str) -> bool:
        return self._cluster.acls.allowed(request, "READ", TOPIC, topic)

    def _alter_topic(self, group_id: str, asked: Any, *, allowed: bool) -> AlterShareGroupOffsetsResponseTopic:
        """Set the start offsets of a topic's partitions, if the client may read it. What was in flight is forgotten."""
        topic = self._cluster.topics.get(asked.topic_name)
        row = AlterShareGroupOffsetsResponseTopic(
            topic_name=asked.topic_name, topic_id=ZERO_UUID if topic is None else topic.id
        )
        for partition in asked.partitions:
            found = AlterShareGroupOffsetsResponsePartition(partition_index=partition.partition_index)
            if not allowed:
                found.error_code, found.error_message = ERRORS[TOPIC], REFUSED
            elif topic is None or not 0 <= partition.partition_index < len(topic.partitions):
                found.error_code = Errors.UNKNOWN_TOPIC_OR_PARTITION
                found.error_message = "This server does not host this topic-partition."
            else:
                self._cluster.share_states.initialize(
                    group_id, topic.id, partition.partition_index, partition.start_offset
                )
            row.partitions.append(found)
        return row

    # --- DeleteShareGroupOffsets ---

    @handles(DELETE_SHARE_GROUP_OFFSETS)
    def _delete(self, request: Request, now: float) -> DeleteShareGroupOffsetsResponse:
        message = request.message
        try:
            self._empty_group(request, now, create=False)
        except GroupError as error:
            return DeleteShareGroupOffsetsResponse(error_code=error.error, error_message=error.message)
        return DeleteShareGroupOffsetsResponse(
            responses=[self._delete_topic(request, topic.topic_name) for topic in message.topics]
        )

    def _delete_topic(self, request: Request, name: str) -> DeleteShareGroupOffsetsResponseTopic:
        """Remove the state of a topic, if the client may read it."""
        group_id = request.message.group_id
        if not self._may_read(request, name):
            return DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, error_code=ERRORS[TOPIC], error_message=REFUSED
            )
        topic = self._cluster.topics.get(name)
        store = self._cluster.share_states
        if topic is None or topic.id not in store.topics_of(group_id):
            return DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION,
                error_message="There is no offset information to delete.",
            )
        store.remove_topic(group_id, topic.id)
        return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic.id)

    def _empty_group(self, request: Request, now: float, *, create: bool) -> ShareGroup:
        """Returns the share group of a request. Adds it if there is none and `create` is True.

        Raises GroupError if the group is missing, if it has members, or if it has another type.
        """
        group_id = request.message.group_id
        self._coordinator.validate(group_id, request, now)
        group = self._coordinator.get(group_id)
        if group is None and create:
            group = ShareGroup(self._coordinator, group_id)
            self._coordinator.add(group)
        if not isinstance(group, ShareGroup):
            raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not group.is_empty:
            raise GroupError(Errors.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        return group


def _not_described(name: str, indexes: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    """Returns the row of a topic that the client may not describe."""
    rows = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=UNINITIALIZED, error_code=ERRORS[TOPIC], error_message=REFUSED
        )
        for index in indexes
    ]
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=rows)
