"""Resets positions by the reset policy, validates positions after a leader change, and looks up offsets for the user.

Decides what is requested from the leaders for partitions that await a reset or a validation, and how a response changes
the positions. In a group, `initial_positions.py` looks up the committed offsets first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import FOREVER, PollResult, Promise, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.errors import KafkaError
from kconsumer.metadata.manager import MetadataManager
from kconsumer.offsets.error_actions import UnexpectedErrors
from kconsumer.offsets.list_offsets import (
    LATEST,
    ListOffsetsCall,
    ListOffsetsRequests,
    ListOffsetsResult,
    OffsetTable,
    by_leader,
    parse_response,
)
from kconsumer.offsets.validation import Validator
from kconsumer.state.cluster import Cluster
from kconsumer.state.partition import AWAIT_RESET, PartitionState
from kconsumer.state.positions import Positions
from kconsumer.types import OffsetAndTimestamp, OffsetReset, TopicPartition

_log = get_logger(__name__)


class ResetManager:
    """Resets and validates positions, and looks up offsets for the user (Java `OffsetsRequestManager`)."""

    def __init__(
        self,
        config: OffsetConfig,
        cluster: Cluster,
        positions: Positions,
        metadata: MetadataManager,
        wall_ms: Callable[[], int],
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._positions = positions
        self._assignment = positions.assignment
        self._changes = positions.assignment.changes
        self._metadata = metadata
        self._wall_ms = wall_ms  # returns the wall-clock time (ms since 1970); only resets by duration use it
        self._retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._requests = ListOffsetsRequests(config, cluster)
        self.progress = Progress("partitions", "offsets of their leaders (ListOffsets)")
        self._unexpected = UnexpectedErrors()
        self._validator = Validator(config, positions, metadata, self._fail, self._retry_backoff, self._unexpected)
        self.validations = self._validator.progress
        self._calls: list[ListOffsetsCall] = []
        self._end_requests: set[PartitionState] = set()  # partitions whose end offset is being requested
        self._metadata_version = -1
        self._error: tuple[KafkaError, tuple[TopicPartition, ...]] | None = None

    # --- polling -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Returns the requests to send at `now` (ms)."""
        requests: list[UnsentRequest] = []
        wait_ms = FOREVER
        positions = self._positions
        self._changes.set_now(now)
        if self._metadata_version != self._cluster.update_version or positions.has_unchecked_leaders:
            self._metadata_version = self._cluster.update_version
            positions.validate_all(self._cluster)
        if not positions.has_all_positions():
            wait_ms = self._request_positions(now, requests)
        self._update_progress()
        if self._calls:
            wait_ms = min(wait_ms, *(call.poll(now, requests) for call in self._calls))
            self._calls = [call for call in self._calls if not call.promise.done]
        return PollResult(requests, wait_ms)

    def _update_progress(self) -> None:
        """End the waits for which no partition waits any more."""
        resetting, validating = self.progress.since is not None, self.validations.since is not None
        if resetting and not self._calls and not self._positions.partitions_to_reset(FOREVER):
            self.progress.done()
        if validating and not self._positions.partitions_to_validate(FOREVER):
            self.validations.done()

    def _request_positions(self, now: float, requests: list[UnsentRequest]) -> float:
        leaderless = self._request_resets(now, requests)
        leaderless += self._validator.poll(now, requests)
        wait = self._positions.next_retry(now)
        if leaderless:
            self._metadata.request_leaders()
            for tp in leaderless:
                self._assignment.get(tp).set_last_error(
                    self._metadata.topic_errors.problem_with(tp) or "no leader is known"
                )
            wait = min(wait, self._config.retry_backoff_ms)
        return wait

    @property
    def has_error(self) -> bool:
        """True if `take_error` may return an error."""
        return self._error is not None or self._validator.has_truncation

    def take_error(self) -> KafkaError | None:
        """Returns the error that the user's next call must raise, or None, and clears it.

        Possible causes are topics that may not be read, a failed authentication, and a truncated log. The error of a
        truncated log is returned each time the truncation is found again. An error is discarded if its partitions have
        got a position or have been revoked meanwhile.
        """
        if self._error is not None:
            (error, partitions), self._error = self._error, None
            if self._still_waiting(partitions):
                return error
        return self._validator.take_truncation()

    def lasting_error(self) -> KafkaError | None:
        """Returns the error for partitions whose log was truncated below their position, or None.

        There is such an error only if the reset policy is OffsetReset.NONE. The partitions are not read until the user
        acts, for example seeks. Until then, each call returns the error.
        """
        return self._validator.truncation()

    def _still_waiting(self, partitions: Iterable[TopicPartition]) -> bool:
        """Returns True if one of the partitions still needs a valid position.

        A partition whose topic was unsubscribed meanwhile needs no position.
        """
        states = (self._assignment.find(tp) for tp in partitions)
        return any(state and not (state.has_valid_position or state.unsubscribed) for state in states)

    def _fail(self, error: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """Store an error for `take_error`. If another error is stored, and its partitions still need a position, keeps
        that one."""
        if self._error is None or not self._still_waiting(self._error[1]):
            self._error = error, tuple(partitions)

    # --- resets ------------------------------------------------------------------------------------------

    def _request_resets(self, now: float, requests: list[UnsentRequest]) -> list[TopicPartition]:
        """Append ListOffsets requests for the partitions that await a reset. Returns those without a leader."""
        by_node, leaderless = by_leader(self._cluster, self._positions.partitions_to_reset(now))
        for node_id, partitions in by_node.items():
            strategies = {tp: self._assignment.get(tp).reset_strategy or OffsetReset.LATEST for tp in partitions}
            requested = {tp: self._reset_timestamp(tp, strategy) for tp, strategy in strategies.items()}
            self._positions.set_next_retry(partitions, now + self._config.request_timeout_ms)
            self.progress.requested(now)
            requests.append(self._requests.request(node_id, requested, self._reset_handler(strategies, requested)))
        return leaderless

    def _reset_timestamp(self, tp: TopicPartition, strategy: OffsetReset) -> int:
        if self._assignment.get(tp).reset_end == LATEST:
            return LATEST
        timestamp = strategy.timestamp(self._wall_ms())
        return LATEST if timestamp is None else timestamp

    def _reset_handler(
        self, strategies: Mapping[TopicPartition, OffsetReset], requested: Mapping[TopicPartition, int]
    ) -> Callable[[Reply], None]:
        def on_reply(reply: Reply) -> None:
            if reply.error is None:
                self._apply_resets(strategies, requested, self._parse(reply, strategies), reply.now)
                return
            self._retry_resets(dict.fromkeys(strategies, reply.error), reply.now)
            if not reply.error.retriable:
                self._fail(reply.error, strategies)

        return on_reply

    def _parse(self, reply: Reply, requested: Iterable[TopicPartition]) -> ListOffsetsResult:
        return parse_response(reply.message, requested, self._unexpected, reply.now)

    def _apply_resets(
        self,
        strategies: Mapping[TopicPartition, OffsetReset],
        requested: Mapping[TopicPartition, int],
        result: ListOffsetsResult,
        now: float,
    ) -> None:
        self.progress.responded()
        for tp, found in result.found.items():
            self._metadata.update_last_seen_epoch(tp, found.leader_epoch)
            if requested[tp] == LATEST and strategies[tp].duration_ms is not None:
                self._store_end(tp, strategies[tp], found)
            else:
                self._seek(tp, found.offset, strategies[tp])
        for tp in result.none:
            self._on_no_offset(tp, strategies[tp], now)
        error = result.authorization_error
        if error is not None:
            self._retry_resets(dict.fromkeys(result.unauthorized, error), now)
            self._fail(error, result.unauthorized)
        if result.retry:
            self._retry_resets(result.retry, now)

    def _seek(self, tp: TopicPartition, offset: int, strategy: OffsetReset) -> None:
        state = self._assignment.find(tp)
        lost = None if state is None or self._is_another_topic(state) else state.out_of_range_offset
        if not self._positions.maybe_seek_after_reset(tp, offset, strategy, self._cluster.leader(tp)):
            return
        if state is None or lost in (None, offset) or state.out_of_range > 1:
            _log.info("reset the position of %s to offset %d (%s)", tp, offset, strategy)
        else:
            _warn_out_of_range(tp, lost, offset, strategy)

    def _is_another_topic(self, state: PartitionState) -> bool:
        """Returns True if the topic was deleted and created again since the position was set.

        There has been a warning about that. The offsets of the old and of the new topic must not be compared.
        """
        current = self._cluster.topic_id(state.topic_partition.topic)
        return None not in (current, state.topic_id) and current != state.topic_id

    def _retry_resets(self, reasons: Mapping[TopicPartition, KafkaError], now: float) -> None:
        self.progress.failed(next(iter(reasons.values())), now)
        self._positions.back_off(reasons, now, self._retry_backoff.shared_delay())
        self._metadata.request_update()

    # A reset by duration may find no record of that time or later. Then the position must be the end of the log. But a
    # record may be written between the request for the time and the request for the end, and it must not be skipped. So
    # the end is requested next, and then the time again. The end is used only if there is still no record of that time
    # or later.

    def _on_no_offset(self, tp: TopicPartition, strategy: OffsetReset, now: float) -> None:
        state = self._assignment.find(tp)
        if state is None or state.fetch_state is not AWAIT_RESET or state.reset_strategy != strategy:
            return
        if strategy.duration_ms is None or state.reset_end == LATEST:
            self._retry_resets({tp: KafkaError("the leader has no such offset")}, now)
        elif state.reset_end is None:
            state.set_reset_end(LATEST)
        else:
            self._seek(tp, state.reset_end, strategy)

    def _store_end(self, tp: TopicPartition, strategy: OffsetReset, found: OffsetAndTimestamp) -> None:
        state = self._assignment.find(tp)
        if state is not None and state.fetch_state is AWAIT_RESET and state.reset_strategy == strategy:
            state.set_reset_end(found.offset)

    # --- lookups for the user ----------------------------------------------------------------------------

    def list_offsets(self, timestamps: Mapping[TopicPartition, int], deadline: float = FOREVER) -> Promise[OffsetTable]:
        """Look up the offset of the first record at or after each of `timestamps` (ms since 1970).

        The timestamp EARLIEST requests the first offset of the log, and LATEST the end of the log. Partitions need not
        be assigned. Returns a promise of a dict that maps each partition to its offset, or to None if there is no such
        record. The promise fails with TimeoutError at `deadline` (ms), or with an error that is not retriable, such as
        TopicAuthorizationError or InvalidTopicError. To stop the lookup earlier, fail the promise.
        """
        backoff = RetryTimer(self._retry_backoff)
        requests = self._requests
        call = ListOffsetsCall(
            requests, self._cluster, self._metadata, timestamps, deadline, backoff, self.progress, self._unexpected
        )
        if not timestamps:
            call.promise.set_result({})
            return call.promise
        topics = {tp.topic for tp in timestamps}
        self._metadata.add_topics(topics)
        call.promise.add_done_callback(lambda _: self._metadata.remove_topics(topics))
        ends = frozenset(tp for tp, timestamp in timestamps.items() if timestamp == LATEST)
        call.promise.add_done_callback(lambda promise: self._store_ends(ends, promise))
        self._calls.append(call)
        return call.promise

    def request_end_offset(self, tp: TopicPartition) -> None:
        """Request the end offset of an assigned partition for `current_lag`, unless it is being requested already."""
        state = self._assignment.get(tp)
        if state in self._end_requests:
            return
        deadline = self._changes.now + self._config.default_api_timeout_ms
        promise = self.list_offsets({tp: LATEST}, deadline)
        self._end_requests.add(state)
        promise.add_done_callback(lambda _: self._end_requests.discard(state))

    def _store_ends(self, ends: frozenset[TopicPartition], promise: Promise[OffsetTable]) -> None:
        """Store the end offsets that a lookup found for assigned partitions in `ends`, so that `current_lag` can use
        them."""
        for tp, found in (promise.value or {}).items():
            state = self._assignment.find(tp) if tp in ends else None
            if state is None or found is None:
                continue
            if self._requests.read_committed:
                state.update_offsets(-1, found.offset)
            else:
                state.update_offsets(found.offset)

    def __repr__(self) -> str:
        return f"<ResetManager: {len(self._calls)} lookups, {self._positions!r}>"


def _warn_out_of_range(tp: TopicPartition, lost: int, offset: int, strategy: OffsetReset) -> None:
    """Log which records are skipped or read again, because the position `lost` was out of range and is now `offset`.

    A broker that rejects an offset does not say where its log starts and ends. But the new offset is between the two.
    So an offset before it was before the start, unless the log has grown beyond it meanwhile.
    """
    if lost < offset:
        where, effect, count = "before the start", "were deleted or are skipped", offset - lost
    else:
        where, effect, count = "after the end", "are read again", lost - offset
    _log.warning(
        "offset %d of %s is out of range, %s of the log: continuing at offset %d (%s); up to %d records %s",
        lost,
        tp,
        where,
        offset,
        strategy,
        count,
        effect,
    )
