"""Handles Fetch: lets requests wait for records, and builds responses from the results of the partitions.

`fetch_reads` reads the partitions. `fetch_sessions` contains the fetch sessions.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from kconsumer.testing.cluster.delayed import Delayed
from kconsumer.testing.cluster.fetch_reads import PartitionReader, failed
from kconsumer.testing.cluster.fetch_sessions import TOPIC_IDS, FetchContext, FetchRow, Results
from kconsumer.testing.cluster.quotas import Quotas
from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.requests import Pending, Request, handles
from kconsumer.testing.cluster.state import ClusterHandlers, ClusterState
from kconsumer.testing.cluster.topic import NO_LEADER

ZSTD = 10  # the first version in which topics with compression.type=zstd may be read
LEADER_HINTS = 16  # the first version whose responses name the new leader (KIP-951)
MOVED = (Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH)


class FetchHandlers(ClusterHandlers):
    """Handles Fetch."""

    def __init__(self, cluster: ClusterState, quotas: Quotas) -> None:
        super().__init__(cluster)
        self._quotas = quotas

    @handles(FETCH)
    def _fetch(self, request: Request, now: float) -> FetchResponse | Pending:
        message: FetchRequest = request.message
        context = request.broker.fetch_sessions.open(message, request.version, self._name_of, now)
        errors: Results = {}
        rows = []
        for key, row in context.rows.items():
            error = self._error(request, row)
            if error:
                errors[key] = failed(row.index, error)
                errors[key].aborted_transactions = []
            else:
                rows.append(row)
        reader = PartitionReader(self._cluster, self._quotas, request)
        results = reader.read_all(rows)
        if not rows or message.max_wait_ms <= 0 or _complete(results, reader.min_bytes):
            return self._respond(request, context, rows, results, errors, now)
        partitions = [(row, reader.find(row)) for row in rows]
        if reader.can_complete(partitions):
            return self._respond(request, context, rows, reader.read_all(rows), errors, now)
        pending = Pending(request)

        def complete(at: float) -> None:
            pending.complete(self._respond(request, context, rows, reader.read_all(rows), errors, at), at)

        logs = [partition.log for _, partition in partitions]
        waiting = Delayed(self._cluster.timers, pending, logs, lambda: reader.can_complete(partitions), complete)
        waiting.start(now, message.max_wait_ms)
        return pending

    def failed_response(self, request: Request, error: int, now: float) -> FetchResponse:
        """Returns a Fetch response in which each partition has the error code `error`.

        These are the partitions of the request or, if it has a fetch session, of the session.
        """
        context = request.broker.fetch_sessions.open(request.message, request.version, self._name_of, now)
        errors: Results = {key: failed(row.index, error) for key, row in context.rows.items()}
        return self._respond(request, context, [], [], errors, now)

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def _error(self, request: Request, row: FetchRow) -> int:
        """Returns the error code of a partition that must not be read, or NONE if it may be read."""
        if row.topic is None:
            return Errors.UNKNOWN_TOPIC_ID
        if not self._cluster.acls.allowed(request, "READ", "topic", row.topic):
            return Errors.TOPIC_AUTHORIZATION_FAILED
        if self._cluster.partition(row.topic, row.index) is None:
            return Errors.UNKNOWN_TOPIC_OR_PARTITION
        return Errors.NONE

    def _respond(
        self,
        request: Request,
        context: FetchContext,
        rows: list[FetchRow],
        results: list[FetchPartitionData],
        errors: Results,
        now: float,
    ) -> FetchResponse:
        """Returns the response to a request. The fetch session decides which of the results are in the response.

        `results`: the results of the partitions `rows`, which were read. `errors`: the results of all other partitions.
        A throttled client gets no results.
        """
        found: Results = {row.key: result for row, result in zip(rows, results, strict=True)} | errors
        nodes: dict[int, NodeEndpoint] = {}
        if request.version >= LEADER_HINTS:
            for row, result in zip(rows, results, strict=True):
                if result.error_code in MOVED:
                    self._add_leader(row, result, nodes)
        size = sum(len(result.records or b"") for result in results)
        throttle_ms = self._quotas.fetched(request, size, now)
        error, session_id, sent = context.finish_throttled() if throttle_ms else context.finish(found, now)
        response = FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=error,
            session_id=session_id,
            node_endpoints=[] if throttle_ms else list(nodes.values()),
        )
        for key, result in sent.items():
            row = context.rows[key]
            self._add(response, row, self._too_new(row, request) or result, request.version)
        return response

    def _add_leader(self, row: FetchRow, result: FetchPartitionData, nodes: dict[int, NodeEndpoint]) -> None:
        """Add the leader of a partition to its result, and the address of the leader to `nodes`."""
        partition = self._cluster.partition(row.topic or "", row.index)
        if partition is None:
            return
        result.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
        if partition.leader != NO_LEADER:
            broker = self._cluster.brokers[partition.leader]
            nodes[broker.id] = NodeEndpoint(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)

    def _too_new(self, row: FetchRow, request: Request) -> FetchPartitionData | None:
        """Returns an error result if the request's version is too old for the zstd codec of the topic, otherwise None.

        Brokers since Kafka 4.0 do not check this.
        """
        topic = self._cluster.topics.get(row.topic or "")
        if request.version >= ZSTD or topic is None or topic.configs["compression.type"] != "zstd":
            return None
        if is_at_least(request.broker.release, "4.0"):
            return None
        return FetchPartitionData(
            partition_index=row.index, error_code=Errors.UNSUPPORTED_COMPRESSION_TYPE, high_watermark=-1
        )

    def _add(self, response: FetchResponse, row: FetchRow, result: FetchPartitionData, version: int) -> None:
        """Add the result of a partition to the response. Consecutive results of the same topic are in one topic row."""
        rows = response.responses
        same = rows and (rows[-1].topic_id, rows[-1].topic) == (row.topic_id, row.topic or "")
        if not same:
            by_id = version >= TOPIC_IDS
            topic_id = row.topic_id if by_id else ZERO_UUID
            rows.append(FetchableTopicResponse(topic=row.topic or "", topic_id=topic_id))
        rows[-1].partitions.append(result)


def _complete(results: list[FetchPartitionData], min_bytes: int) -> bool:
    """Returns whether the response is sent at once and does not wait for more records.

    This is so if the results contain `min_bytes` of records, or if a result has an error, a diverging epoch or a
    preferred replica.
    """
    size = sum(len(result.records or b"") for result in results)
    return size >= min_bytes or any(
        result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0
        for result in results
    )
