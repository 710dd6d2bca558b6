"""Engine: what each public call does, whoever drives.

Each call asks managers under the lock and has the driver go on until there is an answer. A record is safe from the
moment `collect` moved its position until it is returned because nothing in between can raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from kconsumer.assignors import Assignor
from kconsumer.clock import Clock, Timer
from kconsumer.config.options import ConsumerConfig
from kconsumer.deferred_calls import get_logger
from kconsumer.deferred_signals import SIGNALS, HandlersRunning
from kconsumer.engine.callbacks import Callbacks, CommitCallback, log_failed_commit
from kconsumer.engine.close_sequence import CloseSequence
from kconsumer.engine.components import Components, Group
from kconsumer.engine.driver import Driver
from kconsumer.engine.interceptors import Interceptors
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.section import EXPECTED, Unlocked
from kconsumer.engine.status import StatusView
from kconsumer.errors import KafkaError, StateError, TimeoutError
from kconsumer.listener import RebalanceListener
from kconsumer.managers import Promise, Reply, UnsentRequest
from kconsumer.metadata.existence import ExistenceCheck
from kconsumer.metadata.topic_requests import TopicTable
from kconsumer.records import ConsumerRecords
from kconsumer.state.subscription import SubscriptionKind
from kconsumer.types import GroupMetadata, MetricName, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

log = get_logger(__name__)

T = TypeVar("T")
MIN_JOIN_S, MAX_JOIN_S = 1.0, 5.0  # that close() waits for the network thread to end


class Engine:
    """One consumer of a group, or of none."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        assignors: Collection[Assignor],
        make_driver: Callable[[Components, Callbacks], Driver],
    ) -> None:
        self.components = parts = Components(config, clock, assignors)
        self.lock = parts.lock
        self.changing = parts.changing
        self.callbacks = Callbacks(parts)
        self.status = StatusView(parts)
        self.interceptors = Interceptors(config.interceptors) if config.interceptors else None
        self.leave_promise: Promise[None] | None = None  # kept when the last LeaveGroup was answered, or failed
        self._driver = make_driver(parts, self.callbacks)
        self._config = config
        self._clock = clock
        parts.collector.unlocked = partial(Unlocked, parts)
        self._metrics = ConsumerMetrics(parts.metrics)
        self._quick_poll = self._metrics.quick.append
        self._closing = False
        self._membership_ended = False  # by the last `leave`
        self._last_poll_empty = False  # so ended the last poll that asked the managers, without an error
        if parts.group is not None:
            commits = parts.group.commits
            if self.interceptors is not None:
                commits.on_committed = partial(self.callbacks.committed, self.interceptors.committed)
            if config.on_commit is not None:
                commits.on_auto_commit = partial(self.callbacks.commit_finished, config.on_commit)

    # --- poll ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float, max_records: int, max_bytes: int | None = None) -> ConsumerRecords:
        """Records, or nothing when the time is over or a position moved without a record.

        With `max_bytes` the record with which these are reached is the last one, and no deserializer runs.
        """
        parts, driver = self.components, self._driver
        now = parts.subscription.now = self._clock.now()
        if driver.wakeup_requested:
            driver.raise_wakeup()
        if driver.has_urgent_io:
            driver.yield_to_network()
        quiet = now < driver.next_manager_poll and (
            parts.group is None or self._group_idle()
        )  # no manager has anything to do
        if quiet:
            if parts.group is not None:
                parts.group.heartbeat.poll_started(now)
            if parts.buffer.has_data():
                self._quick_poll(now)
                records = self._collect(max_records, max_bytes)
                if records is not None:
                    return records
                quiet = False
            elif timeout_ms <= 0 and self._last_poll_empty and driver.idle() and not self.callbacks.commits_pending:
                self._quick_poll(now)
                return ConsumerRecords.EMPTY
        self._metrics.poll_began(now)
        timer = Timer(self._clock, timeout_ms)
        if self._closing and not self.callbacks.running:  # a signal handler polls inside close()
            return ConsumerRecords.EMPTY
        if quiet and timeout_ms > 0 and not self.callbacks.commits_pending:
            records = self._wait_for_fetch(min(timeout_ms, driver.next_manager_poll - now), max_records, max_bytes)
            if records is not None:
                return records
        return self._poll_full(timer, max_records, max_bytes)

    def _wait_for_fetch(self, timeout_ms: float, max_records: int, max_bytes: int | None) -> ConsumerRecords | None:
        """What a fetch that is under way brings, until something else happens or managers want to be polled."""
        driver = self._driver
        driver.wait_for_activity(timeout_ms)
        if driver.wakeup_requested or not self.components.buffer.has_data() or not self._group_idle():
            return None
        self._metrics.waited_until = self._clock.now()
        return self._collect(max_records, max_bytes)

    def _poll_full(self, timer: Timer, max_records: int, max_bytes: int | None) -> ConsumerRecords:
        driver = self._driver
        self._last_poll_empty = False
        self._begin_poll()
        if not self.ready_to_poll:  # a commit callback closed the consumer, or unsubscribed
            return ConsumerRecords.EMPTY
        wait_ms = 0.0
        while True:
            driver.raise_wakeup()
            driver.run_once(wait_ms, joining=True, fetching=True)
            self._run_callbacks()
            self.callbacks.run_commits()
            if not self.ready_to_poll:  # a callback or a signal handler unsubscribed, or a callback closed the consumer
                return ConsumerRecords.EMPTY
            driver.raise_errors(positions=True)
            self._metrics.waited_until = self._clock.now()
            records = self._collect(max_records, max_bytes)
            if records is not None:
                return records
            self._raise_lasting_error()
            wait_ms = timer.remaining_ms()
            if wait_ms <= 0:
                self._last_poll_empty = True
                return ConsumerRecords.EMPTY

    def _raise_lasting_error(self) -> None:
        """There is nothing to return, and some partition waits for the user: every such poll says so."""
        error = self.components.offsets.lasting_error()
        if error is not None:
            raise error

    def _begin_poll(self) -> None:
        self.callbacks.run_commits()
        group = self.components.group
        if group is None:
            return
        with self.changing():
            group.heartbeat.poll_started(self._clock.now())
            if self.components.subscription.is_group_managed:
                self._driver.keep_alive()

    def _run_callbacks(self) -> None:
        if self.callbacks.due:
            try:
                self.callbacks.run_due()
            finally:
                self._driver.next_manager_poll = 0.0

    def _group_idle(self) -> bool:
        group = self.components.group
        return group is None or group.membership.idle or not self.components.subscription.is_group_managed

    def _collect(self, max_records: int, max_bytes: int | None) -> ConsumerRecords | None:
        """What is buffered; None when there is nothing to return. The next fetch leaves before the caller decodes."""
        parts, collector, step = self.components, self.components.collector, self.components.step
        if collector.busy:
            raise StateError("poll() cannot be called inside a deserializer, nor by a signal handler that runs in one")
        holds = SIGNALS.hold(parts.end_wait)
        try:
            # As a Section does, without the cost of making one: this is the path of every poll that has records.
            with self.lock:
                step.unfinished = True
                records = collector.collect(max_records, max_bytes)
                if parts.fetch.wants_poll and not parts.closed:
                    self._driver.flush_managers(parts.fetch)
                step.unfinished = False
            if parts.user_calls.waiting:
                parts.user_calls.run()
            if holds:
                SIGNALS.release()
            if not records and not collector.positions_advanced:
                return None
            if self.interceptors is not None and records:
                with HandlersRunning():
                    records = self.interceptors.consumed(records)
        except BaseException as error:  # of a signal handler, too: records that are not returned were not consumed
            if isinstance(error, EXPECTED) or collector.out_of_memory:
                step.unfinished = False
            self.rollback_last_poll()
            if holds:
                SIGNALS.release()
            raise
        return records

    def rollback_last_poll(self) -> None:
        """The records of the last poll did not reach the caller: put the positions back."""
        with self.changing():
            self.components.collector.rollback()
            self._driver.next_manager_poll = 0.0

    # --- subscription ----------------------------------------------------------------------------------------------

    def subscription_changed(self, listener: RebalanceListener | None) -> None:
        """The user subscribed: the next poll joins, metadata learns the topics."""
        self.callbacks.listener = listener
        self.assignment_changed()

    def assignment_changed(self) -> None:
        """The user assigned or sought: look at everything again at the next poll."""
        self._driver.next_manager_poll = 0.0
        self.components.metadata.request_new_topics()

    def unsubscribe(self) -> None:
        """Leave the group if in one; callbacks first, then forget subscription and assignment."""
        self._membership_ended = False
        try:
            try:
                self.leave("the consumer unsubscribed", None)
            finally:
                self._await_leave()
        finally:
            if self._membership_ended:  # otherwise an exception from nowhere kept `leave` from beginning
                with self.changing():
                    self.components.subscription.unsubscribe()
                    self.components.buffer.clear()
                    self.callbacks.listener = None

    @property
    def ready_to_poll(self) -> bool:
        """Whether there is anything to read from."""
        return self.components.subscription.kind is not SubscriptionKind.NONE

    def seek(self, tp: TopicPartition, target: OffsetAndMetadata) -> None:
        """Move a position; the lock is held."""
        cluster = self.components.cluster
        self.components.metadata.update_last_seen_epoch(tp, target.leader_epoch)
        self.components.subscription.seek(tp, target.offset, target.leader_epoch, cluster.leader(tp))
        self._driver.next_manager_poll = 0.0

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go back to these offsets where the partition is still assigned; the lock is held."""
        for tp, offset in offsets.items():
            if self.components.subscription.is_assigned(tp):
                self.seek(tp, OffsetAndMetadata(offset))

    def resumed(self) -> None:
        """Paused data may be returned again; the lock is held."""
        self.components.buffer.restore_paused()
        self._driver.next_manager_poll = 0.0

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin at the next poll."""
        with self.changing():
            self._group().member.request_rejoin(reason)

    # --- offsets ---------------------------------------------------------------------------------------------------

    def consumed_before(self, unseen: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """All positions, except that partitions in `unseen` count as consumed up to that offset only."""
        with self.lock:
            consumed = self.components.subscription.all_consumed()
        return consumed | {tp: OffsetAndMetadata(offset) for tp, offset in unseen.items() if tp in consumed}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timer: Timer, *, automatic: bool = False
    ) -> None:
        """Commit and wait; None commits every position."""
        group = self._group()
        what = f"the commit in group {group.member.group_id!r}"
        with self.changing():
            chosen = self.components.subscription.all_consumed() if offsets is None else offsets
            once = bool(chosen) and timer.expired  # sent once, as in Java, without waiting for the response
            if once:
                promise = _separate(group.commits.commit(chosen, automatic=automatic))
                self._driver.flush_managers(group.commits, group.coordinator)
            else:
                promise = group.commits.commit(chosen, timer.deadline, automatic=automatic)
        began = self._clock.now()
        try:
            self._driver.wait(promise, timer, what)
        except KafkaError as error:
            if not once or not error.retriable or isinstance(error, TimeoutError):
                raise
            raise self._driver.timeout_error(what, cause=error) from error  # it would be retried if there were time
        finally:
            self._metrics.commit_ended(began, self._clock.now())
            self.callbacks.run_commits()

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> None:
        """Send a commit without waiting; `callback(offsets, error)` runs inside a later call."""
        group = self._group()
        with self.changing():
            chosen = dict(self.components.subscription.all_consumed() if offsets is None else offsets)
            promise = group.commits.commit(chosen)
            notify = next(c for c in (callback, self._config.on_commit, log_failed_commit) if c is not None)

            def finished(done: Promise[Any]) -> None:
                self.callbacks.commit_finished(notify, chosen, done.error)

            promise.add_done_callback(finished)
            self._driver.flush_managers(group.commits, group.coordinator)

    def committed(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed."""
        group = self._group()
        with self.changing():
            promise = group.commits.committed(partitions, timer.deadline)
        began = self._clock.now()
        try:
            what = f"fetching committed offsets of group {group.member.group_id!r}"
            return self._driver.wait(promise, timer, what)
        finally:
            self._metrics.committed_ended(began, self._clock.now())

    def position(self, tp: TopicPartition, timer: Timer) -> int:
        """The next offset to fetch, looked up if it is not known yet."""
        driver, existence = self._driver, ExistenceCheck(self.components.metadata)
        while True:
            with self.changing():
                state = self.components.subscription.get(tp)
                if state.has_valid_position and state.position is not None:
                    return state.position.offset
                missing = existence.error([tp])
                if missing is not None:
                    raise missing
                self.components.positions.request(tp)
            if timer.expired:
                raise driver.timeout_error(f"finding the position of {tp}", [tp])
            driver.raise_wakeup()
            driver.run_once(timer.remaining_ms())
            driver.raise_errors(positions=True)

    # --- looking around --------------------------------------------------------------------------------------------

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer, what: str
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets by timestamp (-1 latest, -2 earliest) from the partitions' leaders."""
        if not timestamps:
            return {}
        with self.changing():
            promise = self.components.offsets.list_offsets(timestamps, timer.deadline)
        return self._driver.wait(promise, timer, what, timestamps)

    def topics(self, names: Collection[str] | None, timer: Timer, *, fresh: bool = False) -> TopicTable:
        """The partitions of these topics, or of all; from the cache where it knows them, unless `fresh`."""
        with self.changing():
            promise = self.components.metadata.fetch(names, timer.deadline, fresh=fresh)
        return self._driver.wait(promise, timer, "fetching metadata")

    def current_lag(self, tp: TopicPartition) -> int | None:
        """The end of the partition minus the position; None, and asked for, while the end is not known."""
        with self.changing():
            lag = self.components.subscription.get(tp).lag(self._config.read_committed)
            if lag is None:
                self.components.offsets.request_end_offset(tp)
                self._driver.next_manager_poll = 0.0
            return lag

    def group_metadata(self) -> GroupMetadata:
        """Group id, generation and member id."""
        return self._group().membership.group_metadata()

    def metrics(self) -> dict[MetricName, float]:
        """A snapshot of all metrics."""
        with self.lock:
            self._metrics.settle()
            return self.components.metrics.snapshot(self._clock.now())

    def _group(self) -> Group:
        group = self.components.group
        if group is None:
            raise StateError("this needs a consumer group: give group_id=… to Consumer")
        return group

    # --- ending ----------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End the running or the next blocking call. From any thread or signal handler."""
        self._driver.wakeup()

    def leave(self, reason: str, leave_group: bool | None) -> None:
        """Run the listener, then send LeaveGroup, whose response ends `leave_promise`. Raises the listener's error."""
        group = self.components.group
        if group is None or not self.components.subscription.is_group_managed:
            self._membership_ended = True
            return
        callback = group.membership.leave_callback()
        if self.callbacks.revoking:
            callback = None  # the listener is just being told, and wants to leave for good
        error: Exception | None = None
        try:
            if callback is not None:
                error = self.callbacks.run(group, callback)
        finally:  # the listener is called once, also if Ctrl-C ends it: then the membership must end, too
            self.components.step.unfinished = (
                True  # if this does not come to its end, nothing is known of the membership
            )
            with self.changing():
                now = self._clock.now()
                last_join = group.membership.last_join(leave_group)
                request = group.membership.leave(reason, now, leave_group)
                if last_join is not None:
                    self._driver.submit([last_join], now)
                if request is not None:
                    self.leave_promise = _track_completion(request)
                    self._driver.submit([request], now)
            self._membership_ended = True
            self.components.step.unfinished = False
        if error is not None:
            raise error

    def _await_leave(self) -> None:
        left, limit = self.leave_promise, Timer(self._clock, self._driver.leave_wait_ms)
        while left is not None and not left.done and not limit.expired:
            self._driver.run_once(limit.remaining_ms(), promise=left)

    def close(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> None:
        """Commit, leave, close. Every step runs, bounded by the timer; the first error is raised at the end.

        After an interruption in the middle of a step nothing is sent: the positions may be wrong.
        """
        self._closing = True
        interrupted = self.components.step.unfinished
        if interrupted:
            self._release_lock()
        driver = self._driver.release_to_caller(max(MIN_JOIN_S, min(timer.remaining_ms() / 1000, MAX_JOIN_S)))
        if driver is None:
            log.warning("closing the consumer: the network thread did not end in time; it closes the connections later")
            self._driver.stop()
        else:
            self._driver = driver
            driver.wakeup_enabled = False
            if not interrupted:
                CloseSequence(self, driver, timer).run(leave_group, auto_commit=auto_commit)
                return
            driver.stop()
            self.components.client.close()
        self.ended()

    def ended(self) -> None:
        """Threads and connections are gone: tell the user's objects, and whoever is still inside a call."""
        self.components.closed = True
        if self.interceptors is not None:
            self.interceptors.close()
        self.components.metrics.close()

    def _release_lock(self) -> None:
        """An interrupted step may have left without releasing the lock."""
        with contextlib.suppress(RuntimeError):
            while True:
                self.lock.release()

    def abandon(self) -> None:
        """Without saying goodbye: end threads, forget sockets. In a forked child the parent's stay untouched."""
        self._driver.stop()
        self.components.closed = True
        self.components.client.abandon()


def _track_completion(request: UnsentRequest) -> Promise[None]:
    """A promise kept when the request has come to its end."""
    promise: Promise[None] = Promise()
    handler = request.handler

    def then_keep(reply: Reply) -> None:
        handler(reply)
        promise.set_result(None)

    request.handler = then_keep
    return promise


def _separate(promise: Promise[T]) -> Promise[T]:
    """A promise that ends as the other one does. Failing it, because nobody waits any more, leaves the other alone."""
    separate: Promise[T] = Promise()
    promise.add_done_callback(
        lambda done: separate.set_exception(done.error) if done.error else separate.set_result(done.result())
    )
    return separate
