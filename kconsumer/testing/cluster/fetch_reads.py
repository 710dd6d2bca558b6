"""Reads one partition for a Fetch request: which broker serves it, which records are read, and which errors it gets.

`fetch` decides how long a request waits. `fetch_sessions` decides which partitions a request reads.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import AbortedTransaction, FetchEpochEndOffset, FetchPartitionData, FetchRequest
from kconsumer.testing.cluster.fetch_sessions import FetchRow
from kconsumer.testing.cluster.quotas import Quotas
from kconsumer.testing.cluster.requests import Request
from kconsumer.testing.cluster.settings import RACK_AWARE
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.topic import Partition

READ_COMMITTED = 1
FROM_FOLLOWERS = 11  # the first version in which a consumer may fetch from a follower (KIP-392)


class PartitionError(Exception):
    """Raised if a partition cannot be read. `code` is the error code of its result."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def check_leader_epoch(partition: Partition, asked_epoch: int) -> None:
    """Raise PartitionError if a client has another leader epoch than the partition.

    `asked_epoch`: the epoch that the client has. If it is -1, the client has none, and nothing is checked.
    """
    if asked_epoch >= 0 and asked_epoch != partition.leader_epoch:
        older = asked_epoch < partition.leader_epoch
        raise PartitionError(Errors.FENCED_LEADER_EPOCH if older else Errors.UNKNOWN_LEADER_EPOCH)


def find_partition(cluster: ClusterState, broker_id: int, topic: str, index: int) -> Partition:
    """Returns a partition. Raises PartitionError if it does not exist, or if the broker has no replica of it."""
    partition = cluster.partition(topic, index)
    if partition is None:
        raise PartitionError(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)
    return partition


def failed(index: int, code: int) -> FetchPartitionData:
    """Returns the result of a partition that cannot be read. `code`: the error code of the result."""
    return FetchPartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


class PartitionReader:
    """Reads partitions for one Fetch request."""

    def __init__(self, cluster: ClusterState, quotas: Quotas, request: Request) -> None:
        message: FetchRequest = request.message
        limit = min(message.max_bytes, cluster.settings.fetch_max_bytes)
        self.max_bytes = quotas.max_fetch_bytes(request, limit)
        self.min_bytes = min(message.min_bytes, self.max_bytes)
        self._committed = message.isolation_level == READ_COMMITTED
        self._from_followers = request.version >= FROM_FOLLOWERS
        self._rack = message.rack_id if self._from_followers else ""
        self._cluster, self._broker = cluster, request.broker

    def read_all(self, rows: list[FetchRow]) -> list[FetchPartitionData]:
        """Returns the results of partitions in the order of `rows`. All records together have at most `max_bytes`.

        The first batch of the first partition with records is complete even if it is larger. A partition that cannot be
        read has an error code in its result.
        """
        results = []
        left, min_one = self.max_bytes, True
        for row in rows:
            try:
                result = self._read(row, left, min_one)
            except PartitionError as error:
                result = failed(row.index, error.code)
            size = len(result.records or b"")
            left, min_one = max(0, left - size), min_one and not size
            results.append(result)
        return results

    def find(self, row: FetchRow) -> Partition:
        """Returns the partition of a row.

        Raises PartitionError if the partition does not exist, if the broker has no replica of it, or if the topic has
        another id now because it was deleted and created again.
        """
        partition = find_partition(self._cluster, self._broker.id, row.topic or "", row.index)
        if row.topic_id not in (ZERO_UUID, partition.topic.id):
            raise PartitionError(Errors.INCONSISTENT_TOPIC_ID)
        return partition

    def check_replica(self, partition: Partition, row: FetchRow) -> None:
        """Raise PartitionError if this broker must not serve a partition to the client.

        This is so if the client has another leader epoch, or if the broker is a follower and the version of the request
        is too old for fetching from followers.
        """
        check_leader_epoch(partition, row.asked.current_leader_epoch)
        if partition.leader != self._broker.id and not self._from_followers:
            raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)

    def end_offset(self, partition: Partition) -> int:
        """Returns the high watermark, or for read_committed the last stable offset, as this broker's replica has it."""
        limit = partition.log.last_stable_offset if self._committed else partition.log.high_watermark
        return min(limit, partition.end_offset_on(self._broker.id))

    def diverging_epoch(self, partition: Partition, row: FetchRow) -> FetchEpochEndOffset | None:
        """Returns the epoch and end offset at which the log diverges from what the client has read (KIP-595).

        Returns None if the log does not diverge, or if the request has no last fetched epoch. Raises PartitionError if
        the log does not have this epoch, or begins after the fetch offset.
        """
        epoch, offset = row.asked.last_fetched_epoch, row.asked.fetch_offset
        if epoch < 0:
            return None
        found = partition.log.end_offset_for(epoch, partition.end_offset_on(self._broker.id))
        if found is None or offset < partition.log.start:
            raise PartitionError(Errors.OFFSET_OUT_OF_RANGE)
        if found[0] < epoch or found[1] < offset:
            return FetchEpochEndOffset(epoch=found[0], end_offset=found[1])
        return None

    def can_complete(self, partitions: list[tuple[FetchRow, Partition]]) -> bool:
        """Returns whether a request for these partitions is completed before its timeout.

        This is so if `min_bytes` can be read, or if a partition has an error. As in Kafka, some changes also complete
        the request, because waiting is useless then: another leader or leader epoch, a deleted topic, a truncated log,
        or a new segment.
        """
        total = 0
        for row, partition in partitions:
            try:
                available = self._available(row, partition)
            except PartitionError:
                return True
            if available is None:
                return True
            total += available
        return total >= self.min_bytes

    def _available(self, row: FetchRow, partition: Partition) -> int | None:
        """Returns how many bytes can be read from a partition, or None if waiting for this partition is useless.

        Raises PartitionError if the partition cannot be read.
        """
        log, offset = partition.log, row.asked.fetch_offset
        if self.find(row) is not partition:
            return None
        self.check_replica(partition, row)
        end = self.end_offset(partition)
        available = 0
        if offset > end:
            return None
        if offset < end:
            (segment, start), (last_segment, stop) = log.position(offset), log.position(end)
            if segment != last_segment:
                return None
            available = min(stop - start, row.asked.partition_max_bytes)
        return None if self.diverging_epoch(partition, row) is not None else available

    def _read(self, row: FetchRow, left: int, min_one: bool) -> FetchPartitionData:
        """Returns the result of a partition, with at most `left` bytes of records.

        Raises PartitionError if it cannot be read.

        `min_one`: the first batch is complete even if it is larger than `left`.
        """
        partition = self.find(row)
        preferred = self._preferred_replica(partition, row.asked.fetch_offset)
        if preferred is not None:
            check_leader_epoch(partition, row.asked.current_leader_epoch)
            return self._result(partition, preferred_read_replica=preferred)
        self.check_replica(partition, row)
        diverging = self.diverging_epoch(partition, row)
        if diverging is not None:
            return self._result(partition, diverging_epoch=diverging)
        return self._read_log(partition, row, min(row.asked.partition_max_bytes, left), min_one)

    def _read_log(self, partition: Partition, row: FetchRow, max_bytes: int, min_one: bool) -> FetchPartitionData:
        """Returns the result of a partition with its records from the fetch offset on.

        Raises PartitionError if the log of this broker's replica does not have the offset.
        """
        log, offset = partition.log, row.asked.fetch_offset
        if not log.start <= offset <= partition.end_offset_on(self._broker.id):
            raise PartitionError(Errors.OFFSET_OUT_OF_RANGE)
        limit = self.end_offset(partition)
        if offset >= limit:
            return self._result(partition, aborted_transactions=[] if self._committed else None)
        if max_bytes < 0:
            raise PartitionError(Errors.UNKNOWN_SERVER_ERROR)
        read = log.read(offset, max_bytes, limit, min_one=min_one)
        if read.first_batch_incomplete:
            return self._result(partition)
        if not self._committed:
            return self._result(partition, records=read.data)
        aborted = [
            AbortedTransaction(producer_id=ended.producer_id, first_offset=ended.first_offset)
            for ended in log.aborted_between(offset, read.upper_bound)
        ]
        return self._result(partition, records=read.data, aborted_transactions=aborted)

    def _result(
        self,
        partition: Partition,
        *,
        records: bytes = b"",
        aborted_transactions: list[AbortedTransaction] | None = None,
        diverging_epoch: FetchEpochEndOffset | None = None,
        preferred_read_replica: int = -1,
    ) -> FetchPartitionData:
        end = partition.end_offset_on(self._broker.id)
        return FetchPartitionData(
            partition_index=partition.index,
            high_watermark=min(partition.log.high_watermark, end),
            last_stable_offset=min(partition.log.last_stable_offset, end),
            log_start_offset=partition.log.start,
            diverging_epoch=diverging_epoch,
            aborted_transactions=aborted_transactions,
            preferred_read_replica=preferred_read_replica,
            records=records,
        )

    def _preferred_replica(self, partition: Partition, offset: int) -> int | None:
        """Returns the id of another broker that the client should fetch from, or None if this broker serves it.

        Only the leader redirects clients. The other broker must be in the client's rack, run, be in sync, and have the
        fetch offset.
        """
        brokers = self._cluster.brokers
        if self._cluster.settings.replica_selector_class != RACK_AWARE or partition.leader != self._broker.id:
            return None
        if not self._rack or brokers[partition.leader].rack == self._rack or offset < partition.log.start:
            return None
        near = [
            node
            for node in partition.isr
            if brokers[node].alive and brokers[node].rack == self._rack and partition.end_offset_on(node) >= offset
        ]
        return max(near, key=partition.end_offset_on, default=None)
