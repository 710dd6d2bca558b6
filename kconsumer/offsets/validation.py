"""OffsetForLeaderEpoch: checks whether the log was truncated below a position (KIP-320).

Decides when to send the request, and until when a truncation is reported to the user. `offsets/error_actions.py`
contains the table of actions for error codes. `state/positions.py` decides how a response changes a position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kconsumer._common.backoff import ExponentialBackoff
from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.errors import KafkaError, LogTruncationError, UnsupportedVersionError, error_for
from kconsumer.metadata.manager import MetadataManager
from kconsumer.offsets.error_actions import ACCEPT, LEADER_EPOCH_ACTIONS, RAISE, UnexpectedErrors, authorization_error
from kconsumer.offsets.list_offsets import by_topic
from kconsumer.schema.offsets import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.state.partition import AWAIT_VALIDATION, FetchPosition
from kconsumer.state.position_errors import Truncation, truncation_error
from kconsumer.state.positions import Positions
from kconsumer.types import TopicPartition

_log = get_logger(__name__)

PURPOSE = "checking the position"

Requested = Mapping[TopicPartition, FetchPosition]


class Validator:
    """Validates positions, and stores truncations that the user must handle."""

    def __init__(
        self,
        config: OffsetConfig,
        positions: Positions,
        metadata: MetadataManager,
        fail: Callable[[KafkaError, Iterable[TopicPartition]], None],
        backoff: ExponentialBackoff,
        unexpected: UnexpectedErrors,
    ) -> None:
        self._unexpected = unexpected
        self._positions = positions
        self._assignment = positions.assignment
        self._metadata = metadata
        self._fail = fail  # stores an error for the user
        self._truncations: dict[TopicPartition, Truncation] = {}
        self.has_truncation = False  # a truncation was found since the last `take_truncation`
        self._backoff = backoff
        self.progress = Progress("partitions", "the check of their positions (OffsetForLeaderEpoch)")
        self._request_timeout_ms: float = config.request_timeout_ms

    def poll(self, now: float, requests: list[UnsentRequest]) -> list[TopicPartition]:
        """Append the requests that are due to `requests`. Returns the partitions that have no leader."""
        leaderless: list[TopicPartition] = []
        by_node: dict[int, dict[TopicPartition, FetchPosition]] = {}
        for tp in self._positions.partitions_to_validate(now):
            position = self._assignment.get(tp).position
            if position is None or position.leader.leader is None:
                leaderless.append(tp)
            else:
                by_node.setdefault(position.leader.leader.id, {})[tp] = position
        for node_id, positions in by_node.items():
            self._positions.set_next_retry(positions, now + self._request_timeout_ms)
            requests.append(self._request(node_id, positions))
        return leaderless

    def _request(self, node_id: int, positions: Requested) -> UnsentRequest:
        topics = [
            OffsetForLeaderTopic(topic=topic, partitions=[_row(tp, positions[tp]) for tp in partitions])
            for topic, partitions in by_topic(positions).items()
        ]
        message = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        # Versions below 3 require the ClusterAction permission, which consumers rarely have.
        return UnsentRequest(
            OFFSET_FOR_LEADER_EPOCH,
            message,
            lambda reply: self._on_reply(positions, reply),
            node=str(node_id),
            min_version=3,
        )

    def _on_reply(self, positions: Requested, reply: Reply) -> None:
        if isinstance(reply.error, UnsupportedVersionError):
            for tp, position in positions.items():
                self._positions.complete_validation(tp, position)
        elif reply.error is not None:
            self._retry(dict.fromkeys(positions, reply.error), reply.now)
            if not reply.error.retriable:
                self._fail(reply.error, positions)
        else:
            self._handle_response(reply.message, positions, reply.now)

    def _handle_response(self, response: OffsetForLeaderEpochResponse, positions: Requested, now: float) -> None:
        missing = dict(positions)
        retry: dict[TopicPartition, KafkaError] = {}
        unauthorized: dict[TopicPartition, int | None] = {}
        truncations: dict[TopicPartition, Truncation] = {}
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                position = missing.pop(tp, None)
                if position is None:
                    continue
                action = LEADER_EPOCH_ACTIONS[row.error_code]
                if action is RAISE:
                    unauthorized[tp] = position.offset
                elif action is not ACCEPT:
                    retry[tp] = error_for(row.error_code, f"{PURPOSE} of {tp} at offset {position.offset}")
                    self._unexpected.log(action, retry[tp], now)
                elif (truncation := self._complete(tp, position, row)) is not None:
                    truncations[tp] = truncation
        retry |= {tp: KafkaError(f"the broker's response does not contain {tp}") for tp in missing}
        if unauthorized:
            error = authorization_error(PURPOSE, unauthorized)
            retry |= dict.fromkeys(unauthorized, error)
            self._fail(error, unauthorized)
        if retry:
            self._retry(retry, now)
        if truncations:
            self._report(truncations, now)

    def _complete(self, tp: TopicPartition, position: FetchPosition, row: EpochEndOffset) -> Truncation | None:
        if row.end_offset < position.offset:
            _log.warning("the log of %s was truncated below offset %d", tp, position.offset)
        return self._positions.maybe_complete_validation(tp, position, row.end_offset, row.leader_epoch)

    def _retry(self, reasons: Mapping[TopicPartition, KafkaError], now: float) -> None:
        self.progress.failed(next(iter(reasons.values())), now)
        self._positions.back_off(reasons, now, self._backoff.shared_delay())
        self._metadata.request_update()

    def _report(self, truncations: Mapping[TopicPartition, Truncation], now: float) -> None:
        """Store truncations for `take_truncation`. The user must handle them, because there is no reset policy.

        The positions are validated again after each backoff, because the log of a later leader may contain them.
        """
        self._truncations |= truncations
        self.has_truncation = True
        self._positions.back_off(
            dict.fromkeys(truncations, truncation_error(truncations)), now, self._backoff.shared_delay()
        )

    def take_truncation(self) -> LogTruncationError | None:
        """Returns `truncation()` if a truncation was found since the last call, else None."""
        if not self.has_truncation:
            return None
        self.has_truncation = False
        return self.truncation()

    def truncation(self) -> LogTruncationError | None:
        """Returns the error that names the truncated partitions, or None if there are none.

        A truncation is forgotten when the partition's position has changed. Partitions that are paused or no longer
        subscribed are left out.
        """
        if not self._truncations:
            return None
        self._truncations = {
            tp: truncation for tp, truncation in self._truncations.items() if self._still_applies(tp, truncation)
        }
        states = self._assignment.states()
        hidden = {tp for tp in self._truncations if states[tp].paused or states[tp].unsubscribed}
        shown = {tp: truncation for tp, truncation in self._truncations.items() if tp not in hidden}
        return truncation_error(shown) if shown else None

    def _still_applies(self, tp: TopicPartition, truncation: Truncation) -> bool:
        state = self._assignment.find(tp)
        return state is not None and state.fetch_state is AWAIT_VALIDATION and state.position == truncation.position


def _row(tp: TopicPartition, position: FetchPosition) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(
        partition=tp.partition,
        current_leader_epoch=-1 if position.leader.epoch is None else position.leader.epoch,
        leader_epoch=-1 if position.offset_epoch is None else position.offset_epoch,
    )
