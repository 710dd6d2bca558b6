"""Base classes of the membership and heartbeat managers of both group protocols.

They contain what the protocols share: due callbacks, applying an assignment, the timer of the poll interval. In
`classic_protocol` and `consumer_protocol`, `manager.py` decides which steps a rebalance has, and `heartbeat.py` decides
when heartbeats are sent.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.repeated_failures import RepeatedFailures
from kconsumer._internal.managers import FOREVER, ErrorSource, PollResult, Promise, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.error_hints import MEMBERSHIP_HINTS
from kconsumer.coordinator.group_member import GroupMember, HeartbeatMember
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.metrics import GroupMetrics, HeartbeatMetrics
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback, RebalanceSteps
from kconsumer.metadata.manager import MetadataManager
from kconsumer.metrics.registry import Metrics
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import GroupMetadata, TopicPartition

log = get_logger(__name__)

M = TypeVar("M", bound=GroupMember)
H = TypeVar("H", bound=HeartbeatMember)


class Membership(ErrorSource, ABC, Generic[M]):
    """Runs the rebalances of one member of a group."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: M,
        subscription: SubscriptionState,
        metadata: MetadataManager,
        coordinator: CoordinatorManager,
        commits: CommitManager,
        metrics: GroupMetrics | None = None,
    ) -> None:
        self._config = config
        self._member = member
        self._subscription = subscription
        self._assignment = subscription.assignment
        self._metadata = metadata
        self._coordinator = coordinator
        self._commits = commits
        self._metrics = metrics or GroupMetrics(Metrics())
        self._steps = RebalanceSteps()
        self._commit_failures = RepeatedFailures()  # of the commits before rebalances
        self._matched_pattern: re.Pattern[str] | None = None  # the pattern that was matched against all topics
        self._refresh: Promise[None] | None = None  # the metadata request that the next step waits for

    # --- what the engine calls -------------------------------------------------------------------------------------

    @property
    def due_callback(self) -> RebalanceCallback | None:
        """The listener call that the rebalance waits for, or None."""
        return self._steps.due_callback

    def callback_began(self, callback: RebalanceCallback) -> None:
        """Prepare for a listener call. The engine calls this directly before it calls the listener. Does nothing by
        default."""

    @abstractmethod
    def callback_done(self, callback: RebalanceCallback, now: float, error: Exception | None = None) -> None:
        """Continue after a listener call. `error` is the exception that it raised, or None."""

    @property
    def in_flight(self) -> bool:
        """True while a request of a rebalance has no response yet."""
        return False

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True if the member has nothing to do, so that calling `poll` would have no effect."""

    def group_metadata(self) -> GroupMetadata:
        """Returns the group id, generation (or member epoch) and member id for a transactional producer."""
        g = self._member.generation
        return GroupMetadata(self._member.group_id, g.id, g.member_id, self._member.group_instance_id)

    @abstractmethod
    def poll(self, now: float) -> PollResult:
        """Continue the rebalance as far as possible without waiting. Called only while the user's `poll` runs.

        Returns the requests to send and the time (ms) until the next call is necessary.
        """

    @abstractmethod
    def leave_callback(self) -> RebalanceCallback | None:
        """Returns the listener call to run before leaving the group, or None if no partitions are assigned.

        The call is on_lost if the coordinator may have assigned the partitions to other members, else on_revoke.
        """

    def last_join(self, leave_group: bool | None = None) -> UnsentRequest | None:
        """Returns a JoinGroup to send before `leave` is called, or None. The response to it is ignored.

        Only a static member that stays in the group needs this request. `leave_group` has the same meaning as in
        `leave`.
        """
        return None

    @abstractmethod
    def leave(self, reason: str, now: float, leave_group: bool | None = None) -> UnsentRequest | None:
        """Drop the assignment. Returns the request that leaves the group, or None if none must be sent.

        With `leave_group` None, dynamic members leave, and static members stay in the group for their successors.
        With True, every member leaves. With False, none does.
        """

    # --- parts of a rebalance --------------------------------------------------------------------------------------

    def _pattern_matched(self) -> bool:
        """Returns True if the subscription has no pattern, or if it was matched against all topics of the cluster.

        If the pattern was not matched yet, requests metadata of all topics and returns False. The response is then
        matched.
        """
        pattern = self._subscription.pattern
        if pattern is None or pattern is self._matched_pattern:
            return True
        if self._refresh is None or self._refresh.done:
            self._refresh = self._metadata.refresh()
            self._refresh.add_done_callback(lambda _: self._on_refreshed(pattern))
        return False

    def _on_refreshed(self, pattern: re.Pattern[str]) -> None:
        # If the consumer has unsubscribed since the request, the response was not matched.
        if self._subscription.pattern is pattern:
            self._matched_pattern = pattern

    def _forget_match(self) -> None:
        """Forget that the pattern was matched, so that a later subscription to the same pattern matches it again.

        `leave` calls this, because `unsubscribe` then drops the matching topics.
        """
        self._matched_pattern = None

    def _commit_first(self, now: float) -> None:
        """Start an auto-commit, if enabled, and make all queued steps wait for it.

        This is necessary because the next owners of the partitions start at the committed offsets. Call this only
        inside the user's `poll`: only there do all returned records count as processed.
        """
        self._steps.wait_for(self._commits.auto_commit_before_rebalance(now + self._config.max_poll_interval_ms))
        self._steps.add_next(self._commit_finished)

    def _commit_finished(self, now: float) -> None:
        commit = self._steps.take_commit()
        if commit is None:
            return
        if commit.error is None:
            self._commit_failures.reset()
        elif self._commit_failures.failed([str(commit.error)], now) is not None:
            log.warning("group %s: commit before the rebalance failed: %s", self._member.group_id, commit.error)

    def _apply_assignment(
        self, partitions: Collection[TopicPartition], added: Iterable[TopicPartition], now: float
    ) -> None:
        """Assign exactly `partitions`. Those in `added` are fetched only after `_on_assigned_done` was called."""
        self._subscription.assign_from_group(partitions)
        self._assignment.mark_awaiting_callback(added)
        self._commits.reset_auto_commit(now)

    def _on_assigned_done(self, added: Iterable[TopicPartition]) -> None:
        """Allow fetching from the added partitions after the on_assign call, and log the assignment."""
        self._assignment.mark_awaiting_callback(added, awaiting=False)
        owned = ", ".join(map(str, sorted(self._assignment.assigned())))
        log.info("group %s: assigned %s", self._member.group_id, owned or "none")

    def _leave_callback_for(self, owned: Collection[TopicPartition], *, gone: bool) -> RebalanceCallback | None:
        """Returns the listener call to run before a member that owns the partitions `owned` leaves the group.

        The call is on_lost if `gone` is True, else on_revoke. Returns None if `owned` is empty, or if the group does
        not manage the partitions.
        """
        if not owned or not self._subscription.is_group_managed:
            return None
        return RebalanceCallback(CallbackKind.LOST if gone else CallbackKind.REVOKED, tuple(sorted(owned)))


class AbstractHeartbeatManager(ErrorSource, ABC, Generic[H]):
    """Sends the heartbeats of a member, and leaves the group if the user does not poll for `max_poll_interval_ms`."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: H,
        coordinator: CoordinatorManager,
        metrics: HeartbeatMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._member = member
        self._coordinator = coordinator
        self._metrics = metrics or HeartbeatMetrics(Metrics())
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        self._next_heartbeat = 0.0
        self._poll_deadline = FOREVER
        # Whether the coordinator accepts the member. A response to a heartbeat confirms it.
        subject = f"group {member.group_id!r}"
        self.progress = Progress(subject, "a stable membership", MEMBERSHIP_HINTS, after=coordinator.progress)

    @property
    @abstractmethod
    def in_flight(self) -> bool:
        """True while a heartbeat has no response yet."""

    @property
    def may_be_member(self) -> bool:
        """True if the coordinator may have this member."""
        return self._member.in_group

    def end_membership(self) -> None:
        """Forget what concerns only the current membership, because the member leaves the group."""
        self._error = None
        self.progress.done()

    def poll_started(self, now: float) -> None:
        """Restart the poll interval, because the user called `poll`."""
        self._poll_deadline = now + self._config.max_poll_interval_ms

    def polled_in_time(self, now: float) -> bool:
        """Returns True if a poll runs, or if the last one ended less than the poll interval ago."""
        return now < self._poll_deadline < FOREVER

    @abstractmethod
    def reset_session_timer(self, now: float) -> None:
        """Restart the session timeout. Called when the coordinator was found or has responded."""

    @abstractmethod
    def time_to_next_ms(self, now: float) -> float:
        """Returns the time (ms) until `poll` has something to do."""

    @abstractmethod
    def poll(self, now: float) -> PollResult:
        """Returns a heartbeat if one is due."""

    def _on_poll_interval_exceeded(self) -> None:
        """Log that the user did not poll for `max_poll_interval_ms`, and stop the poll interval. The next poll starts
        it again."""
        log.warning(
            "group %s: no poll() for max_poll_interval_ms=%d; leaving the group. Raise max_poll_interval_ms or lower"
            " max_poll_records if processing takes longer than that",
            self._member.group_id,
            self._config.max_poll_interval_ms,
        )
        self._poll_deadline = FOREVER

    def _retry(self, now: float) -> None:
        """Schedule the next heartbeat after the retry backoff, not after the heartbeat interval."""
        self._backoff.failed(now)
        self._next_heartbeat = now
