"""Auto-commit (`enable_auto_commit`): when the consumer commits its positions by itself.

Decides when an auto-commit is due, which positions it contains, and how its failures are logged. The `CommitManager`
sends the requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._common.repeated_failures import RepeatedFailures
from kconsumer._internal.managers import FOREVER, Promise
from kconsumer.config.option_groups import CommitConfig
from kconsumer.coordinator.pending_offsets import Offsets
from kconsumer.errors import KafkaError
from kconsumer.state.positions import Positions

log = get_logger(__name__)

# The error codes for a topic that may have been deleted.
TOPIC_GONE = (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID)


class Commit(Protocol):
    """The type of `CommitManager.commit`."""

    def __call__(
        self,
        offsets: Offsets,
        deadline: float | None = None,
        *,
        automatic: bool = False,
        before_rebalance: bool = False,
    ) -> Promise[Offsets]:
        """Commit these offsets. `CommitManager.commit` describes the parameters."""
        ...


class AutoCommit:
    """Starts auto-commits: one per interval, and one before each rebalance (Java's `AutoCommitState`).

    After an error that may pass, the next attempt follows after a backoff and not after the interval. The backoff grows
    from one failure to the next. In Java it does not. But each attempt may close the connection to the coordinator and
    open another one: ten times a second, as long as a broker responds that it is not the coordinator.
    """

    def __init__(
        self,
        config: CommitConfig,
        group_id: str,
        positions: Positions,
        commit: Commit,
        rng: random.Random | None = None,
    ) -> None:
        self.enabled = bool(config.enable_auto_commit)
        self._config = config
        self._group_id = group_id
        self._positions = positions
        self._commit = commit
        self._due: float | None = None  # when the next auto-commit is due (ms); None before the first poll
        self._in_flight: Promise[Offsets] | None = None
        self._retry = RetryTimer(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
        self._failures = RepeatedFailures()

    def start_if_due(self, now: float, notify: Callable[[Offsets, KafkaError | None], None] | None) -> bool:
        """Commit all valid positions if the interval has passed and no auto-commit is in flight.

        The first call only starts the interval. `notify(offsets, error)` is called when the commit has finished;
        `error` is None if it succeeded. Returns whether a commit was started.
        """
        if not self.enabled:
            return False
        if self._due is None:
            self.restart_interval(now)
        elif now >= self._due and self._in_flight is None:
            self.restart_interval(now)
            return self._start(now, notify)
        return False

    @property
    def due(self) -> float:
        """When a poll must call `start_if_due` again (ms). 0 if none has called it yet; FOREVER without auto-commit."""
        if not self.enabled:
            return FOREVER
        return 0.0 if self._due is None else self._due

    def restart_interval(self, now: float) -> None:
        """Make the next auto-commit due one interval after `now`.

        Called when an auto-commit starts, and when the assignment changes.
        """
        self._due = now + self._config.auto_commit_interval_ms

    def before_rebalance(self, deadline: float) -> Promise[Offsets]:
        """Commit all valid positions, with retries until `deadline` (ms). Returns the commit's promise.

        A retry sends the same positions. Java reads the positions again before each retry. But they could then include
        records that a later `poll` has returned and the user is still processing.
        """
        return self._commit(self._positions.all_consumed(), deadline, automatic=True, before_rebalance=True)

    def _start(self, now: float, notify: Callable[[Offsets, KafkaError | None], None] | None) -> bool:
        offsets = self._positions.all_consumed()
        if not offsets:
            return False
        commit = self._in_flight = self._commit(offsets, automatic=True)
        commit.add_done_callback(lambda promise: self._on_done(promise.error, now))
        if notify is not None:
            commit.add_done_callback(lambda promise: notify(offsets, promise.error))
        return True

    def _on_done(self, error: KafkaError | None, started_at: float) -> None:
        self._in_flight = None
        if error is None:
            self._failures.reset()
            self._retry.reset()
            return
        text = f"{error} ({error.__cause__})" if error.__cause__ else str(error)
        suppressed = self._failures.failed([text], started_at)
        if suppressed is not None:
            since = f"; attempts that failed since the last warning: {suppressed}" if suppressed else ""
            log.warning("group %s: auto-commit failed, will be tried again: %s%s", self._group_id, text, since)
        if error.retriable and getattr(error, "code", 0) not in TOPIC_GONE:
            self._retry.failed(started_at)
            self._due = self._retry.until
