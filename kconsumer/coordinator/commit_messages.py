"""What OffsetCommit and OffsetFetch say: topics by name, or by id in the protocol of KIP-848.

An id is better than a name for what was read: a topic that was deleted and made anew has the same name, and offsets of
the old one mean nothing in it. Ids are used if all of a request's are known (as in Java).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from kconsumer.coordinator.classic_protocol.state import Generation
from kconsumer.metadata.manager import MetadataManager
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
from kconsumer.state.cluster import Cluster
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import OffsetAndMetadata, TopicPartition

LAST_VERSION_WITH_NAMES = 9
LAST_VERSION = 32767


Ids = Mapping[TopicPartition, bytes]


class TopicIds:
    """The ids of a consumer's topics. Each answer has all that was asked for, or nothing."""

    def __init__(self, cluster: Cluster, subscription: SubscriptionState, metadata: MetadataManager) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._metadata = metadata

    def consumed(self, partitions: Collection[TopicPartition]) -> Ids:
        """Of the topics from which positions come, whatever these topics' names mean by now."""
        return _all_or_none(partitions, self._consumed)

    def present(self, partitions: Collection[TopicPartition]) -> Ids:
        """Of the topics as they are now."""
        return _all_or_none(partitions, lambda tp: self._cluster.topic_id(tp.topic))

    def outdated(self, ids: Ids) -> bool:
        """Whether one of these is known to be no more: its topic has another id now."""
        return any(self._cluster.topic_id(tp.topic) not in (None, topic_id) for tp, topic_id in ids.items())

    def unknown(self) -> None:
        """A coordinator does not know one of them: perhaps it is ours that are old."""
        self._metadata.request_update()

    def _consumed(self, tp: TopicPartition) -> bytes | None:
        state = self._subscription.find(tp)
        read_from = None if state is None else state.topic_id
        return read_from or self._cluster.topic_id(tp.topic)


def _all_or_none(partitions: Collection[TopicPartition], find: Callable[[TopicPartition], bytes | None]) -> Ids:
    found = {tp: topic_id for tp in partitions if (topic_id := find(tp)) is not None}
    return found if len(found) == len(partitions) else {}


def last_version(ids: Ids) -> int:
    """The newest version that can be sent with these ids, or without any."""
    return LAST_VERSION if ids else LAST_VERSION_WITH_NAMES


def name_of(topic: object, ids: Ids) -> str | None:
    """The topic that an answer speaks of; None for an id that was not asked for."""
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
    """OffsetCommit of these offsets."""
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


def lookup_message(
    group_id: str, asking: Generation, partitions: Iterable[TopicPartition], ids: Ids
) -> OffsetFetchRequest:
    """OffsetFetch of these partitions; versions below 8 carry one group in place of the list."""
    topics: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic, ids.get(tp, ZERO_UUID)].append(tp.partition)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=asking.member_id or None,
        member_epoch=asking.id,
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
    """The error code of each partition in the response, in its order; a topic id that was not sent is ignored."""
    return {
        TopicPartition(name, partition.partition_index): partition.error_code
        for topic in message.topics
        if (name := name_of(topic, ids)) is not None
        for partition in topic.partitions
    }
