"""Produce: checks the batches of a producer and appends them to the logs.

With acks=all, the response waits until the in-sync replicas have the records. With acks=0, there is no response, but an
error closes the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer._core.decode import crc32c
from kconsumer._core.wire import Slice
from kconsumer.schema.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kconsumer.testing.cluster.delayed import Delayed
from kconsumer.testing.cluster.log import AppendResult
from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.requests import Pending, Request, Response, handles
from kconsumer.testing.cluster.state import ClusterHandlers, ClusterState
from kconsumer.testing.cluster.stored_batch import NO_TIMESTAMP, StoredBatch, split_batches
from kconsumer.testing.cluster.topic import NO_LEADER, Partition
from kconsumer.testing.cluster.transactions import Transactions

FIRST_WITHOUT_FUTURE = "4.0"  # by default
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def wrong_records(partition: Partition, batch: StoredBatch, release: str, wall_ms: int) -> list[tuple[int, int, str]]:
    """Returns error code, index and error message of each record that the broker refuses."""
    configs = partition.topic.configs
    compacted = "compact" in configs["cleanup.policy"]
    by_producer = configs["message.timestamp.type"] == "CreateTime"
    limited = is_at_least(release, FIRST_WITHOUT_FUTURE) or AFTER in partition.topic.explicit_configs
    earliest = wall_ms - int(configs[BEFORE]) if by_producer else NO_TIMESTAMP
    latest = wall_ms + int(configs[AFTER]) if by_producer and limited else None
    if not compacted and earliest < 0 and (latest is None or batch.max_timestamp <= latest):
        return []
    found: list[tuple[int, int, str]] = []
    for index, record in enumerate(batch.records()):
        too_late = latest is not None and record.timestamp > latest
        if compacted and record.key is None:
            found.append((Errors.INVALID_RECORD, index, "A compacted topic needs records with keys."))
        elif too_late or NO_TIMESTAMP < record.timestamp < earliest:
            found.append((Errors.INVALID_TIMESTAMP, index, f"The timestamp {record.timestamp} is out of range."))
    return found


ALL_REPLICAS = -1
VALID_ACKS = (ALL_REPLICAS, 0, 1)
FIRST_WITH_LEADER, FIRST_WITH_TOPIC_ID = 10, 13  # versions
FIRST_WITH_ZSTD, ZSTD = 7, 4
ADMIN_CLIENT_ID = "__admin_client"
MAGIC = 2
MAGIC_AT, CRC_AT, CRC_FROM = 16, 17, 21


class Row(NamedTuple):
    """The result of the batch for one partition."""

    response: PartitionProduceResponse
    partition: Partition | None = None
    required_offset: int = 0  # acks=all: the high watermark for which the response waits


class ProduceHandler(ClusterHandlers):
    """Handles Produce."""

    def __init__(self, cluster: ClusterState, transactions: Transactions) -> None:
        super().__init__(cluster)
        self._transactions = transactions

    @handles(PRODUCE)
    def _produce(self, request: Request, now: float) -> Response:
        """Append all batches of a request. Returns the response. It is pending with acks=all, and None with acks=0."""
        message = request.message
        rows: list[Row] = []
        topics = []
        if lacks_transactional_id(message):
            return _refused(message, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if any(data.records is None for topic in message.topic_data for data in topic.partition_data):
            return Pending(request)  # as in Kafka, which never responds
        for topic in message.topic_data:
            of_topic = list(self._append_topic(request, topic, now))
            rows += of_topic
            found = [row.response for row in of_topic]
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=found))
        endpoints = self._endpoints(rows) if request.version >= FIRST_WITH_LEADER else []
        response = ProduceResponse(responses=topics, node_endpoints=endpoints)
        if message.acks == 0:
            if any(row.response.error_code for row in rows):
                request.connection.close()
            return None
        if message.acks == ALL_REPLICAS:
            return self._replicated(request, response, rows, now)
        return response

    def _replicated(self, request: Request, response: ProduceResponse, rows: list[Row], now: float) -> Response:
        """Returns the response to a request with acks=all, which waits for the in-sync replicas.

        Partitions that have not been replicated at the timeout get REQUEST_TIMED_OUT.
        """
        waiting = [row for row in rows if _is_waiting(row)]
        if not waiting:
            return response
        pending = Pending(request)

        def complete(at: float) -> None:
            for row in filter(_is_waiting, waiting):
                row.response.error_code = Errors.REQUEST_TIMED_OUT
            pending.complete(response, at)

        logs = [row.partition.log for row in waiting if row.partition is not None]
        delayed = Delayed(self._cluster.timers, pending, logs, lambda: not any(map(_is_waiting, waiting)), complete)
        delayed.start(now, request.message.timeout_ms)
        return pending

    def _endpoints(self, rows: list[Row]) -> list[ProduceNodeEndpoint]:
        """Returns the addresses of the brokers that the results name as current leaders (KIP-951)."""
        named = [row.response.current_leader for row in rows]
        leaders = sorted({leader.leader_id for leader in named if leader is not None} - {NO_LEADER})
        brokers = [self._cluster.brokers[leader] for leader in leaders]
        return [ProduceNodeEndpoint(node_id=b.id, host=b.host, port=b.port, rack=b.rack) for b in brokers]

    def _append_topic(self, request: Request, topic: TopicProduceData, now: float) -> Iterator[Row]:
        """Append the batches for the partitions of a topic. Yields the result of each partition."""
        name: str | None = topic.name
        unknown: int = Errors.UNKNOWN_TOPIC_OR_PARTITION
        if request.version >= FIRST_WITH_TOPIC_ID:
            found = self._cluster.topics_by_id.get(topic.topic_id)
            name, unknown = (found.name, unknown) if found is not None else (None, Errors.UNKNOWN_TOPIC_ID)
        for data in topic.partition_data:
            partition = None if name is None else self._cluster.partition(name, data.index)
            if partition is None:
                yield _failed(data.index, unknown)
            else:
                yield self._append(request, partition, data, now)

    def _append(self, request: Request, partition: Partition, data: PartitionProduceData, now: float) -> Row:
        """Append the batch for one partition if it passes all checks. Returns the result of the batch.

        A duplicate is not appended again. Its result has the offset of the stored batch.
        """
        error = _request_error(request, partition)
        if error == Errors.NOT_LEADER_OR_FOLLOWER:
            return _not_leader(request, partition)
        if error:
            return _failed(partition.index, error)
        raw = data.records
        payload = bytes(raw) if isinstance(raw, Slice) else raw or b""
        batch = _single_batch(payload)
        if len(payload) > MAGIC_AT and payload[MAGIC_AT] > MAGIC:
            row = _failed(partition.index, Errors.CORRUPT_MESSAGE)
            row.response.error_message = f"The magic {payload[MAGIC_AT]} is unknown."
            return row
        error = Errors.INVALID_RECORD if batch is None else _header_error(partition, batch)
        if batch is None or error:
            return _failed(partition.index, error)
        error = _batch_error(request, batch)
        if error:
            return _failed(partition.index, error, partition)
        duplicate = partition.producers.duplicate_of(batch)
        if duplicate is not None:
            end = duplicate.base_offset + batch.last_offset - batch.base_offset + 1
            time = duplicate.max_timestamp  # as in Kafka, although it is not the time of the append
            return _appended(partition, AppendResult(duplicate.base_offset, end - 1, time, partition.log.start, []))
        error = self._transaction_error(request, partition, batch, now)
        if error:
            return _not_in_transaction(partition, error)
        error = partition.producers.error_of(batch)
        if error:
            return _failed(partition.index, error, partition)
        wall_ms = self._cluster.wall_ms(now, request.broker)
        wrong = wrong_records(partition, batch, request.broker.release, wall_ms)
        if wrong:
            return _failed_records(partition, wrong)
        return _appended(partition, partition.append(payload, wall_ms))

    def _transaction_error(self, request: Request, partition: Partition, batch: StoredBatch, now: float) -> int:
        """Returns the error code of a transactional batch if the coordinator refuses its partition, otherwise NONE."""
        if not batch.transactional or batch.producer_id in partition.log.transactions.open:
            return Errors.NONE
        transactional_id = request.message.transactional_id
        if transactional_id is None:
            return Errors.INVALID_RECORD
        producer = batch.producer_id, batch.producer_epoch
        return self._transactions.verify_partition(transactional_id, producer, partition, request.version, now)


def _is_waiting(row: Row) -> bool:
    """Returns whether the records of a row are not yet replicated to the in-sync replicas."""
    return row.partition is not None and row.partition.log.high_watermark < row.required_offset


def _request_error(request: Request, partition: Partition) -> int:
    """Returns the error code of a batch that is refused because of its request or partition, or NONE."""
    message: ProduceRequest = request.message
    if message.acks not in VALID_ACKS:
        return Errors.INVALID_REQUIRED_ACKS
    if partition.topic.internal and request.client_id != ADMIN_CLIENT_ID:
        return Errors.INVALID_TOPIC_EXCEPTION
    if partition.leader != request.broker.id:
        return Errors.NOT_LEADER_OR_FOLLOWER
    too_few = len(partition.isr) < partition.min_isr
    return Errors.NOT_ENOUGH_REPLICAS if too_few and message.acks == ALL_REPLICAS else Errors.NONE


def _single_batch(data: bytes) -> StoredBatch | None:
    """Returns the batch in `data`, or None if `data` is not exactly one batch of format 2."""
    try:
        batches = split_batches(data)
    except ValueError:
        return None
    return batches[0] if len(batches) == 1 and batches[0].magic == MAGIC else None


def _header_error(partition: Partition, batch: StoredBatch) -> int:
    """Returns the error code of a batch whose checksum is wrong or which is too large, otherwise NONE."""
    if crc32c(batch.data[CRC_FROM:]) != int.from_bytes(batch.data[CRC_AT:CRC_FROM]):
        return Errors.CORRUPT_MESSAGE
    too_large = batch.size > int(partition.topic.configs["max.message.bytes"])
    return Errors.MESSAGE_TOO_LARGE if too_large else Errors.NONE


def _batch_error(request: Request, batch: StoredBatch) -> int:
    """Returns the error code of a batch whose codec, type, record count or sequence is not allowed, otherwise NONE."""
    if batch.codec == ZSTD and request.version < FIRST_WITH_ZSTD:
        return Errors.UNSUPPORTED_COMPRESSION_TYPE
    if batch.control or batch.record_count != batch.last_offset - batch.base_offset + 1:
        return Errors.INVALID_RECORD
    no_sequence = batch.producer_id >= 0 and batch.base_sequence < 0
    return Errors.INVALID_RECORD if no_sequence else Errors.NONE


def lacks_transactional_id(message: ProduceRequest) -> bool:
    """Returns whether a request contains a transactional batch, and no transactional id."""
    if message.transactional_id is not None:
        return False
    rows = [row.records for topic in message.topic_data for row in topic.partition_data if row.records]
    batches = map(_single_batch, map(bytes, rows))
    return any(batch is not None and batch.transactional for batch in batches)


def _refused(message: ProduceRequest, error: int) -> ProduceResponse:
    """Returns the response to a request of which no batch is appended. `error`: the error code of each partition."""
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_failed(row.index, error).response for row in topic.partition_data],
        )
        for topic in message.topic_data
    ]
    return ProduceResponse(responses=topics)


def _not_in_transaction(partition: Partition, error: int) -> Row:
    """Returns the result of a batch that the transaction coordinator refuses."""
    row = _failed(partition.index, error)
    if error == Errors.INVALID_TXN_STATE:
        row.response.error_message = "The partition is not in a transaction of the producer."
    return row


def _failed_records(partition: Partition, wrong: list[tuple[int, int, str]]) -> Row:
    """Returns the result of a batch that was not appended because of some of its records (KIP-467)."""
    row = _failed(partition.index, min(error for error, _, _ in wrong), partition)
    row.response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text) for _, index, text in wrong
    ]
    row.response.error_message = "A record of the batch is invalid."
    return row


def _failed(index: int, error: int, partition: Partition | None = None) -> Row:
    """Returns the result of a batch that was not appended. It contains the log start offset if `partition` is given."""
    start = -1 if partition is None else partition.log.start
    return Row(PartitionProduceResponse(index=index, error_code=error, base_offset=-1, log_start_offset=start))


def _not_leader(request: Request, partition: Partition) -> Row:
    """Returns the result of a batch that was sent to a broker that does not lead the partition."""
    row = _failed(partition.index, Errors.NOT_LEADER_OR_FOLLOWER)
    if request.version >= FIRST_WITH_LEADER:
        leader = ProduceLeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
        row.response.current_leader = leader
    return row


def _appended(partition: Partition, result: AppendResult) -> Row:
    """Returns the result of a batch that is in the log. `result`: where it was appended."""
    response = PartitionProduceResponse(
        index=partition.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    return Row(response, partition, result.last_offset + 1)
