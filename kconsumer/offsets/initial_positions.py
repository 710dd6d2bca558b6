"""First positions: what an assigned partition without a position gets, from the group's commit or the reset policy.

It asks CommitManager for committed offsets and hands the rest to the reset policy; finding the offset that a policy
means (ListOffsets) and validating positions is OffsetsManager's work.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kconsumer.backoff import ExponentialBackoff, RetryTimer
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.offset_fetches import Committed
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import KafkaError, NoOffsetForPartitionError, TimeoutError
from kconsumer.managers import PollResult, Promise
from kconsumer.state.cluster import Cluster
from kconsumer.state.partition import FetchState
from kconsumer.state.subscription import SubscriptionState, no_offset_error
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

NOT_A_MEMBER = (Errors.UNKNOWN_MEMBER_ID, Errors.STALE_MEMBER_EPOCH)


class PositionsManager:
    """Moves partitions out of INITIALIZING. `commits` is None for a consumer without a group."""

    def __init__(
        self,
        config: OffsetConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        commits: CommitManager | None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._retry_backoff_ms: float = config.retry_backoff_ms
        self._cluster = cluster
        self._subscription = subscription
        self._commits = commits
        self._lookup: Promise[Committed] | None = None
        self._looked_up: frozenset[TopicPartition] = frozenset()  # by the look-up in flight
        self._keep_until = 0.0  # the look-up in flight is not replaced before
        self._requested: set[TopicPartition] = set()  # by name, although something holds them back
        self._error: KafkaError | None = None
        self._failed = False  # the last look-up, and the backoff has not begun yet
        self._failed_version = -1  # of the assignment that it was made for
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))

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
        if self._lookup is not None and now < self._keep_until:
            return PollResult(wait_ms=self._keep_until - now)
        waiting = [tp for tp in self._subscription.partitions_to_initialize() if self._may_begin(tp)]
        if self._lookup is not None:
            if self._looked_up == frozenset(waiting):
                return PollResult(wait_ms=self._retry_backoff_ms)
            self._abandon()
        if not waiting:
            return PollResult()
        pause_ms = self._pause_ms(now)
        if pause_ms > 0:
            return PollResult(wait_ms=pause_ms)
        self._requested.clear()
        if self._commits is None:
            self._apply(dict.fromkeys(waiting))
            return PollResult()
        deadline = now + self._config.default_api_timeout_ms
        self._looked_up = frozenset(waiting)
        self._keep_until = now + self._retry_backoff_ms
        self._lookup = self._commits.committed(waiting, deadline)
        self._lookup.add_done_callback(self._on_committed)
        return PollResult(wait_ms=0.0)  # the commit manager has a request to send now

    def request(self, tp: TopicPartition) -> None:
        """The caller wants this position now, be it inside a callback."""
        self._requested.add(tp)

    def _pause_ms(self, now: float) -> float:
        """How long to wait before the next look-up, after one that failed. Another assignment is looked up at once."""
        if self._failed_version != self._subscription.assignment_version:
            self._failed = False
            self._backoff.reset()
        elif self._failed:
            self._failed = False
            self._backoff.failed(now)
        return self._backoff.remaining_ms(now)

    def _abandon(self) -> None:
        """Give up a look-up because other partitions need a position now (Java compares the sets, too). One that is
        retried because of a partition that was revoked since would keep all others waiting."""
        lookup, self._lookup = self._lookup, None
        self._looked_up = frozenset()
        if lookup is not None:
            lookup.set_exception(KafkaError("the assignment has changed since these committed offsets were asked for"))

    def _may_begin(self, tp: TopicPartition) -> bool:
        """Not before on_assign has returned, for it may commit; and what goes away needs no position."""
        state = self._subscription.get(tp)
        if tp in self._requested or tp in self._looked_up:
            return True
        return not (state.awaiting_callback or state.pending_revocation or state.unsubscribed)

    def _on_committed(self, promise: Promise[Committed]) -> None:
        if promise is not self._lookup:
            return  # abandoned
        self._lookup = None
        looked_up, self._looked_up = self._looked_up, frozenset()
        if promise.value is not None and self._apply(promise.value):
            self._backoff.reset()
            return
        self._failed = True
        self._failed_version = self._subscription.assignment_version
        for state in filter(None, map(self._subscription.find, looked_up)):
            if state.fetch_state is FetchState.INITIALIZING:
                state.set_last_error(str(promise.error or self._error))
        if isinstance(promise.error, TimeoutError):
            log.warning("%s; trying again", promise.error)
        elif promise.error is not None and getattr(promise.error, "code", 0) in NOT_A_MEMBER:
            # The next heartbeat hears of it, too: on_lost, and the member joins again. Java raises this from poll().
            log.info("%s; waiting to be told by a heartbeat", promise.error)
        elif promise.error is not None:
            self._error = promise.error

    def _apply(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> bool:
        """Take these as positions. False if some have neither a commit nor a reset policy."""
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
            return False
        return True
