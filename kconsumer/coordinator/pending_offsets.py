"""Queues of OffsetCommit and OffsetFetch requests that have no result yet, oldest first.

Decides when a request is due, retried or timed out, and which offsets a retried or merged commit contains. `commits.py`
and `offset_fetches.py` decide what a response means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from kconsumer._common.backoff import RetryTimer
from kconsumer._internal.managers import FOREVER, PollResult, Promise, UnsentRequest, timed_out
from kconsumer._internal.progress import Progress
from kconsumer.coordinator.commit_messages import Ids
from kconsumer.errors import KafkaError
from kconsumer.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class PendingRequest:
    """One commit, or one fetch of committed offsets, that has no result yet."""

    __slots__ = ("_progress", "backoff", "deadline", "in_flight", "promise", "tried")

    def __init__(self, promise: Promise[Any], backoff: RetryTimer, deadline: float | None, progress: Progress) -> None:
        self._progress = progress  # of all requests of this kind
        self.promise = promise
        self.backoff = backoff
        self.deadline = deadline  # ms; None: an asynchronous commit, which is sent once and not retried
        self.in_flight = False
        self.tried = False  # it was sent at least once

    def is_due(self, now: float) -> bool:
        """Returns True if the request must be sent now, or as soon as its backoff is over.

        Returns False while it is in flight, and after its promise is done. After its deadline, a request is due only if
        it was never sent, as in Java.
        """
        is_late = self.deadline is not None and now >= self.deadline
        return not (self.in_flight or self.promise.done or (is_late and self.tried))

    def mark_sent(self) -> None:
        self.in_flight = self.tried = True

    def response_received(self) -> None:
        """Record that the request is no longer in flight, because it has a response or has failed."""
        self.in_flight = False

    def retry_or_fail(self, error: KafkaError, now: float, *, retriable: bool) -> None:
        """Start the backoff before another attempt, or fail the promise with `error`.

        With a deadline, a retriable error ends no request: the deadline does, with a TimeoutError.
        """
        self.promise.attempt_failed(error)
        if retriable and self.deadline is not None:
            self._progress.failed(error, now)
            self.backoff.failed(now)
        else:
            self.promise.set_exception(error)


class PendingCommit(PendingRequest):
    """One commit that has no result yet."""

    __slots__ = ("_newer", "_newer_ids", "before_rebalance", "ids", "is_auto_commit", "merged", "must_send", "offsets")

    def __init__(
        self,
        promise: Promise[Any],
        backoff: RetryTimer,
        deadline: float | None,
        progress: Progress,
        *,
        offsets: Offsets,
        ids: Ids,
        is_auto_commit: bool,
        before_rebalance: bool,
    ) -> None:
        super().__init__(promise, backoff, deadline, progress)
        self.offsets = offsets
        self.ids = ids  # topic ids at the time of the call; empty if one is unknown
        self.is_auto_commit = is_auto_commit
        self.before_rebalance = before_rebalance  # the rebalance waits for the result
        self.must_send = deadline is not None  # a caller or a rebalance waits: send it even if many are in flight
        self.merged: list[PendingCommit] = []  # later commits that are sent in the same request
        self._newer: dict[TopicPartition, OffsetAndMetadata] = {}  # from later commits, for a retry
        self._newer_ids: dict[TopicPartition, bytes] = {}  # the topic ids for `_newer`

    def supersede(self, offsets: Offsets, ids: Ids) -> None:
        """Store the newer offsets of a later commit. A retry of this commit sends them instead of its own offsets.

        The retry may arrive after the later commit, and must not move the group's committed offsets back.
        """
        self._newer.update({tp: offset for tp, offset in offsets.items() if tp in self.offsets})
        self._newer_ids.update({tp: topic_id for tp, topic_id in ids.items() if tp in self.ids})

    def request(self) -> tuple[Offsets, Ids]:
        """Returns the offsets and topic ids to send, including those of merged commits.

        If a partition has several offsets, the latest one is sent.
        """
        if self.tried:
            self.offsets, self.ids = {**self.offsets, **self._newer}, {**self.ids, **self._newer_ids}
        offsets, ids = dict(self.offsets), dict(self.ids)
        for commit in self.merged:
            offsets.update(commit.offsets)
            ids.update(commit.ids)
        return offsets, ids

    def hasten(self) -> None:
        """Send the commit with the next poll, even if others are in flight."""
        self.must_send = True

    def fail(self, error: KafkaError) -> None:
        """Fail this commit and the commits merged into it."""
        for commit in (self, *self.merged):
            commit.promise.set_exception(error)


class PendingOffsetFetch(PendingRequest):
    """One fetch of committed offsets that has no result yet."""

    __slots__ = ("partitions",)

    def __init__(
        self,
        promise: Promise[Any],
        backoff: RetryTimer,
        deadline: float | None,
        progress: Progress,
        partitions: frozenset[TopicPartition],
    ) -> None:
        super().__init__(promise, backoff, deadline, progress)
        self.partitions = partitions


R = TypeVar("R", bound=PendingRequest)


class PendingRequests(Generic[R]):
    """All requests of one kind that have no result yet, oldest first."""

    def __init__(self, description: str, progress: Progress) -> None:
        self.progress = progress  # whether requests with a deadline get results; without one, the caller gets the error
        self._description = description  # for the error of a request that timed out
        self._pending: list[R] = []

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[R]:
        return iter(self._pending)

    def __getitem__(self, index: int) -> R:
        return self._pending[index]

    def first(self, count: int) -> list[R]:
        return self._pending[:count]

    def after(self, count: int) -> list[R]:
        """Returns all but the `count` oldest requests."""
        return self._pending[count:]

    def append(self, request: R) -> None:
        """Add a request to the end of the queue."""
        self._pending.append(request)

    def drop_done(self) -> None:
        """Remove the requests that have a result."""
        if self._pending:
            self._pending = [request for request in self._pending if not request.promise.done]
        if self.progress.since is None:  # read without a call: this runs in each iteration
            return
        if all(request.deadline is None or not request.tried for request in self._pending):
            self.progress.done()

    def send(self, candidates: Iterable[R], build: Callable[[R], UnsentRequest | None], now: float) -> PollResult:
        """Returns requests for the candidates that are due, and the time (ms) until the next backoff or deadline ends.

        `build` creates the request for a candidate. It may also fail the candidate and return None; then no request is
        sent.
        """
        requests, wait_ms = [], self.deadline_wait_ms(now)
        for pending in candidates:
            if not pending.is_due(now):
                continue
            backoff_ms = pending.backoff.remaining_ms(now)
            if backoff_ms > 0:
                wait_ms = min(wait_ms, backoff_ms)
                continue
            request = build(pending)
            if request is not None:
                pending.mark_sent()
                if pending.deadline is not None:
                    self.progress.requested(now)
                requests.append(request)
        self.drop_done()
        return PollResult(requests, wait_ms)

    def expire(self, group_id: str, coordinator: str, now: float) -> None:
        """Fail the requests whose deadline has passed.

        The error is a TimeoutError with `group_id`, `coordinator` and the last error in its message.
        """
        for pending in self._pending:
            if pending.deadline is not None and now >= pending.deadline and not pending.promise.done:
                text = (
                    f"the {self._description} for group {group_id!r} did not finish in time (coordinator {coordinator})"
                )
                pending.promise.set_exception(timed_out(text, [pending.promise.last_error]))
        self.drop_done()

    def deadline_wait_ms(self, now: float) -> float:
        """Returns the time (ms) until the next deadline; FOREVER if no request has one."""
        deadlines = [pending.deadline for pending in self._pending if pending.deadline is not None]
        return max(0.0, min(deadlines) - now) if deadlines else FOREVER
