"""Builds OffsetCommit and OffsetFetch requests and reads the error codes of OffsetCommit.

A request identifies topics by id if the caller passes ids, else by name. The group protocol decides which ids are
passed (`commit_protocol.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kconsumer.coordinator.group_member import Generation
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition

LAST_VERSION_WITH_NAMES = 9  # of OffsetCommit and OffsetFetch
LAST_VERSION = 32767  # no limit

Ids = Mapping[TopicPartition, bytes]  # the topic id of each partition; empty if the request has topic names


def last_version(ids: Ids) -> int:
    """Returns the highest version of OffsetCommit and OffsetFetch that a request may have.

    If `ids` is empty, this is the last version that has topic names.
    """
    return LAST_VERSION if ids else LAST_VERSION_WITH_NAMES


def name_of(topic: object, ids: Ids) -> str | None:
    """Returns the name of a topic in a response, or None if the topic id was not in the request."""
    topic_id: bytes = getattr(topic, "topic_id", ZERO_UUID)
    if topic_id == ZERO_UUID:
        return str(getattr(topic, "name", ""))
    return next((tp.topic for tp, known in ids.items() if known == topic_id), None)


def commit_message(
    group_id: str,
    generation: Generation,
    instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ids: Ids,
) -> OffsetCommitRequest:
    topics: dict[tuple[str, bytes], list[OffsetCommitRequestPartition]] = defaultdict(list)
    for tp, offset in offsets.items():
        topics[tp.topic, ids.get(tp, ZERO_UUID)].append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation.id,
        member_id=generation.member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )


def offset_fetch_message(
    group_id: str, generation: Generation, partitions: Iterable[TopicPartition], ids: Ids
) -> OffsetFetchRequest:
    """Returns an OffsetFetch request for these partitions.

    The request contains the group twice: in `groups` for version 8 and later, and in the top-level fields for earlier
    versions.
    """
    topics: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic, ids.get(tp, ZERO_UUID)].append(tp.partition)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=generation.member_id or None,
        member_epoch=generation.id,
        topics=[
            OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=numbers)
            for (name, topic_id), numbers in topics.items()
        ],
    )
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for (name, _), numbers in topics.items()],
        groups=[group],
        require_stable=True,
    )


def commit_codes(message: OffsetCommitResponse, ids: Ids) -> dict[TopicPartition, int]:
    """Returns the error code of each partition, in the order of the response.

    Topics whose id is not in `ids` are left out.
    """
    return {
        TopicPartition(name, partition.partition_index): partition.error_code
        for topic in message.topics
        if (name := name_of(topic, ids)) is not None
        for partition in topic.partitions
    }
