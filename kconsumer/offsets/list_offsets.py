"""ListOffsets: how the question is built, what the answer means, and the questions users ask with it.

The reactions to partition errors are a table in `offsets/error_actions.py`. Resets of positions, the consumer's own use
of ListOffsets, are in `offsets/reset_manager.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kconsumer.backoff import RetryTimer
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.error_codes import Errors
from kconsumer.errors import KafkaError, TopicAuthorizationError, error_for
from kconsumer.managers import FOREVER, PendingCall, Reply, UnsentRequest
from kconsumer.metadata.existence import ExistenceCheck
from kconsumer.metadata.manager import MetadataManager
from kconsumer.metadata.topic_requests import topic_error
from kconsumer.offsets.error_actions import ACCEPT, LIST_OFFSETS_ACTIONS, NOTHING, REFUSE, action_for, refusal
from kconsumer.schema import LIST_OFFSETS
from kconsumer.schema.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from kconsumer.state.cluster import Cluster
from kconsumer.types import OffsetAndTimestamp, TopicPartition

LATEST = -1
EARLIEST = -2
REQUESTED = "looking up an offset"

OffsetTable = dict[TopicPartition, OffsetAndTimestamp | None]


@dataclass(slots=True)
class ListOffsetsResult:
    """One broker's answer. `none`: no record is that young, or the log is too old to say; `retry`: why not
    now."""

    found: dict[TopicPartition, OffsetAndTimestamp] = field(default_factory=dict)
    none: list[TopicPartition] = field(default_factory=list)
    retry: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    refused: list[TopicPartition] = field(default_factory=list)

    @property
    def refusal(self) -> TopicAuthorizationError | None:
        """The error to raise when topics were refused."""
        return refusal(REQUESTED, dict.fromkeys(self.refused)) if self.refused else None


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """The partitions by the broker id of their leader, and those without a leader."""
    led: dict[int, list[TopicPartition]] = {}
    leaderless: list[TopicPartition] = []
    for tp in partitions:
        node = cluster.leader(tp).leader
        if node is None:
            leaderless.append(tp)
        else:
            led.setdefault(node.id, []).append(tp)
    return led, leaderless


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions by topic, in the order given."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics


class ListOffsetsApi:
    """Builds and reads ListOffsets for one consumer's isolation level and timeouts."""

    def __init__(self, config: OffsetConfig, cluster: Cluster) -> None:
        self.read_committed = config.read_committed
        self._cluster = cluster
        self._timeout_ms: int = config.request_timeout_ms

    def request(
        self, node_id: int, timestamps: Mapping[TopicPartition, int], handler: Callable[[Reply], None]
    ) -> UnsentRequest:
        """Ask this broker for the offsets at these timestamps (ms, or LATEST, EARLIEST)."""
        topics = [
            ListOffsetsTopic(name=topic, partitions=[self._row(tp, timestamps[tp]) for tp in partitions])
            for topic, partitions in by_topic(timestamps).items()
        ]
        message = ListOffsetsRequest(
            isolation_level=int(self.read_committed), topics=topics, timeout_ms=self._timeout_ms
        )
        # The isolation level exists from v2; an older broker would answer with offsets of open transactions.
        floor = 2 if self.read_committed else 1
        return UnsentRequest(LIST_OFFSETS, message, handler, node=str(node_id), min_version=floor)

    def _row(self, tp: TopicPartition, timestamp: int) -> ListOffsetsPartition:
        epoch = self._cluster.leader(tp).epoch
        return ListOffsetsPartition(
            partition_index=tp.partition,
            current_leader_epoch=-1 if epoch is None else epoch,
            timestamp=timestamp,
        )


def parse_response(response: ListOffsetsResponse, asked: Iterable[TopicPartition]) -> ListOffsetsResult:
    """Sort a ListOffsetsResponse by what to do. Partitions it does not mention are to be asked again."""
    answer = ListOffsetsResult()
    missing = dict.fromkeys(asked)
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            if tp not in missing:
                continue
            del missing[tp]
            reaction = action_for(LIST_OFFSETS_ACTIONS, row.error_code, tp, REQUESTED)
            if reaction is REFUSE:
                answer.refused.append(tp)
            elif reaction is NOTHING or (reaction is ACCEPT and row.offset < 0):
                answer.none.append(tp)
            elif reaction is not ACCEPT:
                answer.retry[tp] = error_for(row.error_code, f"{REQUESTED} of {tp}")
            else:
                epoch = row.leader_epoch if row.leader_epoch >= 0 else None
                answer.found[tp] = OffsetAndTimestamp(row.offset, row.timestamp, epoch)
    for tp in missing:
        answer.retry[tp] = KafkaError(f"the broker's answer leaves out {tp}")
    return answer


class Search(PendingCall[OffsetTable]):
    """One question of a user: offsets of some partitions, asked of all their leaders until all have
    answered."""

    def __init__(
        self,
        api: ListOffsetsApi,
        cluster: Cluster,
        metadata: MetadataManager,
        timestamps: Mapping[TopicPartition, int],
        deadline: float,
        backoff: RetryTimer,
    ) -> None:
        super().__init__(deadline, backoff)
        self._api = api
        self._cluster = cluster
        self._metadata = metadata
        self._timestamps = dict(timestamps)
        self._remaining = dict(timestamps)
        self._found: OffsetTable = {}
        self._existence = ExistenceCheck(metadata)

    def poll(self, now: float, requests: list[UnsentRequest]) -> float:
        """Add what to send to `requests`; how many ms until the next is due."""
        if self.promise.done:
            return FOREVER
        if now >= self.deadline:
            names = ", ".join(map(str, sorted(self._remaining)))
            self.time_out(f"the offsets of {names} were not found within the timeout")
            return FOREVER
        wait = self.wait_ms(now)
        if wait > 0:
            return wait
        led, leaderless = by_leader(self._cluster, self._remaining)
        refreshing = self._existence.refreshing
        if leaderless and self._fails_for(leaderless):
            return FOREVER
        # The metadata manager, polled before this one, has a request to send now.
        wait = 0.0 if self._existence.refreshing and not refreshing else self.deadline - now
        for node_id, partitions in led.items():
            self._send(node_id, partitions, requests)
        if leaderless:
            self._metadata.request_leaders()
        return wait

    def _send(self, node_id: int, partitions: list[TopicPartition], requests: list[UnsentRequest]) -> None:
        self.on_sent()
        asked = {tp: self._remaining[tp] for tp in partitions}
        requests.append(self._api.request(node_id, asked, lambda reply: self._on_reply(asked, reply)))

    def _on_reply(self, asked: Mapping[TopicPartition, int], reply: Reply) -> None:
        self.on_response()
        if self.promise.done:
            return
        if reply.error is not None:
            if reply.error.retriable:
                self._retry(reply.error, reply.now)
            else:
                self.promise.set_exception(reply.error)
            return
        answer = parse_response(reply.message, asked)
        if answer.refusal is not None:
            self.promise.set_exception(answer.refusal)
            return
        for tp, found in answer.found.items():
            self._found[tp] = found
            self._metadata.update_last_seen_epoch(tp, found.leader_epoch)
        self._found |= dict.fromkeys(answer.none)
        for tp in (*answer.found, *answer.none):
            self._remaining.pop(tp, None)
        if answer.retry:
            self._retry(next(iter(answer.retry.values())), reply.now)
        if not self._remaining:
            self.promise.set_result({tp: self._found[tp] for tp in self._timestamps})

    def _retry(self, error: KafkaError, now: float) -> None:
        self.retry(error, now)
        self._metadata.request_update()

    def _fails_for(self, leaderless: list[TopicPartition]) -> bool:
        """Whether metadata refuses one of the topics or lacks one of the partitions; then this question fails with
        that error."""
        codes = {tp.topic: self._metadata.topic_error(tp.topic) for tp in leaderless}
        final = {
            topic: code
            for topic, code in codes.items()
            if code in (Errors.INVALID_TOPIC_EXCEPTION, Errors.TOPIC_AUTHORIZATION_FAILED)
        }
        if final:
            self._metadata.mark_raised(final)
            self.promise.set_exception(topic_error(final))
            return True
        for topic, code in codes.items():
            if code:
                self.last_error = error_for(code, f"topic {topic}")
        missing = self._existence.error(leaderless)
        if missing is not None:
            self.promise.set_exception(missing)
        return missing is not None
