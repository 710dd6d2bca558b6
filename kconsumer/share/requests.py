"""The messages ShareFetch and ShareAcknowledge, from partitions and acknowledgements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kconsumer.config.option_groups import ShareConfig
from kconsumer.schema.share_group import (
    ShareAcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchAcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from kconsumer.share.acknowledgements import AcknowledgementBatch, PartitionAcknowledgements, merged_batches, to_batches
from kconsumer.share.member import ShareMember
from kconsumer.share.session import TopicIdPartition

ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}

Acknowledgements = Sequence[PartitionAcknowledgements]


def fetch_request(
    config: ShareConfig,
    member: ShareMember,
    epoch: int,
    added: Iterable[TopicIdPartition],
    forgotten: Collection[TopicIdPartition],
    acknowledgements: Acknowledgements,
    max_wait_ms: int,
    polls: int = 1,
    limit: int | None = None,
) -> ShareFetchRequest:
    """Returns the next request of a share session. It names added, forgotten and acknowledged partitions.

    The broker waits up to `max_wait_ms` for records, and acquires those of about this many `polls`, or with `limit` at
    most this number of records.
    """
    poll_records = config.max_poll_records if limit is None else limit
    batches = _by_partition(acknowledgements)
    return ShareFetchRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_records=polls * poll_records,
        batch_size=poll_records,
        share_acquire_mode=ACQUIRE_MODES["record_limit" if limit is not None else config.share_acquire_mode],
        topics=[
            ShareFetchTopic(topic_id=topic_id, partitions=[_fetched(row, batches.get(row, ())) for row in rows])
            for topic_id, rows in _by_topic({*added, *batches}).items()
        ],
        forgotten_topics_data=[
            ShareForgottenTopic(topic_id=topic_id, partitions=[row.partition for row in rows])
            for topic_id, rows in (_by_topic(forgotten).items() if forgotten else ())
        ],
    )


def acknowledge_request(member: ShareMember, epoch: int, acknowledgements: Acknowledgements) -> ShareAcknowledgeRequest:
    """Returns the request that acknowledges records without fetching."""
    batches = _by_partition(acknowledgements)
    return ShareAcknowledgeRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(each.renews for each in acknowledgements),
        topics=[
            ShareAcknowledgeTopic(topic_id=topic_id, partitions=[_acknowledged(row, batches[row]) for row in rows])
            for topic_id, rows in _by_topic(batches).items()
        ],
    )


def _fetched(row: TopicIdPartition, batches: Iterable[AcknowledgementBatch]) -> ShareFetchPartition:
    return ShareFetchPartition(
        partition_index=row.partition,
        acknowledgement_batches=[
            ShareFetchAcknowledgementBatch(
                first_offset=batch.first_offset, last_offset=batch.last_offset, acknowledge_types=batch.types
            )
            for batch in batches
        ],
    )


def _acknowledged(row: TopicIdPartition, batches: Iterable[AcknowledgementBatch]) -> ShareAcknowledgePartition:
    return ShareAcknowledgePartition(
        partition_index=row.partition,
        acknowledgement_batches=[
            ShareAcknowledgementBatch(
                first_offset=batch.first_offset, last_offset=batch.last_offset, acknowledge_types=batch.types
            )
            for batch in batches
        ],
    )


def _by_partition(acknowledgements: Acknowledgements) -> Mapping[TopicIdPartition, list[AcknowledgementBatch]]:
    if len(acknowledgements) == 1:
        (only,) = acknowledgements
        return {only.batch.partition: to_batches(only.types)}
    types: dict[TopicIdPartition, list[Mapping[int, int]]] = {}
    for each in acknowledgements:
        types.setdefault(each.batch.partition, []).append(each.types)
    return {partition: merged_batches(found) for partition, found in types.items()}


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[TopicIdPartition]]:
    """Returns the partitions by topic id, sorted."""
    topics: dict[bytes, list[TopicIdPartition]] = {}
    for row in sorted(partitions):
        topics.setdefault(row.topic_id, []).append(row)
    return topics
