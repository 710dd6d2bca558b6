"""The blocking operations of a consumer, except poll() and close(): commits, offsets, positions, topics, leaving.

Each is a generator, as `waiting.py` describes. An operation decides which managers to call, which errors to raise and
when to time out. The driver decides how the calling thread waits. poll() is in `base.py`, and close() is in
`close_sequence.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from kconsumer._core.lock import Timer
from kconsumer._internal.managers import Promise, UnsentRequest
from kconsumer.engine.callbacks import Callbacks, CommitCallback, log_failed_commit
from kconsumer.engine.components import Components, Group
from kconsumer.engine.driver import Driver
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import KafkaError, StateError, TimeoutError
from kconsumer.metadata.existence import ExistenceCheck
from kconsumer.metadata.topic_requests import TopicTable
from kconsumer.state.partition import PartitionState
from kconsumer.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

TELEMETRY_DISABLED = "client telemetry is disabled: set enable_metrics_push=True for a client instance id"

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Operations:
    """The operations of one engine."""

    def __init__(self, parts: Components, callbacks: Callbacks, metrics: ConsumerMetrics, driver: Driver) -> None:
        self.driver = driver  # close() replaces it
        self.leave_promise: Promise[None] | None = None  # done when the last LeaveGroup has ended
        self._components = parts
        self._callbacks = callbacks
        self._metrics = metrics
        self._clock = parts.clock
        self._membership_ended = False  # True if the last `leave` has ended the membership

    def result(
        self, promise: Promise[T], timer: Timer, what: str, partitions: Iterable[TopicPartition] = ()
    ) -> Operation[T]:
        """Wait until the promise is done. Returns its value.

        Raises the error of the promise, TimeoutError, WakeupError, or the error of a manager. The message of the
        TimeoutError contains `what`, the last error of the promise, and errors of the `partitions`. If the wait fails,
        the promise is completed with an error, so that its manager stops trying.
        """
        driver, wait = self.driver, Wait(timer.deadline, promise)
        try:
            driver.raise_wakeup()
            while not promise.done and not timer.expired:
                yield wait
                if not promise.done:
                    driver.raise_wakeup()
                    driver.raise_errors()
        except KafkaError as error:
            self._abandon(promise, error)
            raise
        except BaseException as error:  # such as KeyboardInterrupt
            self._abandon(promise, KafkaError(f"{what} was interrupted by {type(error).__name__}"))
            raise
        if promise.done and not isinstance(promise.error, TimeoutError):
            return promise.result()
        timed_out = driver.timeout_error(what, partitions, promise.timeout_cause)
        self._abandon(promise, timed_out)
        raise timed_out

    def _abandon(self, promise: Promise[Any], error: KafkaError) -> None:
        """Complete a promise with an error when no call waits for it any more, so that its manager stops trying."""
        with self._components.changing():
            promise.set_exception(error)

    # --- telemetry -------------------------------------------------------------------------------------------------

    def client_instance_id(self, timer: Timer) -> Operation[str]:
        """Wait until a broker has assigned an id to this client for its telemetry. Returns the id."""
        parts = self._components
        with parts.changing():
            if not parts.config.enable_metrics_push:
                raise StateError(TELEMETRY_DISABLED)
            promise = parts.telemetry.client_instance_id()
        return (yield from self.result(promise, timer, "client_instance_id()"))

    # --- commits ---------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None, timer: Timer, *, automatic: bool = False) -> Operation[None]:
        """Commit `offsets`, or all positions if it is None, and wait for the response.

        If the timer has expired already, the commit is sent only once, as in Java. Unless it is already done then,
        TimeoutError is raised at once. `automatic` is True for an auto-commit.
        """
        group, driver = self.group(), self.driver
        what = f"the commit in group {group.member.group_id!r}"
        with self._components.changing():
            chosen = self._components.positions.all_consumed() if offsets is None else offsets
            once = bool(chosen) and timer.expired  # sent once, as in Java, without waiting for the response
            if once:
                promise = _separate(group.commits.commit(chosen, automatic=automatic))
                driver.flush_managers(group.commits, group.coordinator)
            else:
                promise = group.commits.commit(chosen, timer.deadline, automatic=automatic)
        began = self._clock.now()
        failure: KafkaError | None = None
        try:
            yield from self.result(promise, timer, what)
        except KafkaError as error:
            failure = error
            if once and error.retriable and not isinstance(error, TimeoutError):
                failure = driver.timeout_error(what, cause=error)  # it would be retried if there were time
        finally:
            self._metrics.commit_ended(began, self._clock.now())
        if self._callbacks.commits_pending:
            yield from self._callbacks.run_commits()
        if failure is not None:
            raise failure

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        """Send a commit without waiting. `callback(offsets, error)` runs inside a later call of the user."""
        group, parts = self.group(), self._components
        with parts.changing():
            chosen = dict(parts.positions.all_consumed() if offsets is None else offsets)
            promise = group.commits.commit(chosen)
            notify = next(c for c in (callback, parts.config.on_commit, log_failed_commit) if c is not None)

            def finished(done: Promise[Any]) -> None:
                self._callbacks.commit_finished(notify, chosen, done.error)

            promise.add_done_callback(finished)
            self.driver.flush_managers(group.commits, group.coordinator)

    def committed(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> Operation[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Returns the committed offset of the group for each of these partitions, or None where there is none."""
        group = self.group()
        with self._components.changing():
            promise = group.commits.committed(partitions, timer.deadline)
        began = self._clock.now()
        try:
            return (
                yield from self.result(promise, timer, f"fetching committed offsets of group {group.member.group_id!r}")
            )
        finally:
            self._metrics.committed_ended(began, self._clock.now())

    # --- positions, offsets, topics --------------------------------------------------------------------------------

    def position(self, tp: TopicPartition, timer: Timer) -> Operation[int]:
        """Returns the position of a partition. Waits until it is looked up, and compared with a new leader's log."""
        driver, parts, wait = self.driver, self._components, Wait(timer.deadline)
        existence = ExistenceCheck(parts.metadata)
        while True:
            with parts.changing():
                state = parts.assignment.get(tp)
                position = parts.positions.consumed(tp, state)
                if position is not None and state.has_valid_position:
                    return position.offset
                missing = existence.error([tp])
                cause = (
                    missing
                    or parts.initial_positions.last_error
                    or _known(state, parts.metadata.topic_errors.problem_error(tp))
                )
                parts.initial_positions.request(tp)
            if timer.expired or missing is not None:
                raise driver.timeout_error(f"finding the position of {tp}", [tp], cause)
            driver.raise_wakeup()
            yield wait
            driver.raise_errors(positions=True)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer, what: str
    ) -> Operation[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Request the offset for each partition's timestamp (ms; -1 latest, -2 earliest). Returns the offsets."""
        if not timestamps:
            return {}
        with self._components.changing():
            promise = self._components.offsets.list_offsets(timestamps, timer.deadline)
        return (yield from self.result(promise, timer, what, timestamps))

    def topics(self, names: Collection[str] | None, timer: Timer, *, fresh: bool = False) -> Operation[TopicTable]:
        """Returns the partitions of the topics in `names`, or of all topics if it is None.

        Uses the cached metadata if it contains all these topics and `fresh` is False.
        """
        with self._components.changing():
            promise = self._components.metadata.fetch(names, timer.deadline, fresh=fresh)
        return (yield from self.result(promise, timer, "fetching metadata"))

    # --- leaving the group -----------------------------------------------------------------------------------------

    def unsubscribe(self) -> Operation[None]:
        """Run on_revoke or on_lost, leave the group, and drop the subscription and the assignment."""
        parts = self._components
        self._membership_ended = False
        callback_error: Exception | None = None
        try:
            try:
                yield from self.leave("the consumer unsubscribed", None)
            except Exception as error:
                callback_error = error
            yield from self._await_leave()
            if callback_error is not None:
                raise callback_error
        finally:
            if self._membership_ended:  # False if an asynchronous exception ended `leave` early
                with parts.changing():
                    parts.subscription.unsubscribe()
                    parts.buffer.clear()
                    self._callbacks.set_listener(None)
            self.driver.allow_joining(True)

    def leave(self, reason: str, leave_group: bool | None, *, closing: bool = False) -> Operation[None]:
        """Run on_revoke or on_lost, then send LeaveGroup. Raises the error of the callback at the end.

        If `closing` is True, a LeaveGroup does not wait behind a fetch, whose connection a member uses that leaves
        during a rebalance. Sets `leave_promise`, which is done when the LeaveGroup request has ended.
        """
        parts = self._components
        group = parts.group
        if group is None or not parts.subscription.is_group_managed:
            self._membership_ended = True
            return
        self.driver.allow_joining(False)
        callback = group.membership.leave_callback()
        if self._callbacks.revoking:
            callback = None  # unsubscribe() or close() was called by on_revoke or on_lost, which need not run again
        error: Exception | None = None
        try:
            if callback is not None:
                yield from self._callbacks.run_leaving(group, callback)
        except Exception as raised:
            error = raised
        finally:  # also after Ctrl-C in the callback: it is not called again, so the membership must end now
            parts.step.begin()  # if the rest is interrupted, the state of the membership is unknown
            self.send_leave(reason, leave_group, closing=closing)
            self._membership_ended = True
            parts.step.end()
        if error is not None:
            raise error

    def send_leave(self, reason: str, leave_group: bool | None, *, closing: bool = False) -> None:
        """Send LeaveGroup, after the last callback has run. Sets `leave_promise`. For the arguments, see `leave`."""
        parts, membership = self._components, self.group().membership
        with parts.changing():
            now = self._clock.now()
            last_join = membership.last_join(leave_group)
            request = membership.leave(reason, now, leave_group)
            if last_join is not None:
                self.driver.submit([last_join], now)
            if request is not None:
                if closing and request.node is not None and request.node.isdigit():
                    request.send_over(parts.client.free_connection(request.node))
                self.leave_promise = track_completion(request)
                self.driver.submit([request], now)

    def _await_leave(self) -> Operation[None]:
        promise, limit = self.leave_promise, Timer(self._clock, self.driver.leave_wait_ms)
        while promise is not None and not promise.done and not limit.expired:
            yield Wait(limit.deadline, promise)

    def group(self) -> Group:
        """Returns the components of the group. Raises StateError for a consumer without a group."""
        group = self._components.group
        if group is None:
            raise StateError("this needs a consumer group: give group_id=… to Consumer")
        return group


def _known(state: PartitionState, problem: KafkaError | None) -> KafkaError | None:
    """Returns the last error of the lookup of a position, or else the problem of its topic, or None."""
    error = state.last_error
    if isinstance(error, KafkaError) or problem is not None:
        return error if isinstance(error, KafkaError) else problem
    return KafkaError(error) if error else None


def track_completion(request: UnsentRequest) -> Promise[None]:
    """Returns a promise that is done when the request has ended with a response or an error."""
    promise: Promise[None] = Promise()
    request.add_done_callback(lambda: promise.set_result(None))
    return promise


def _separate(promise: Promise[T]) -> Promise[T]:
    """Returns a new promise for the result of `promise`. An error set on the new one does not affect `promise`."""
    separate: Promise[T] = Promise()
    promise.add_done_callback(
        lambda done: separate.set_exception(done.error) if done.error else separate.set_result(done.result())
    )
    return separate
