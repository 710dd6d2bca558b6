"""The messages ShareFetch and ShareAcknowledge, from partitions and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

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
from kconsumer.share.acknowledgements import AcknowledgementBatch, PartitionAcknowledgements, to_batches
from kconsumer.share.member import ShareMember
from kconsumer.share.session import TopicIdPartition

ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}

Acknowledgements = Sequence[PartitionAcknowledgements]


def fetch_request(
    config: ShareConfig,
    member: ShareMember,
    epoch: int,
    added: Iterable[TopicIdPartition],
    forgotten: Iterable[TopicIdPartition],
    acknowledgements: Acknowledgements,
    max_wait_ms: int,
) -> ShareFetchRequest:
    """Returns the next request of a share session. It names added, forgotten and acknowledged partitions.

    The broker waits up to `max_wait_ms` for records.
    """
    batches = _by_partition(acknowledgements)
    return ShareFetchRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_records=config.max_poll_records,
        batch_size=config.max_poll_records,
        share_acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
        topics=[
            ShareFetchTopic(
                topic_id=topic_id,
                partitions=[
                    ShareFetchPartition(
                        partition_index=row.partition,
                        acknowledgement_batches=[
                            ShareFetchAcknowledgementBatch(
                                first_offset=batch.first_offset,
                                last_offset=batch.last_offset,
                                acknowledge_types=batch.types,
                            )
                            for batch in batches.get(row, ())
                        ],
                    )
                    for row in rows
                ],
            )
            for topic_id, rows in _by_topic({*added, *batches})
        ],
        forgotten_topics_data=[
            ShareForgottenTopic(topic_id=topic_id, partitions=[row.partition for row in rows])
            for topic_id, rows in _by_topic(forgotten)
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
            ShareAcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    ShareAcknowledgePartition(
                        partition_index=row.partition,
                        acknowledgement_batches=[
                            ShareAcknowledgementBatch(
                                first_offset=batch.first_offset,
                                last_offset=batch.last_offset,
                                acknowledge_types=batch.types,
                            )
                            for batch in batches[row]
                        ],
                    )
                    for row in rows
                ],
            )
            for topic_id, rows in _by_topic(batches)
        ],
    )


def _by_partition(acknowledgements: Acknowledgements) -> Mapping[TopicIdPartition, list[AcknowledgementBatch]]:
    types: dict[TopicIdPartition, Mapping[int, int]] = {}
    for each in acknowledgements:
        earlier = types.get(each.partition)
        types[each.partition] = each.types if earlier is None else {**earlier, **each.types}
    return {partition: to_batches(offsets) for partition, offsets in types.items()}


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[bytes, list[TopicIdPartition]]]:
    return [(topic_id, list(rows)) for topic_id, rows in groupby(sorted(partitions), key=lambda row: row.topic_id)]
