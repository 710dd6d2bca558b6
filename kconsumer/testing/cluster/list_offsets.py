"""Handles ListOffsets and OffsetForLeaderEpoch: lookups of offsets by time and by leader epoch."""

from __future__ import annotations

from collections import Counter

from kconsumer._common.error_codes import Errors
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kconsumer.testing.cluster.fetch_reads import READ_COMMITTED, PartitionError, check_leader_epoch, find_partition
from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.state import ClusterHandlers
from kconsumer.testing.cluster.topic import Partition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: The first version with each special timestamp.
SPECIAL = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
DEBUGGING_REPLICA = -2  # may ask followers
CONSUMER = -1
NOT_AVAILABLE_ERROR = 5  # the first version with OFFSET_NOT_AVAILABLE


class ListOffsetsHandlers(ClusterHandlers):
    """Handles ListOffsets and OffsetForLeaderEpoch."""

    # --- ListOffsets ---

    @handles(LIST_OFFSETS)
    def _list_offsets(self, request: Request, _: float) -> ListOffsetsResponse:
        topics = request.message.topics
        counts = Counter((topic.name, asked.partition_index) for topic in topics for asked in topic.partitions)
        response = ListOffsetsResponse()
        for topic in topics:
            rows = [
                self._row(request, topic.name, asked, counts[topic.name, asked.partition_index])
                for asked in topic.partitions
            ]
            if is_at_least(request.broker.release, "4.0"):  # one row for a partition that occurs several times
                rows = list({row.partition_index: row for row in rows}.values())
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return response

    def _row(
        self, request: Request, topic: str, asked: ListOffsetsPartition, count: int
    ) -> ListOffsetsPartitionResponse:
        """Returns the response row of a partition. `count`: how often the partition is in the request.

        If it is there more than once, the row has the error INVALID_REQUEST.
        """
        try:
            if count > 1:
                raise PartitionError(Errors.INVALID_REQUEST)
            if asked.timestamp < 0 and request.version < SPECIAL.get(asked.timestamp, 1 << 15):
                raise PartitionError(Errors.UNSUPPORTED_VERSION)
            return self._lookup(request, topic, asked)
        except PartitionError as error:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)

    def _lookup(self, request: Request, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """Returns the response row with the offset for the requested timestamp.

        The row has no offset if no record matches. Raises PartitionError if the lookup fails.
        """
        message: ListOffsetsRequest = request.message
        broker_id = request.broker.id
        partition = find_partition(self._cluster, broker_id, topic, asked.partition_index)
        check_leader_epoch(partition, asked.current_leader_epoch)
        if partition.leader != broker_id and message.replica_id != DEBUGGING_REPLICA:
            raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)
        row = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        log = partition.log
        end = log.end
        lagging = False
        if message.replica_id == CONSUMER:
            end = log.last_stable_offset if message.isolation_level == READ_COMMITTED else log.high_watermark
            lagging = partition.leader_epoch_start > log.high_watermark
        if asked.timestamp == LATEST:
            found: tuple[int, int, int] | None = (-1, end, partition.leader_epoch)
        else:
            found = _find(partition, asked.timestamp)
        exact = asked.timestamp in (EARLIEST, EARLIEST_LOCAL)
        beyond = found is None or (found[1] >= end and asked.timestamp != LATEST)
        if lagging and (asked.timestamp == LATEST or (beyond and not exact)):
            supported = request.version >= NOT_AVAILABLE_ERROR
            raise PartitionError(Errors.OFFSET_NOT_AVAILABLE if supported else Errors.LEADER_NOT_AVAILABLE)
        if found is not None and (exact or not beyond):
            row.timestamp, row.offset, row.leader_epoch = found
        return row

    # --- OffsetForLeaderEpoch ---

    @handles(OFFSET_FOR_LEADER_EPOCH)
    def _offset_for_leader_epoch(self, request: Request, _: float) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._epoch_end(request.broker.id, topic.topic, asked) for asked in topic.partitions],
                )
                for topic in request.message.topics
            ]
        )

    def _epoch_end(self, broker_id: int, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        """Returns the response row of a partition.

        It contains the largest leader epoch that is not larger than the requested one, and the end offset of that
        epoch, or an error code.
        """
        try:
            partition = find_partition(self._cluster, broker_id, topic, asked.partition)
            check_leader_epoch(partition, asked.current_leader_epoch)
            if partition.leader != broker_id:
                raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)
        except PartitionError as error:
            return EpochEndOffset(partition=asked.partition, error_code=error.code)
        found = partition.log.end_offset_for(asked.leader_epoch) or (-1, -1)
        return EpochEndOffset(partition=asked.partition, leader_epoch=found[0], end_offset=found[1])


def _find(partition: Partition, timestamp: int) -> tuple[int, int, int] | None:
    """Returns timestamp, offset and leader epoch of the record that `timestamp` selects, or None if none matches.

    `timestamp` is a time in ms, or a special value other than LATEST. For the special values that select tiered
    records, the result is (-1, -1, -1), because the model has no tiered records.
    """
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        entries = log.epochs.entries()
        return -1, log.start, entries[0][0] if entries and entries[0][1] <= log.start else -1
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    return log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
