"""What both group protocols have in common: callbacks that are due, taking an assignment over, the caller's poll timer.

What a rebalance consists of is each protocol's own: `classic.py` and `epochs.py`; so are its heartbeats: `heartbeat.py`
and `epoch_heartbeat.py`.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from kconsumer.backoff import ExponentialBackoff, RetryTimer
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback, RebalanceSteps
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import KafkaError
from kconsumer.managers import FOREVER, PollResult, Promise, UnsentRequest
from kconsumer.metadata.manager import MetadataManager
from kconsumer.metrics.registry import Metrics
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer.coordinator.classic_protocol.state import Member
    from kconsumer.coordinator.consumer_protocol.state import ConsumerMember

log = get_logger(__name__)

M = TypeVar("M", bound="Member | ConsumerMember")


class Membership(ABC, Generic[M]):
    """One member's part in its group's rebalances."""

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
        self._metadata = metadata
        self._coordinator = coordinator
        self._commits = commits
        self._metrics = metrics or GroupMetrics(Metrics())
        self._steps = RebalanceSteps()
        self._error: KafkaError | None = None
        self._matched_pattern: re.Pattern[str] | None = None
        self._refresh: Promise[None] | None = None  # metadata that the next step needs

    # --- what the engine asks --------------------------------------------------------------------------------------

    @property
    def due_callback(self) -> RebalanceCallback | None:
        """The listener call to run now, before anything else can go on."""
        return self._steps.due_callback

    def callback_began(self, callback: RebalanceCallback) -> None:
        """The listener is about to be called."""

    @abstractmethod
    def callback_done(self, callback: RebalanceCallback, now: float, error: Exception | None = None) -> None:
        """The callback returned or raised."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether the member is stable with nothing to do: `poll` need not be called for its sake."""

    @abstractmethod
    def take_error(self) -> KafkaError | None:
        """An error of the membership that `poll` must raise."""

    def group_metadata(self) -> GroupMetadata:
        """Group id, generation (or member epoch) and member id as a transactional producer needs them."""
        g = self._member.generation
        return GroupMetadata(self._member.group_id, g.id, g.member_id, self._member.group_instance_id)

    @abstractmethod
    def poll(self, now: float) -> PollResult:
        """The caller polls: take the rebalance as far as it goes without waiting."""

    @abstractmethod
    def leave_callback(self) -> RebalanceCallback | None:
        """The callback to run before leaving: lost when ownership is already gone, else revoked."""

    def last_join(self, leave_group: bool | None = None) -> UnsentRequest | None:
        """Returns the request that a member owes the group before `leave`, if it stays. The response is ignored."""
        return None

    @abstractmethod
    def leave(self, reason: str, now: float, leave_group: bool | None = None) -> UnsentRequest | None:
        """Drop the assignment; the request that leaves, if the coordinator should know.

        `leave_group` None: dynamic members leave, static ones keep their place for when they are back.
        """

    # --- what rebalances are made of -------------------------------------------------------------------------------

    def _pattern_matched(self) -> bool:
        """Whether the client's pattern, if there is one, was matched against all topics of the cluster."""
        pattern = self._subscription.pattern
        if pattern is self._matched_pattern:
            return True
        if self._refresh is None or self._refresh.done:
            self._refresh = self._metadata.refresh()
            self._refresh.add_done_callback(lambda _: setattr(self, "_matched_pattern", pattern))
        return False

    def _commit_first(self, now: float) -> None:
        """Let all queued steps wait for a commit of what was consumed: the next owner starts from it.

        Only for a step that runs inside the caller's poll: there everything that was returned counts as processed.
        """
        self._steps.wait_for(self._commits.auto_commit_before_rebalance(now + self._config.max_poll_interval_ms))
        self._steps.add_next(self._commit_finished)

    def _commit_finished(self, now: float) -> None:
        commit = self._steps.take_commit()
        if commit is not None and commit.error is not None:
            log.warning("group %s: commit before the rebalance failed: %s", self._member.group_id, commit.error)

    def _apply_assignment(
        self, partitions: Collection[TopicPartition], added: Iterable[TopicPartition], now: float
    ) -> None:
        """Own these from now on; what is new is not fetched before the listener knows of it."""
        self._subscription.assign_from_group(partitions)
        self._subscription.mark_awaiting_callback(added)
        self._commits.reset_auto_commit(now)

    def _on_assigned_done(self, added: Iterable[TopicPartition]) -> None:
        """The listener knows of these: they may be fetched."""
        self._subscription.mark_awaiting_callback(added, awaiting=False)
        owned = ", ".join(map(str, sorted(self._subscription.assigned())))
        log.info("group %s: assigned %s", self._member.group_id, owned or "none")

    def _leave_callback_for(self, owned: Collection[TopicPartition], *, gone: bool) -> RebalanceCallback | None:
        """The callback for leaving with these."""
        if not owned or not self._subscription.is_group_managed:
            return None
        return RebalanceCallback(CallbackKind.LOST if gone else CallbackKind.REVOKED, tuple(sorted(owned)))


class AbstractHeartbeatManager(ABC, Generic[M]):
    """Keeps a member alive at its coordinator, and has it leave when the caller does not poll any more."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: M,
        coordinator: CoordinatorManager,
        metrics: GroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._member = member
        self._coordinator = coordinator
        self._metrics = metrics or GroupMetrics(Metrics())
        self._backoff = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        self._next_heartbeat = 0.0
        self._poll_deadline = FOREVER
        self._error: KafkaError | None = None

    @property
    @abstractmethod
    def in_flight(self) -> bool:
        """Whether an answer is awaited."""

    def take_error(self) -> KafkaError | None:
        """An answer that the caller's next call must raise; given once."""
        error, self._error = self._error, None
        return error

    def poll_started(self, now: float) -> None:
        """The caller polls: it is alive."""
        self._poll_deadline = now + self._config.max_poll_interval_ms

    @abstractmethod
    def reset_session_timer(self, now: float) -> None:
        """The coordinator was found, or answered."""

    @abstractmethod
    def time_to_next_ms(self, now: float) -> float:
        """How long (ms) until `poll` has something to do."""

    @abstractmethod
    def poll(self, now: float) -> PollResult:
        """A heartbeat when one is due."""

    def _on_poll_interval_exceeded(self) -> None:
        """The caller has not polled for too long; told once."""
        log.warning(
            "group %s: no poll() for max_poll_interval_ms=%d; leaving the group. Raise max_poll_interval_ms or lower"
            " max_poll_records if processing takes longer than that",
            self._member.group_id,
            self._config.max_poll_interval_ms,
        )
        self._poll_deadline = FOREVER

    def _retry(self, now: float) -> None:
        """The next heartbeat leaves after the backoff, not after the interval."""
        self._backoff.failed(now)
        self._next_heartbeat = now
