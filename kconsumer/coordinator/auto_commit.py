"""Auto-commit (`enable_auto_commit`): when the consumer commits its positions by itself.

Decides when the interval has passed, which positions are committed, and how failures are logged. The commits themselves
are requests of the `CommitManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kconsumer.config.option_groups import CommitConfig
from kconsumer.coordinator.pending_offsets import Offsets
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import KafkaError
from kconsumer.managers import Promise
from kconsumer.repeated_failures import RepeatedFailures
from kconsumer.state.subscription import SubscriptionState

log = get_logger(__name__)

TOPIC_GONE = (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID)


class Commit(Protocol):
    """The method of the commit manager."""

    def __call__(
        self,
        offsets: Offsets,
        deadline: float | None = None,
        *,
        automatic: bool = False,
        before_rebalance: bool = False,
    ) -> Promise[Offsets]:
        """Commit these offsets."""
        ...


class AutoCommit:
    """The interval timer of auto-commit (Java's `AutoCommitState`)."""

    def __init__(self, config: CommitConfig, group_id: str, subscription: SubscriptionState, commit: Commit) -> None:
        self.enabled = bool(config.enable_auto_commit)
        self._config = config
        self._group_id = group_id
        self._subscription = subscription
        self._commit = commit
        self._due: float | None = None  # ms; None before the first poll
        self._in_flight: Promise[Offsets] | None = None
        self._failures = RepeatedFailures()

    def start_if_due(self, now: float, notify: Callable[[Offsets, KafkaError | None], None] | None) -> None:
        """Commit everything consumed if the interval has passed and no auto-commit is in flight.

        `notify` is called with the outcome.
        """
        if not self.enabled:
            return
        if self._due is None:
            self.restart_interval(now)
        elif now >= self._due and self._in_flight is None:
            self.restart_interval(now)
            self._start(now, notify)

    def restart_interval(self, now: float) -> None:
        """Wait a whole interval from now, after a commit was started or an assignment changed."""
        self._due = now + self._config.auto_commit_interval_ms

    def before_rebalance(self, deadline: float) -> Promise[Offsets]:
        """Commit everything consumed, with retries until `deadline`.

        Java reads the positions again before each retry. Here they are those of the poll that began the rebalance: what
        is returned later is still being processed when a retry is sent.
        """
        return self._commit(self._subscription.all_consumed(), deadline, automatic=True, before_rebalance=True)

    def _start(self, now: float, notify: Callable[[Offsets, KafkaError | None], None] | None) -> None:
        offsets = self._subscription.all_consumed()
        if not offsets:
            return
        commit = self._in_flight = self._commit(offsets, automatic=True)
        commit.add_done_callback(lambda promise: self._on_done(promise.error, now))
        if notify is not None:
            commit.add_done_callback(lambda promise: notify(offsets, promise.error))

    def _on_done(self, error: KafkaError | None, started_at: float) -> None:
        self._in_flight = None
        if error is None:
            self._failures.reset()
            return
        suppressed = self._failures.failed([str(error)], started_at)
        if suppressed is not None:
            since = f"; attempts that failed since the last warning: {suppressed}" if suppressed else ""
            log.warning("group %s: auto-commit failed, will be tried again: %s%s", self._group_id, error, since)
        if error.retriable and getattr(error, "code", 0) not in TOPIC_GONE:
            self._due = started_at + self._config.retry_backoff_ms
