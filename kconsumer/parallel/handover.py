"""Handover: gives partitions up, in a rebalance or at the end of a run: waits for handlers, and commits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kconsumer.deferred_calls import get_logger
from kconsumer.errors import KafkaError, RebalanceInProgressError
from kconsumer.listener import RebalanceListener
from kconsumer.parallel.attempt import Executor
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.run_state import RunState
from kconsumer.types import TopicPartition

log = get_logger(__name__)

KEEP_ALIVE_INTERVAL_S = 0.05  # how often a run that ends polls, so that it remains a member of its group
EXIT_TIMEOUT_S = 5.0  # how long workers may take to end when all handlers have returned


class Handover(RebalanceListener):
    """The rebalance callbacks of a run, which run before those of the application, and the end of the run."""

    def __init__(self, state: RunState, executor: Executor) -> None:
        self._state = state
        self._executor = executor
        self._source, self._queue = state.source, state.queue
        self._max_poll_interval_s = state.consumer._config.max_poll_interval_ms / 1000

    # --- rebalances --------------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        """Pause new partitions while all are paused."""
        self._source.on_assigned(partitions)

    def on_partitions_revoked(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        """Wait for the handlers of these partitions if the settings say so, and commit."""
        state, removed = self._state, self._remove(partitions)
        if state.settings.on_revoke == "drain":
            # The group waits for this member no longer than the poll interval.
            timeout_s = min(state.settings.drain_timeout_s, self._max_poll_interval_s / 2)
            self._queue.wait_for_handlers(removed, timeout_s)
        state.count_abandoned(removed)
        failure = state.commit_now(removed)
        if failure is not None:
            log.warning("offsets of revoked partitions were not committed: %s", failure)
        state.commits.forget(partitions)

    def on_partitions_lost(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        """Neither wait nor commit, because another member may own the partitions already."""
        self._state.count_abandoned(self._remove(partitions))
        self._state.commits.forget(partitions)

    def _remove(self, partitions: Collection[TopicPartition]) -> list[OffsetTracker]:
        trackers = self._state.trackers
        removed = [tracker for tp in partitions if (tracker := trackers.pop(tp, None)) is not None]
        self._queue.close(removed)
        self._source.on_removed(partitions)
        return removed

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, error: Exception | None) -> None:
        """Wait for handlers, commit, and set the positions to the first records that were not finished.

        `error` is that of a poll, if one has ended the run; there are no further polls then. Otherwise raises the error
        of the commit, if no repetition can succeed.
        """
        state = self._state
        self._queue.close(self._trackers(), all_work=True)
        polls = self._drain(polls=error is None)
        failure = self._commit(polls=polls)
        self._source.seek({tp: t.to_commit() or 0 for tp, t in state.trackers.items() if t.unfinished})
        if failure is not None:
            log.warning("the last commit of the run failed, so some records will be processed again: %s", failure)
            if error is None and self._queue.error is None and not state.commits.can_repeat(failure):
                raise failure

    def abort(self) -> None:
        """End without waiting, after an exception such as KeyboardInterrupt."""
        self._queue.close(self._trackers(), all_work=True)
        self._executor.stop(0.0)

    def _trackers(self) -> list[OffsetTracker]:
        return list(self._state.trackers.values())  # polls change them

    def _drain(self, *, polls: bool) -> bool:
        """Wait for all handlers, and end the workers. Returns False if polls fail."""
        if polls:
            self._source.pause_all()
        deadline = self._state.clock.now() + self._state.settings.drain_timeout_s * 1000
        while self._state.clock.now() < deadline:
            if self._queue.wait_for_handlers(self._trackers(), KEEP_ALIVE_INTERVAL_S):
                break
            polls = polls and self._keep_alive()
        before = self._state.abandoned
        self._state.count_abandoned(self._trackers())
        self._executor.stop(EXIT_TIMEOUT_S if self._state.abandoned == before else 0.0)
        return polls

    def _commit(self, *, polls: bool) -> KafkaError | None:
        """Commit. During a rebalance, polls complete it, and it is tried again."""
        deadline = self._state.clock.now() + self._state.commit_timeout_s * 1000
        failure = self._state.commit_now(self._trackers())
        while isinstance(failure, RebalanceInProgressError) and polls and self._state.clock.now() < deadline:
            polls = self._keep_alive(KEEP_ALIVE_INTERVAL_S)
            failure = self._state.commit_now(self._trackers())
        return failure

    def _keep_alive(self, timeout_s: float = 0.0) -> bool:
        """Poll while all partitions are paused. Returns False if the poll failed."""
        try:
            self._source.poll(timeout_s, 1)
        except Exception as error:  # of a listener, too; the run ends already
            log.warning("a poll failed while the run ended: %s", error)
            return False
        return True
