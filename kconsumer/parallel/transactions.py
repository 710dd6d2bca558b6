"""Transactions: records that have failed are written to other topics, and their offsets committed, in one transaction.

Used by the thread that polls. No commit of the run is in flight meanwhile: if the broker stored it after the offsets of
the transaction, it would say that the records are not finished.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from kconsumer._common.deferred_calls import get_logger
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.producers import Message
from kconsumer.parallel.retry_topics import RetryTopics
from kconsumer.parallel.run_state import RunState
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

MAX_RECORDS = 500  # of a transaction
HandedOver = tuple[OffsetTracker, int, Message]


class Transactions:
    """Writes what workers have put into `WorkQueue.handed_over`. Does nothing in runs without transactions."""

    def __init__(self, state: RunState) -> None:
        self._state, self._queue = state, state.queue
        on_failure = state.settings.on_failure
        self._topics = on_failure if isinstance(on_failure, RetryTopics) and on_failure.transactional else None
        self._failing_since: float | None = None  # ms

    @property
    def enabled(self) -> bool:
        """True if the run has transactions."""
        return self._topics is not None

    def run(self) -> Flow[None]:
        """Write what is waiting. After an error, a later call tries again.

        Raises the error if the transaction cannot be aborted, or if all have failed for `timeout_s`.
        """
        error = yield from self._try(self._state.trackers.values())
        now = self._state.clock.now()
        if error is None:
            self._failing_since = None
            return
        log.info("a transaction was aborted, and is tried again: %s", error)
        self._failing_since = now if self._failing_since is None else self._failing_since
        if self._topics is not None and now - self._failing_since >= 1000 * self._topics.timeout_s:
            raise error

    def flush(self, trackers: Collection[OffsetTracker]) -> Flow[None]:
        """Write what is waiting, before partitions are given up. What is not written will be processed again."""
        while self._queue.handed_over:
            try:
                error = yield from self._try(trackers)
            except Exception as failed:
                error = failed
            if error is not None:
                log.warning("a transaction failed, so some records will be processed again: %s", error)
                return

    def _try(self, trackers: Collection[OffsetTracker]) -> Flow[Exception | None]:
        """Make one transaction. Returns the error after which it was aborted."""
        entries = self._take(trackers)
        if self._topics is None or not entries:
            return None
        state, producer = self._state, self._topics.producer
        try:
            changed = {tracker for tracker, _, _ in entries}
            if state.commits.in_flight and (failure := (yield from state.commit_now(changed))) is not None:
                return failure
            offsets = self._offsets(entries)
            messages = [message for _, _, message in entries]
            try:
                yield partial(producer.write_in_transaction, messages, offsets, state.source.group_metadata())
            except BaseException as error:
                return (yield from self._abort(error))
            state.commits.succeeded(offsets)
            for tracker, offset, _ in entries:
                self._queue.skip(tracker, offset)
            entries.clear()
            return None
        finally:
            self._queue.handed_over.extendleft(reversed(entries))

    def _take(self, trackers: Collection[OffsetTracker]) -> list[HandedOver]:
        """Take the next records of these partitions. Those of other partitions stay unfinished: they were given up."""
        waiting = self._queue.handed_over
        entries: list[HandedOver] = []
        while waiting and len(entries) < MAX_RECORDS:
            entry = waiting.popleft()
            if entry[0] in trackers:
                entries.append(entry)
        return entries

    def _offsets(self, entries: list[HandedOver]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what must be committed when these records are finished."""
        finished: dict[OffsetTracker, set[int]] = {}
        for tracker, offset, _ in entries:
            finished.setdefault(tracker, set()).add(offset)
        limit = self._state.commits.limit - 1  # confluent-kafka appends a character
        found = {tracker.topic_partition: tracker.to_commit(limit, more) for tracker, more in finished.items()}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def _abort(self, error: BaseException) -> Flow[Exception]:
        """Abort, and return the error.

        Raises it if that fails, because the transaction may be committed then, and if it is not an Exception.
        """
        assert self._topics is not None
        try:
            yield self._topics.producer.abort
        except Exception as failed:
            raise error from failed
        if not isinstance(error, Exception):
            raise error
        return error
