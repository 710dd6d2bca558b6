"""Sets the initial position of each partition to the committed offset (Java `initWithCommittedOffsetsIfNeeded`).

Requests committed offsets from CommitManager. A partition without a committed offset awaits a reset: ResetManager then
finds the offset for the reset policy with ListOffsets. ResetManager also validates positions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import ErrorSource, PollResult, Promise
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import OffsetConfig
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.offset_fetches import Committed
from kconsumer.errors import KafkaError, NoOffsetForPartitionError, TimeoutError
from kconsumer.state.cluster import Cluster
from kconsumer.state.partition import FetchState
from kconsumer.state.position_errors import no_offset_error
from kconsumer.state.positions import Positions
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

NOT_A_MEMBER = (Errors.UNKNOWN_MEMBER_ID, Errors.STALE_MEMBER_EPOCH)
NOT_A_MEMBER_HINTS: dict[int, str] = dict.fromkeys(
    NOT_A_MEMBER,
    "the coordinator accepts heartbeats of this member, but no OffsetFetch; the log of this broker says why",
)


class PositionsManager(ErrorSource):
    """Sets the positions of partitions in the state INITIALIZING. `commits` is None for a consumer without a group."""

    def __init__(
        self,
        config: OffsetConfig,
        cluster: Cluster,
        positions: Positions,
        commits: CommitManager | None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._retry_backoff_ms: float = config.retry_backoff_ms
        self._cluster = cluster
        self._positions = positions
        self._assignment = positions.assignment
        self._changes = positions.assignment.changes
        self._commits = commits
        self._lookup: Promise[Committed] | None = None
        self._requested_partitions: frozenset[TopicPartition] = frozenset()  # the partitions of the lookup in flight
        self._abandon_after = 0.0  # the lookup in flight is not abandoned before this time (ms)
        self._named: set[TopicPartition] = set()  # partitions that the caller needs, even if they wait for a callback
        self._failed = False  # the last lookup failed, and its backoff has not started yet
        self._failed_assignment = -1  # the assignment version when the last lookup failed
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        self.progress = Progress("partitions", "committed offsets to start from", NOT_A_MEMBER_HINTS)

    def take_error(self) -> KafkaError | None:
        """Returns the error that the next `poll` or `position` must raise, or None, and clears it.

        An error is discarded if no partition waits for a committed offset any more. One for partitions without a
        committed offset contains only those that still have no position. The others have got a position meanwhile. This
        can happen with a network thread, when the lookup runs between the caller's `assign` and `seek`.
        """
        error = super().take_error()
        waiting = set() if error is None else set(self._positions.partitions_to_initialize())
        if not isinstance(error, NoOffsetForPartitionError):
            return error if waiting else None
        waiting.intersection_update(error.partitions)
        return no_offset_error(waiting) if waiting else None

    def poll(self, now: float) -> PollResult:
        """Start a lookup of committed offsets if partitions need one.

        The result contains no requests, because CommitManager sends them.
        """
        if self._lookup is not None and now < self._abandon_after:
            return PollResult(wait_ms=self._abandon_after - now)
        waiting = [tp for tp in self._positions.partitions_to_initialize() if self._may_start(tp)]
        if self._lookup is not None:
            if self._requested_partitions == frozenset(waiting):
                return PollResult(wait_ms=self._retry_backoff_ms)
            self._abandon_lookup()
        if not waiting:
            if self.progress.since is not None:
                self.progress.done()
            return PollResult()
        pause_ms = self._pause_ms(now)
        if pause_ms > 0:
            return PollResult(wait_ms=pause_ms)
        self._named.clear()
        if self._commits is None:
            self._apply(dict.fromkeys(waiting))
            return PollResult()
        deadline = now + self._config.default_api_timeout_ms
        self._requested_partitions = frozenset(waiting)
        self._abandon_after = now + self._retry_backoff_ms
        self._lookup = self._commits.committed(waiting, deadline)
        self._lookup.add_done_callback(self._on_committed)
        return PollResult(wait_ms=0.0)  # CommitManager has a request to send now

    @property
    def last_error(self) -> BaseException | None:
        """The last error of the lookup in flight, which is made again. None if there is none."""
        return None if self._lookup is None else self._lookup.last_error

    def request(self, tp: TopicPartition) -> None:
        """Include this partition in the next lookup, because the caller needs its position.

        The partition is then looked up even while it waits for a listener call.
        """
        self._named.add(tp)

    def _pause_ms(self, now: float) -> float:
        """Returns the time (ms) for which the next lookup must wait.

        If the last lookup failed, the first call after it starts a backoff. If the assignment has changed since the
        failure, there is no backoff.
        """
        if self._failed_assignment != self._changes.assignment_version:
            self._failed = False
            self._backoff.reset()
        elif self._failed:
            self._failed = False
            self._backoff.failed(now)
        return self._backoff.remaining_ms(now)

    def _abandon_lookup(self) -> None:
        """Stop the lookup in flight, because the set of partitions that need a position has changed.

        If it continued, a lookup that is retried for a revoked partition would delay all other partitions. (Java
        compares the sets, too.)
        """
        lookup, self._lookup = self._lookup, None
        self._requested_partitions = frozenset()
        if lookup is not None:
            lookup.set_exception(KafkaError("the assignment has changed since these committed offsets were requested"))

    def _may_start(self, tp: TopicPartition) -> bool:
        """Returns True if the partition may be looked up now.

        Partitions must wait until on_assign has returned, because it may commit. Partitions that are being revoked need
        no position.
        """
        state = self._assignment.get(tp)
        if tp in self._named or tp in self._requested_partitions:
            return True
        return not (state.awaiting_callback or state.pending_revocation or state.unsubscribed)

    def _on_committed(self, promise: Promise[Committed]) -> None:
        if promise is not self._lookup:
            return  # abandoned
        self._lookup = None
        requested, self._requested_partitions = self._requested_partitions, frozenset()
        if promise.value is not None and self._apply(promise.value):
            self.progress.done()
            self._backoff.reset()
            self.on_response(success=True)
            return
        self._failed = True
        self._failed_assignment = self._changes.assignment_version
        for state in filter(None, map(self._assignment.find, requested)):
            if state.fetch_state is FetchState.INITIALIZING:
                state.set_last_error(promise.error or self._error or "")
        if isinstance(promise.error, TimeoutError):
            log.warning("%s; trying again", promise.error)
            self.progress.failed(promise.error, self._changes.now)
        elif promise.error is not None and getattr(promise.error, "code", 0) in NOT_A_MEMBER:
            # The next heartbeat gets this error, too. Then on_lost runs, and the member rejoins. (Java raises the error
            # in poll().)
            log.info("%s; waiting for the next heartbeat to rejoin the group", promise.error)
            self.on_response(success=False)
            self.progress.failed(promise.error, self._changes.now)
        elif promise.error is not None:
            self.keep_error(promise.error)

    def _apply(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> bool:
        """Set the positions to these committed offsets. Partitions whose offset is None await a reset by policy.

        Returns False if there are such partitions but the reset policy is OffsetReset.NONE. They then keep their state,
        and the error is stored for `take_error`. In all other cases returns True.
        """
        for tp, offset in committed.items():
            state = self._assignment.find(tp)
            if offset is None or state is None or state.fetch_state is not FetchState.INITIALIZING:
                continue  # no committed offset, or the partition was revoked or sought meanwhile
            log.info("starting %s from committed offset %d", tp, offset.offset)
            self._positions.seek(tp, offset.offset, offset.leader_epoch, self._cluster.leader(tp))
        try:
            self._positions.reset_initializing(committed)
        except NoOffsetForPartitionError as error:
            self.keep_error(error)
            return False
        return True
