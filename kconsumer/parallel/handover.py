"""Handover: gives partitions up, in a rebalance or at the end of a run: waits for handlers, and commits."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from functools import partial
from typing import Any

from kconsumer._common.deferred_calls import get_logger
from kconsumer.errors import KafkaError, RebalanceInProgressError
from kconsumer.listener import RebalanceListener
from kconsumer.parallel.attempt import Executor
from kconsumer.parallel.flows import Flow, run_flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.run_state import RunState
from kconsumer.parallel.transactions import Transactions
from kconsumer.types import TopicPartition

log = get_logger(__name__)

KEEP_ALIVE_INTERVAL_S = 0.05  # how often a run that ends polls, so that it remains a member of its group
EXIT_TIMEOUT_S = 5.0  # how long workers may take to end when all handlers have returned


class Handover(RebalanceListener):
    """The rebalance callbacks of a run, which run before those of the application, and the end of the run."""

    def __init__(self, state: RunState, executor: Executor) -> None:
        self._state = state
        self._executor = executor
        self.transactions = Transactions(state)
        self._source, self._queue = state.source, state.queue
        self._max_poll_interval_s = state.consumer._config.max_poll_interval_ms / 1000

    # --- rebalances --------------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> None:
        """Pause new partitions while all are paused."""
        self._source.on_assigned(partitions)

    def on_partitions_revoked(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Give the partitions up on this thread."""
        return run_flow(self.revoke(partitions))

    def revoke(self, partitions: tuple[TopicPartition, ...]) -> Flow[None]:
        """Wait for the handlers of these partitions if the settings say so, and commit."""
        state, removed = self._state, self._remove(partitions)
        if state.settings.on_revoke == "drain":
            # The group waits for this member no longer than the poll interval.
            timeout_s = min(state.settings.drain_timeout_s, self._max_poll_interval_s / 2)
            yield from self._wait_for_handlers(removed, timeout_s)
        state.count_abandoned(removed)
        yield from self.transactions.flush([*self._trackers(), *removed])
        failure = yield from state.commit_now(removed)
        if failure is not None:
            log.warning("offsets of revoked partitions were not committed: %s", failure)
        state.commits.forget(partitions)

    def _wait_for_handlers(self, removed: Collection[OffsetTracker], timeout_s: float) -> Flow[None]:
        """Wait for the handlers of these partitions, and commit meanwhile what has finished, of all partitions."""
        state, deadline = self._state, self._state.clock.now() + timeout_s * 1000
        while (left_s := state.drain_left_s((deadline - state.clock.now()) / 1000)) > 0:
            if (yield from self._queue.wait_for_handlers(removed, min(left_s, KEEP_ALIVE_INTERVAL_S))):
                return
            if state.commit_due():
                yield from state.commit_now([*self._trackers(), *removed])

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

    def end(self, error: Exception | None) -> Flow[None]:
        """Wait for handlers, commit, and set the positions to the first records that were not finished.

        `error` is that of a poll, if one has ended the run; there are no further polls then. Otherwise raises the error
        of the commit, if no repetition can succeed.
        """
        state = self._state
        state.begin_drain()
        self._queue.close(self._trackers(), all_work=True)
        polls = yield from self._drain(polls=error is None)
        yield from self.transactions.flush(self._trackers())
        failure = yield from self._commit(polls=polls)
        self._seek_back()
        if failure is not None:
            log.warning("the last commit of the run failed, so some records will be processed again: %s", failure)
            if error is None and self._queue.error is None and not state.commits.can_repeat(failure):
                raise failure

    def abort(self) -> Flow[None]:
        """End without waiting, after an exception such as KeyboardInterrupt.

        Sets the positions to the first records that are not finished, so that a later run begins with them.
        """
        self._queue.close(self._trackers(), all_work=True)
        try:
            yield partial(self._executor.stop, 0.0)
        finally:
            self._seek_back()

    def leave(self) -> Flow[None]:
        """Commit what is finished, after `abort`. If the commit is cancelled, too, it is sent without waiting."""
        try:
            failure = yield from self._state.commit_now(self._trackers())
            if failure is not None:
                log.warning("the last commit of the run failed, so some records will be processed again: %s", failure)
        except BaseException:
            self._state.commits.send(self._trackers(), self._source.commit_async)
            raise

    def _seek_back(self) -> None:
        trackers = self._state.trackers.items()
        self._source.seek({tp: tracker.to_commit() or 0 for tp, tracker in trackers if tracker.unfinished})

    def _trackers(self) -> list[OffsetTracker]:
        return list(self._state.trackers.values())  # polls change them

    def _drain(self, *, polls: bool) -> Flow[bool]:
        """Wait for all handlers, and end the workers. Returns False if polls fail."""
        if polls:
            self._source.pause_all()
        state = self._state
        while state.drain_left_s(state.settings.drain_timeout_s) > 0:
            if (yield from self._queue.wait_for_handlers(self._trackers(), KEEP_ALIVE_INTERVAL_S)):
                break
            polls = polls and (yield from self._keep_alive())
            yield from self._commit_meanwhile(polls=polls)
        before = self._state.abandoned
        self._state.count_abandoned(self._trackers())
        yield partial(self._executor.stop, EXIT_TIMEOUT_S if self._state.abandoned == before else 0.0)
        return polls

    def _commit_meanwhile(self, *, polls: bool) -> Flow[None]:
        """Commit what has finished while handlers are waited for: this process may be killed before they return."""
        state = self._state
        if not state.commit_due():
            return
        if not polls:  # which call the callbacks of commits
            yield from state.commit_now(self._trackers())
            return
        try:
            state.start_commit()
        except KafkaError as error:
            log.warning("a commit failed while the run ended: %s", error)

    def _commit(self, *, polls: bool) -> Flow[KafkaError | None]:
        """Commit, and wait. During a rebalance, polls complete it, and the commit is tried again."""
        deadline = self._state.clock.now() + self._state.commit_timeout_s * 1000
        failure = yield from self._state.commit_now(self._trackers())
        while isinstance(failure, RebalanceInProgressError) and polls and self._state.clock.now() < deadline:
            polls = yield from self._keep_alive(KEEP_ALIVE_INTERVAL_S)
            failure = yield from self._state.commit_now(self._trackers())
        return failure

    def _keep_alive(self, timeout_s: float = 0.0) -> Flow[bool]:
        """Poll while all partitions are paused. Returns False if the poll failed."""
        try:
            yield from self._source.poll(timeout_s, 1)
        except Exception as error:  # of a listener, too; the run ends already
            log.warning("a poll failed while the run ended: %s", error)
            return False
        return True
