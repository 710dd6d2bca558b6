"""OffsetFetch: the committed offsets of one or several groups, by topic name or topic id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.offsets import (
    OFFSET_FETCH,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kconsumer.testing.cluster.groups.coordinator import GroupHandlers
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError, Request, handles

GROUPS_VERSION = 8
TOPIC_IDS_VERSION = 10
GROUP_ERROR_VERSION = 2  # before, each partition has the error of the group
NO_OFFSET = -1


class OffsetFetches(GroupHandlers):
    """Handles OffsetFetch."""

    @handles(OFFSET_FETCH)
    def _fetch(self, request: Request, now: float) -> OffsetFetchResponse:
        if request.version >= GROUPS_VERSION:
            return OffsetFetchResponse(groups=[self._group(row, request, now) for row in request.message.groups])
        group = self._group(_single_group(request), request, now)
        topics = [_single_group_topic(topic) for topic in group.topics]
        return OffsetFetchResponse(error_code=group.error_code, topics=topics)

    def _group(self, row: OffsetFetchRequestGroup, request: Request, now: float) -> OffsetFetchResponseGroup:
        """Returns the row of one group in the response: its offsets, or an error."""
        try:
            self._coordinator.validate(row.group_id, request, now, allow_empty_id=True)
            group = self._coordinator.get(row.group_id)
            if group is not None:
                group.validate_offset_fetch(row.member_id, row.member_epoch)
        except GroupError as error:
            in_partitions = request.version < GROUP_ERROR_VERSION
            topics = _with_error(row.topics, error.error) if in_partitions else []
            return OffsetFetchResponseGroup(group_id=row.group_id, error_code=error.error, topics=topics)
        by_id = request.version >= TOPIC_IDS_VERSION
        stable = request.message.require_stable
        if row.topics is None:
            topics = self._all_topics(row.group_id, stable=stable, by_id=by_id)
        else:
            topics = self._topics(row.group_id, row.topics, stable=stable, by_id=by_id)
        return OffsetFetchResponseGroup(group_id=row.group_id, topics=topics)

    def _topics(self, group_id: str, topics: Sequence[Any], *, stable: bool, by_id: bool) -> list[Any]:
        """Returns rows for the topics that the request names. The rows of unknown topic ids come last."""
        known, unknown = [], []
        for row in topics:
            name = row.name
            if by_id:
                topic = self._coordinator.cluster.topics_by_id.get(row.topic_id)
                if topic is None:
                    unknown.append(row)
                    continue
                name = topic.name
            partitions = [self._partition(group_id, name, index, stable=stable) for index in row.partition_indexes]
            known.append(OffsetFetchResponseTopics(name=name, topic_id=row.topic_id, partitions=partitions))
        return known + _with_error(unknown, Errors.UNKNOWN_TOPIC_ID)

    def _all_topics(self, group_id: str, *, stable: bool, by_id: bool) -> list[Any]:
        """Returns rows for all committed offsets of a group.

        If the response has topic ids (`by_id`), deleted topics are left out.
        """
        rows = []
        for name, offsets in self._coordinator.cluster.offsets.of_group(group_id).items():
            topic = self._coordinator.cluster.topics.get(name)
            if by_id and topic is None:
                continue
            partitions = [self._partition(group_id, name, index, stable=stable) for index in offsets]
            topic_id = ZERO_UUID if topic is None else topic.id
            rows.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
        return rows

    def _partition(self, group_id: str, topic: str, index: int, *, stable: bool) -> OffsetFetchResponsePartitions:
        """Returns the row of one partition, with its committed offset.

        If `stable` is True and an open transaction has an offset of the partition, the row has UNSTABLE_OFFSET_COMMIT
        instead.
        """
        store = self._coordinator.cluster.offsets
        if stable and store.is_pending(group_id, topic, index):
            return _partition_row(index, None, Errors.UNSTABLE_OFFSET_COMMIT)
        return _partition_row(index, store.get(group_id, topic, index))


def _partition_row(
    index: int, offset: CommittedOffset | None, error: int = Errors.NONE
) -> OffsetFetchResponsePartitions:
    """Returns the row of one partition. If `offset` is None, the row has the offset -1 and empty metadata."""
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET if offset is None else offset.offset,
        committed_leader_epoch=-1 if offset is None else offset.leader_epoch,
        metadata="" if offset is None else offset.metadata,
        error_code=error,
    )


def _with_error(topics: Sequence[Any] | None, error: int) -> list[OffsetFetchResponseTopics]:
    """Returns response rows for the topics of a request, with the same error in every partition."""
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_partition_row(index, None, error) for index in topic.partition_indexes],
        )
        for topic in topics or ()
    ]


def _single_group(request: Request) -> OffsetFetchRequestGroup:
    """Returns the group of a request in a version below 8, as a row of the newer versions."""
    message = request.message
    topics = message.topics
    if topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics
        ]
    return OffsetFetchRequestGroup(group_id=message.group_id, topics=topics)


def _single_group_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """Returns the row of a topic in the form of versions below 8. `topic`: the row in the form of newer versions."""
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=row.partition_index,
            committed_offset=row.committed_offset,
            committed_leader_epoch=row.committed_leader_epoch,
            metadata=row.metadata,
            error_code=row.error_code,
        )
        for row in topic.partitions
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
