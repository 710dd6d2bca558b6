"""ListOffsets: builds the requests, parses the responses, and looks up offsets for the user, with retries.

`offsets/error_actions.py` contains the table of actions for error codes. `offsets/reset_manager.py` uses ListOffsets to
reset positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kconsumer._common.backoff import RetryTimer
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER, PendingCall, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.errors import KafkaError, TopicAuthorizationError, error_for
from kconsumer.metadata.existence import ExistenceCheck
from kconsumer.metadata.manager import MetadataManager
from kconsumer.metadata.topic_requests import topic_error
from kconsumer.offsets.error_actions import (
    ACCEPT,
    LIST_OFFSETS_ACTIONS,
    NOTHING,
    RAISE,
    UnexpectedErrors,
    authorization_error,
)
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kconsumer.state.cluster import Cluster
from kconsumer.types import OffsetAndTimestamp, TopicPartition

LATEST = -1
EARLIEST = -2
#: Special timestamps that only newer brokers know, each with the first version of ListOffsets that has it.
MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -3, -4, -5, -6
MIN_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
PURPOSE = "looking up an offset"

OffsetTable = dict[TopicPartition, OffsetAndTimestamp | None]


class ListOffsetsResult:
    """The partitions of one response, grouped by outcome."""

    __slots__ = ("found", "none", "retry", "unauthorized")

    def __init__(self) -> None:
        self.found: dict[TopicPartition, OffsetAndTimestamp] = {}
        #: Partitions without a record of the requested time or later, or whose log is too old to contain timestamps.
        self.none: list[TopicPartition] = []
        self.retry: dict[TopicPartition, KafkaError] = {}  # partitions to retry, with the reasons
        self.unauthorized: list[TopicPartition] = []

    @property
    def authorization_error(self) -> TopicAuthorizationError | None:
        """The error to raise for partitions that may not be read, or None."""
        return authorization_error(PURPOSE, dict.fromkeys(self.unauthorized)) if self.unauthorized else None


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Returns a dict of broker id -> the partitions that this broker leads, and the list of partitions without a
    leader."""
    by_node: dict[int, list[TopicPartition]] = {}
    leaderless: list[TopicPartition] = []
    for tp in partitions:
        node = cluster.leader(tp).leader
        if node is None:
            leaderless.append(tp)
        else:
            by_node.setdefault(node.id, []).append(tp)
    return by_node, leaderless


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Returns a dict of topic -> its partitions. Topics and partitions keep the order in which they are given."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics


class ListOffsetsRequests:
    """Builds ListOffsets requests with the isolation level and the request timeout of one consumer."""

    def __init__(self, config: OffsetConfig, cluster: Cluster) -> None:
        self.read_committed = config.read_committed
        self._cluster = cluster
        self._timeout_ms: int = config.request_timeout_ms

    def request(
        self, node_id: int, timestamps: Mapping[TopicPartition, int], handler: Callable[[Reply], None]
    ) -> UnsentRequest:
        """Returns a ListOffsets request to the broker `node_id`. `handler` is called with the response.

        `timestamps` contains a time (ms since 1970) or a special value for each partition.
        """
        topics = [
            ListOffsetsTopic(name=topic, partitions=[self._row(tp, timestamps[tp]) for tp in partitions])
            for topic, partitions in by_topic(timestamps).items()
        ]
        message = ListOffsetsRequest(
            isolation_level=int(self.read_committed), topics=topics, timeout_ms=self._timeout_ms
        )
        # The isolation level exists from v2; an older broker would include open transactions.
        versions = (MIN_VERSIONS.get(timestamp, 1) for timestamp in timestamps.values())
        min_version = max(2 if self.read_committed else 1, *versions)
        return UnsentRequest(LIST_OFFSETS, message, handler, node=str(node_id), min_version=min_version)

    def _row(self, tp: TopicPartition, timestamp: int) -> ListOffsetsPartition:
        epoch = self._cluster.leader(tp).epoch
        return ListOffsetsPartition(
            partition_index=tp.partition,
            current_leader_epoch=-1 if epoch is None else epoch,
            timestamp=timestamp,
        )


def parse_response(
    response: ListOffsetsResponse, requested: Iterable[TopicPartition], unexpected: UnexpectedErrors, now: float
) -> ListOffsetsResult:
    """Returns the partitions of a response that arrived at `now` (ms), grouped by outcome. Logs unexpected errors.

    Partitions in `requested` that the response does not contain are in the group of those to retry.
    """
    result = ListOffsetsResult()
    missing = dict.fromkeys(requested)
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            if tp not in missing:
                continue
            del missing[tp]
            action = LIST_OFFSETS_ACTIONS[row.error_code]
            if action is RAISE:
                result.unauthorized.append(tp)
            elif action is NOTHING or (action is ACCEPT and row.offset < 0):
                result.none.append(tp)
            elif action is not ACCEPT:
                result.retry[tp] = error_for(row.error_code, f"{PURPOSE} of {tp}")
                unexpected.log(action, result.retry[tp], now)
            else:
                epoch = row.leader_epoch if row.leader_epoch >= 0 else None
                result.found[tp] = OffsetAndTimestamp(row.offset, row.timestamp, epoch)
    for tp in missing:
        result.retry[tp] = KafkaError(f"the broker's response does not contain {tp}")
    return result


class ListOffsetsCall(PendingCall[OffsetTable]):
    """An offset lookup for the user. Sends requests to the leaders of the partitions until all have responded."""

    def __init__(
        self,
        requests: ListOffsetsRequests,
        cluster: Cluster,
        metadata: MetadataManager,
        timestamps: Mapping[TopicPartition, int],
        deadline: float,
        backoff: RetryTimer,
        progress: Progress,
        unexpected: UnexpectedErrors,
    ) -> None:
        super().__init__(deadline, backoff)
        self._unexpected = unexpected
        self._progress = progress
        self._requests = requests
        self._cluster = cluster
        self._metadata = metadata
        self._timestamps = dict(timestamps)
        self._remaining = dict(timestamps)
        self._found: OffsetTable = {}
        self._existence = ExistenceCheck(metadata)

    def poll(self, now: float, requests: list[UnsentRequest]) -> float:
        """Append the requests that are due to `requests`. Returns the time (ms) until the next call is needed."""
        if self.promise.done:
            return FOREVER
        if now >= self.deadline:
            names = ", ".join(map(str, sorted(self._remaining)))
            self.time_out(f"the offsets of {names} were not found within the timeout")
            return FOREVER
        wait = self.wait_ms(now)
        if wait > 0:
            return wait
        by_node, leaderless = by_leader(self._cluster, self._remaining)
        refreshing = self._existence.refreshing
        if leaderless and self._fail_for_topics(leaderless):
            return FOREVER
        # If `_fail_for_topics` requested metadata, poll again at once: the metadata manager was polled before this call
        # and must send that request.
        wait = 0.0 if self._existence.refreshing and not refreshing else self.deadline - now
        for node_id, partitions in by_node.items():
            self._send(node_id, partitions, requests)
        if leaderless:
            self._metadata.request_leaders()
        return wait

    def _send(self, node_id: int, partitions: list[TopicPartition], requests: list[UnsentRequest]) -> None:
        self.on_sent()
        requested = {tp: self._remaining[tp] for tp in partitions}
        requests.append(self._requests.request(node_id, requested, lambda reply: self._on_reply(requested, reply)))

    def _on_reply(self, requested: Mapping[TopicPartition, int], reply: Reply) -> None:
        self.on_response()
        if self.promise.done:
            return
        if reply.error is not None:
            if reply.error.retriable:
                self._retry(reply.error, reply.now)
            else:
                self.promise.set_exception(reply.error)
            return
        result = parse_response(reply.message, requested, self._unexpected, reply.now)
        if result.authorization_error is not None:
            self.promise.set_exception(result.authorization_error)
            return
        for tp, found in result.found.items():
            self._found[tp] = found
            self._metadata.update_last_seen_epoch(tp, found.leader_epoch)
        self._found |= dict.fromkeys(result.none)
        for tp in (*result.found, *result.none):
            self._remaining.pop(tp, None)
        if result.retry:
            self._retry(next(iter(result.retry.values())), reply.now)
        if not self._remaining:
            self.promise.set_result({tp: self._found[tp] for tp in self._timestamps})

    def _retry(self, error: KafkaError, now: float) -> None:
        self.retry(error, now)
        self._progress.failed(error, now)
        self._metadata.request_update()

    def _fail_for_topics(self, leaderless: list[TopicPartition]) -> bool:
        """Fail the lookup if metadata denies access to one of the topics, or lacks one of the partitions.

        Returns True if the lookup failed.
        """
        codes = {tp.topic: self._metadata.topic_errors.code_of(tp.topic) for tp in leaderless}
        raised = {
            topic: code
            for topic, code in codes.items()
            if code in (Errors.INVALID_TOPIC_EXCEPTION, Errors.TOPIC_AUTHORIZATION_FAILED)
        }
        if raised:
            self._metadata.topic_errors.mark_raised(raised)
            self.promise.set_exception(topic_error(raised))
            return True
        for topic, code in codes.items():
            if code:
                self.promise.attempt_failed(error_for(code, f"topic {topic}"))
        missing = self._existence.error(leaderless)
        if missing is not None:
            self.promise.attempt_failed(missing)
            self.time_out("the offsets cannot be found")
        return missing is not None
