"""ShareResponseHandler: what the responses to ShareFetch and ShareAcknowledge mean.

Buffers acquired records, stores leaders that a response names, and translates error codes with the tables of
`error_actions.py`. The manager decides what to send next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._core.metrics import ResponseTally
from kconsumer._internal.managers import FOREVER, Reply
from kconsumer.errors import KafkaError, TopicAuthorizationError, error_for
from kconsumer.metadata.manager import MetadataManager
from kconsumer.schema.share_group import (
    AcquiredRecords,
    ShareAcknowledgeResponse,
    ShareFetchPartitionData,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
    ShareNodeEndpoint,
)
from kconsumer.share.acknowledgements import LockTime
from kconsumer.share.buffer import CompletedShareFetch, ShareBuffer
from kconsumer.share.error_actions import (
    ACKNOWLEDGE_ACTIONS,
    FETCH_ACTIONS,
    NAMES_LEADER,
    SESSION_ACTIONS,
    AcknowledgeErrorAction,
    ShareFetchErrorAction,
    ShareSessionErrorAction,
)
from kconsumer.share.session import TopicIdPartition
from kconsumer.state.cluster import Cluster
from kconsumer.types import Node, TopicPartition

log = get_logger(__name__)


class Failure(NamedTuple):
    """A request that failed as a whole."""

    error: KafkaError
    ends_session: bool = False  # the next request must open another session
    raises: bool = False  # the user's next call raises the error
    refreshes: bool = False  # metadata must be requested


class Result:
    """What a response says about partitions."""

    __slots__ = ("acquired", "codes", "error", "failure", "has_errors")

    def __init__(self) -> None:
        self.acquired = False  # the response contains acquired records
        self.has_errors = False  # the response contains an error code
        self.failure: KafkaError | None = None  # of a partition; the next fetch must wait
        self.error: KafkaError | None = None  # the user's next call raises it
        self.codes: dict[TopicIdPartition, tuple[int, str | None]] = {}  # results of acknowledgements

    def retries(self, partition: TopicIdPartition) -> bool:
        """Returns True if the acknowledgements of a partition must be sent again."""
        code, _ = self.codes.get(partition, (0, None))
        return ACKNOWLEDGE_ACTIONS[code] is AcknowledgeErrorAction.RETRY

    def acknowledged(self, partition: TopicIdPartition, tp: TopicPartition) -> KafkaError | None:
        """Returns the error of the acknowledgements of a partition, or None if they succeeded."""
        code, message = self.codes.get(partition, (int(Errors.INVALID_RECORD_STATE), "the response does not name it"))
        if not code:
            return None
        return error_for(code, f"acknowledging records of {tp}" + (f": {message}" if message else ""))


class ShareResponseHandler:
    """Handles the responses of all brokers."""

    def __init__(self, cluster: Cluster, metadata: MetadataManager, buffer: ShareBuffer) -> None:
        self.lock_timeout_ms: int | None = None
        self._cluster = cluster
        self._metadata = metadata
        self._buffer = buffer

    def failure_of(self, reply: Reply) -> Failure | None:
        """Returns why a request failed as a whole, or None if it succeeded."""
        error = reply.error
        if error is not None:
            # The broker ends a share session with its connection, and releases the records. It may have died, so that
            # its partitions have other leaders.
            return Failure(error, ends_session=True, raises=not error.retriable, refreshes=True)
        message: ShareFetchResponse | ShareAcknowledgeResponse = reply.message
        if not message.error_code:
            return None
        what = "a share session" + (f": {message.error_message}" if message.error_message else "")
        action = SESSION_ACTIONS[message.error_code]
        return Failure(
            error_for(message.error_code, what, operation="Read"),
            ends_session=action is ShareSessionErrorAction.NEW_SESSION,
            raises=action is ShareSessionErrorAction.RAISE,
            refreshes=action is ShareSessionErrorAction.REFRESH,
        )

    def handle_fetch(
        self, node_id: int, wanted: Mapping[TopicIdPartition, TopicPartition], reply: Reply, *, divisible: bool = False
    ) -> Result:
        """Buffer the records of a response. Returns what it says about partitions.

        `divisible`: the records were requested for several polls.
        """
        response: ShareFetchResponse = reply.message
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        locked_until, tally = self._locked_until(reply), ResponseTally()
        result = Result()
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, data.partition_index)
                if data.acknowledge_error_code:
                    result.has_errors = True
                    self._check_leader(data.acknowledge_error_code)
                result.codes[partition] = data.acknowledge_error_code, data.acknowledge_error_message
                tp = wanted.get(partition)
                if tp is not None:
                    self._partition(node_id, partition, tp, data, result, tally, locked_until, divisible)
                    if data.error_code in NAMES_LEADER:
                        self._learn_leader(tp, data.current_leader, response.node_endpoints)
        return result

    def _partition(
        self,
        node_id: int,
        partition: TopicIdPartition,
        tp: TopicPartition,
        data: ShareFetchPartitionData,
        result: Result,
        tally: ResponseTally,
        locked_until: float,
        divisible: bool,
    ) -> None:
        action = FETCH_ACTIONS[data.error_code]
        if action is not ShareFetchErrorAction.ACCEPT:
            result.has_errors = True
            result.failure = _fetch_error(tp, data)
            log.debug("%s", result.failure)
            if action is ShareFetchErrorAction.REFRESH:
                self._metadata.request_update()
            elif action is ShareFetchErrorAction.RAISE:
                result.error = result.failure
            return
        if data.acquired_records:
            result.acquired = True
            acquired: Sequence[AcquiredRecords] = data.acquired_records
            if len(acquired) > 1:
                acquired = sorted(acquired, key=lambda row: row.first_offset)
            self._buffer.add(
                CompletedShareFetch(node_id, partition, tp, data.records, acquired, tally, locked_until, divisible)
            )

    def lock_time(self, reply: Reply) -> LockTime:
        """Returns when the records that a request has acquired or renewed are locked."""
        return LockTime(reply.sent_at, self._locked_until(reply))

    def _locked_until(self, reply: Reply) -> float:
        return FOREVER if self.lock_timeout_ms is None else reply.sent_at + self.lock_timeout_ms

    def handle_acknowledgement(self, node_id: int, reply: Reply) -> Result:
        """Returns what the response to a ShareAcknowledge says about partitions."""
        response: ShareAcknowledgeResponse = reply.message
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        result = Result()
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, data.partition_index)
                result.codes[partition] = data.error_code, data.error_message
                self._check_leader(data.error_code)
                name = self._cluster.topic_name(topic.topic_id)
                if data.error_code in NAMES_LEADER and name is not None:
                    tp = TopicPartition(name, data.partition_index)
                    self._learn_leader(tp, data.current_leader, response.node_endpoints)
        return result

    def _check_leader(self, code: int) -> None:
        if ACKNOWLEDGE_ACTIONS[code] is AcknowledgeErrorAction.MOVED:
            self._metadata.request_update()

    def _learn_leader(
        self, tp: TopicPartition, leader: ShareLeaderIdAndEpoch, endpoints: Iterable[ShareNodeEndpoint]
    ) -> None:
        """Store the new leader, if the response contains one. The next fetch then need not wait for metadata."""
        if leader.leader_id < 0 or leader.leader_epoch < 0:
            return
        found = (Node(e.node_id, e.host, e.port, e.rack) for e in endpoints if e.node_id == leader.leader_id)
        self._cluster.update_leader(tp, leader.leader_id, leader.leader_epoch, next(found, None))


def _fetch_error(tp: TopicPartition, data: ShareFetchPartitionData) -> KafkaError:
    about = f"fetching from {tp}" + (f": {data.error_message}" if data.error_message else "")
    if data.error_code == Errors.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationError(about, topics=frozenset({tp.topic}), operation="Read")
    return error_for(data.error_code, about)
