"""First positions: what an assigned partition without a position gets, from the group's commit or the reset policy.

It asks CommitManager for committed offsets and hands the rest to the reset policy; finding the offset that a policy
means (ListOffsets) and validating positions is OffsetsManager's work.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kconsumer.config import ConsumerConfig
from kconsumer.errors import KafkaError, NoOffsetForPartitionError, TimeoutError
from kconsumer.requests.base import Backoff, PollResult, Promise
from kconsumer.requests.commits import CommitManager
from kconsumer.state.cluster import Cluster
from kconsumer.state.partition import FetchState
from kconsumer.state.subscription import SubscriptionState, no_offset_error
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

NOT_A_MEMBER = (25, 113)  # UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH


class PositionsManager:
    """Moves partitions out of INITIALIZING. `commits` is None for a consumer without a group."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        commits: CommitManager | None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._commits = commits
        self._lookup: Promise[dict[TopicPartition, OffsetAndMetadata | None]] | None = None
        self._asked: set[TopicPartition] = set()  # by name, although something holds them back
        self._error: KafkaError | None = None
        self._refused = False  # the last look-up, because the group has gone on without this member
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def take_error(self) -> KafkaError | None:
        """The error the next `poll` or `position` must raise; given once. Of partitions without a commit those count
        that still have no position: a network thread may look between the caller's `assign` and `seek`."""
        error, self._error = self._error, None
        if not isinstance(error, NoOffsetForPartitionError):
            return error
        waiting = set(self._subscription.partitions_to_initialize()).intersection(error.partitions)
        return no_offset_error(waiting) if waiting else None

    def poll(self, now: float) -> PollResult:
        """Start a look-up when partitions need one; it sends nothing itself."""
        if self._lookup is not None:
            return PollResult()
        if self._refused:
            self._refused = False
            self._backoff.failed(now)
        pause_ms = self._backoff.remaining_ms(now)
        if pause_ms > 0:
            return PollResult(wait_ms=pause_ms)
        waiting = [tp for tp in self._subscription.partitions_to_initialize() if self._may_begin(tp)]
        if not waiting:
            return PollResult()
        self._asked.clear()
        if self._commits is None:
            self._apply(dict.fromkeys(waiting))
            return PollResult()
        deadline = now + self._config.default_api_timeout_ms
        self._lookup = self._commits.committed(waiting, deadline)
        self._lookup.when_done(self._on_committed)
        return PollResult(wait_ms=0.0)  # the commit manager has a request to send now

    def ask(self, tp: TopicPartition) -> None:
        """The caller wants this position now, be it inside a callback."""
        self._asked.add(tp)

    def _may_begin(self, tp: TopicPartition) -> bool:
        """Not before on_assign has returned, for it may commit; and what goes away needs no position."""
        state = self._subscription.get(tp)
        return tp in self._asked or not (state.awaiting_callback or state.pending_revocation or state.unsubscribed)

    def _on_committed(self, promise: Promise[dict[TopicPartition, OffsetAndMetadata | None]]) -> None:
        self._lookup = None
        if isinstance(promise.error, TimeoutError):
            log.warning("%s; trying again", promise.error)
        elif promise.error is not None and getattr(promise.error, "code", 0) in NOT_A_MEMBER:
            # The next heartbeat hears of it, too: on_lost, and the member joins again. Java raises this from poll().
            log.info("%s; waiting to be told by a heartbeat", promise.error)
            self._refused = True
        elif promise.error is not None:
            self._error = promise.error
        elif promise.value is not None:
            self._backoff.reset()
            self._apply(promise.value)

    def _apply(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        subscription = self._subscription
        for tp, offset in committed.items():
            state = subscription.find(tp)
            if offset is None or state is None or state.fetch_state is not FetchState.INITIALIZING:
                continue  # nothing committed, or revoked or sought by the user meanwhile
            log.info("starting %s from committed offset %d", tp, offset.offset)
            subscription.seek(tp, offset.offset, offset.leader_epoch, self._cluster.leader(tp))
        try:
            subscription.reset_initializing(committed)
        except NoOffsetForPartitionError as error:
            self._error = error
