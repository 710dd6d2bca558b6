"""OffsetForLeaderEpoch: was the log cut below a position? (KIP-320)

Decides when to ask and for how long a truncation is the user's to handle. The reactions to partition errors are a table
in `offsets/error_actions.py`; what an answer does to a position is decided in `state/subscription.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kconsumer.backoff import ExponentialBackoff
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import KafkaError, LogTruncationError, UnsupportedVersionError, error_for
from kconsumer.managers import Reply, UnsentRequest
from kconsumer.metadata.manager import MetadataManager
from kconsumer.offsets.error_actions import ACCEPT, LEADER_EPOCH_ACTIONS, REFUSE, action_for, refusal
from kconsumer.offsets.list_offsets import by_topic
from kconsumer.schema import OFFSET_FOR_LEADER_EPOCH
from kconsumer.schema.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.state.partition import AWAIT_VALIDATION, FetchPosition
from kconsumer.state.subscription import SubscriptionState, Truncation, truncation_error
from kconsumer.types import TopicPartition

_log = get_logger(__name__)

REQUESTED = "checking the position"

Positions = Mapping[TopicPartition, FetchPosition]


class Validator:
    """Validates the positions that await it. `fail` keeps an error for the user."""

    def __init__(
        self,
        config: OffsetConfig,
        subscription: SubscriptionState,
        metadata: MetadataManager,
        fail: Callable[[KafkaError, Iterable[TopicPartition]], None],
        backoff: ExponentialBackoff,
    ) -> None:
        self._subscription = subscription
        self._metadata = metadata
        self._fail = fail
        self._truncations: dict[TopicPartition, Truncation] = {}
        self._truncated_again = False  # a truncation was found, or found once more, since the last `take_truncation`
        self._backoff = backoff
        self._request_timeout_ms: float = config.request_timeout_ms

    def poll(self, now: float, requests: list[UnsentRequest]) -> list[TopicPartition]:
        """Add what to send to `requests`. Returns the partitions that have no leader to ask."""
        leaderless: list[TopicPartition] = []
        by_node: dict[int, dict[TopicPartition, FetchPosition]] = {}
        for tp in self._subscription.partitions_to_validate(now):
            position = self._subscription.position(tp)
            if position is None or position.leader.leader is None:
                leaderless.append(tp)
            else:
                by_node.setdefault(position.leader.leader.id, {})[tp] = position
        for node_id, positions in by_node.items():
            self._subscription.set_next_retry(positions, now + self._request_timeout_ms)
            requests.append(self._request(node_id, positions))
        return leaderless

    def _request(self, node_id: int, positions: Positions) -> UnsentRequest:
        topics = [
            OffsetForLeaderTopic(topic=topic, partitions=[_row(tp, positions[tp]) for tp in partitions])
            for topic, partitions in by_topic(positions).items()
        ]
        message = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        # Below v3 the broker demands a permission on the cluster, which consumers seldom have.
        return UnsentRequest(
            OFFSET_FOR_LEADER_EPOCH,
            message,
            lambda reply: self._on_reply(positions, reply),
            node=str(node_id),
            min_version=3,
        )

    def _on_reply(self, positions: Positions, reply: Reply) -> None:
        if isinstance(reply.error, UnsupportedVersionError):
            for tp, position in positions.items():
                self._subscription.complete_validation(tp, position)
        elif reply.error is not None:
            self._retry(dict.fromkeys(positions, reply.error), reply.now)
            if not reply.error.retriable:
                self._fail(reply.error, positions)
        else:
            self._read(reply.message, positions, reply.now)

    def _read(self, response: OffsetForLeaderEpochResponse, positions: Positions, now: float) -> None:
        missing = dict(positions)
        retry: dict[TopicPartition, KafkaError] = {}
        refused: dict[TopicPartition, int | None] = {}
        truncations: dict[TopicPartition, Truncation] = {}
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                position = missing.pop(tp, None)
                if position is None:
                    continue
                reaction = action_for(LEADER_EPOCH_ACTIONS, row.error_code, tp, REQUESTED)
                if reaction is REFUSE:
                    refused[tp] = position.offset
                elif reaction is not ACCEPT:
                    retry[tp] = error_for(row.error_code, f"{REQUESTED} of {tp} at offset {position.offset}")
                elif (cut := self._complete(tp, position, row)) is not None:
                    truncations[tp] = cut
        retry |= {tp: KafkaError(f"the broker's answer leaves out {tp}") for tp in missing}
        if refused:
            error = refusal(REQUESTED, refused)
            retry |= dict.fromkeys(refused, error)
            self._fail(error, refused)
        if retry:
            self._retry(retry, now)
        if truncations:
            self._report(truncations, now)

    def _complete(self, tp: TopicPartition, position: FetchPosition, row: EpochEndOffset) -> Truncation | None:
        if row.end_offset < position.offset:
            _log.warning("the log of %s was truncated below offset %d", tp, position.offset)
        return self._subscription.maybe_complete_validation(tp, position, row.end_offset, row.leader_epoch)

    def _retry(self, reasons: Mapping[TopicPartition, KafkaError], now: float) -> None:
        self._subscription.back_off(reasons, now, self._backoff.shared_delay())
        self._metadata.request_update()

    def _report(self, truncations: Mapping[TopicPartition, Truncation], now: float) -> None:
        """Without a reset policy the user decides. The log is looked at again after each backoff: another leader may
        have it whole."""
        self._truncations |= truncations
        self._truncated_again = True
        self._subscription.back_off(
            dict.fromkeys(truncations, truncation_error(truncations)), now, self._backoff.shared_delay()
        )

    def take_truncation(self) -> LogTruncationError | None:
        """Return `truncation()` once each time a truncation has been found."""
        if not self._truncated_again:
            return None
        self._truncated_again = False
        return self.truncation()

    def truncation(self) -> LogTruncationError | None:
        """The error for all logs found cut whose positions still wait for the user; not for partitions that are paused
        or no longer subscribed."""
        if not self._truncations:
            return None
        self._truncations = {tp: cut for tp, cut in self._truncations.items() if self._stands(tp, cut)}
        states = self._subscription.states()
        silent = {tp for tp in self._truncations if states[tp].paused or states[tp].unsubscribed}
        cuts = {tp: cut for tp, cut in self._truncations.items() if tp not in silent}
        return truncation_error(cuts) if cuts else None

    def _stands(self, tp: TopicPartition, cut: Truncation) -> bool:
        state = self._subscription.find(tp)
        return state is not None and state.fetch_state is AWAIT_VALIDATION and state.position == cut.position


def _row(tp: TopicPartition, position: FetchPosition) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(
        partition=tp.partition,
        current_leader_epoch=-1 if position.leader.epoch is None else position.leader.epoch,
        leader_epoch=-1 if position.offset_epoch is None else position.offset_epoch,
    )
