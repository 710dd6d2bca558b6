"""ClassicEngine: what each public call does, on the caller's thread, as in Java's classic consumer.

A record is safe from the moment `collect` moved its position until it is returned because nothing in between can raise.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from kconsumer.clock import Timer
from kconsumer.engine.callbacks import CommitCallback
from kconsumer.engine.driver import ClassicDriver
from kconsumer.engine.wiring import Group
from kconsumer.errors import KafkaError
from kconsumer.fetching.outlook import Situation, outlook
from kconsumer.listener import RebalanceListener
from kconsumer.records import ConsumerRecords
from kconsumer.report import summary
from kconsumer.requests.base import Promise, Reply, UnsentRequest
from kconsumer.requests.lookups import TopicTable
from kconsumer.state.partition import PartitionState
from kconsumer.state.subscription import SubscriptionKind
from kconsumer.types import (
    GroupMetadata,
    MetricName,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionStatus,
    TopicPartition,
)

log = logging.getLogger(__name__)

JOINS_WAITED_FOR = 2  # heartbeat intervals that close() waits for a join under way
SLOW_ANSWER_MS = 1000.0  # that close() waits for the end of a fetch session beyond the usual time of a fetch
LOOKED_FOR_MS = 1000.0  # that close() looks for a coordinator that is lost


class ClassicEngine(ClassicDriver):
    """One consumer of the classic group protocol, or of no group."""

    _found_nothing = False  # so ended the last poll that asked the managers, without an error
    _ending_sessions: Collection[str] = ()
    _left: Promise[None] | None = None  # kept when the last LeaveGroup was answered, or failed

    # --- poll ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float, max_records: int, max_bytes: int | None = None) -> ConsumerRecords:
        """Records, or nothing when the time is over or a position moved without a record.

        With `max_bytes` the record with which these are reached is the last one, and no deserializer runs.
        """
        parts = self.parts
        now = parts.subscription.now = self._clock.now()
        self._raise_wakeup()
        if now < self._service_at and not self._has_unread() and self._group_idle():
            if parts.group is not None:
                self.heartbeat.poll_started(now)
            if parts.buffer.has_data():
                self._quick_poll(now)
                records = self._collect(max_records, max_bytes)
                if records is not None:
                    return records
            elif timeout_ms <= 0 and self._found_nothing and not self._news():
                self._quick_poll(now)
                return ConsumerRecords.EMPTY
        self._metrics.poll_began(now)
        return self._poll_slowly(Timer(self._clock, timeout_ms), max_records, max_bytes)

    def _has_unread(self) -> bool:
        """Whether a large answer has come that this thread must look at."""
        return self.parts.client.arrived > 0

    def _news(self) -> bool:
        """Whether something came since the last poll, which found nothing: a look at the network, not at managers."""
        with self.lock:
            return self.parts.dispatcher.step(0.0) or self.callbacks.commits_wait

    def _poll_slowly(self, timer: Timer, max_records: int, max_bytes: int | None) -> ConsumerRecords:
        self._found_nothing = False
        self._begin_poll()
        wait_ms = 0.0
        while True:
            self._raise_wakeup()
            self._step(wait_ms, joining=True, fetching=True)
            self._run_callbacks()
            self.callbacks.run_commits()
            if not self.ready_to_poll:  # a callback unsubscribed, or closed the consumer
                return ConsumerRecords.EMPTY
            self._raise_errors(positions=True)
            self._metrics.waited_until = self._clock.now()
            records = self._collect(max_records, max_bytes)
            if records is not None:
                return records
            self._raise_lasting_error()
            wait_ms = timer.remaining_ms()
            if wait_ms <= 0:
                self._found_nothing = True
                return ConsumerRecords.EMPTY

    def _raise_lasting_error(self) -> None:
        """There is nothing to return, and some partition waits for the user: every such poll says so."""
        error = self.parts.offsets.lasting_error()
        if error is not None:
            raise error

    def _begin_poll(self) -> None:
        self.callbacks.run_commits()
        if self.parts.group is None:
            return
        with self.lock:
            self.heartbeat.poll_started(self._clock.now())
            if self.parts.subscription.is_group_managed:
                self.start_heartbeats()

    def _group_idle(self) -> bool:
        return self.membership is None or self.membership.idle or not self.parts.subscription.is_group_managed

    def _collect(self, max_records: int, max_bytes: int | None) -> ConsumerRecords | None:
        """What is buffered; None when there is nothing to return. The next fetch leaves before the caller decodes."""
        parts = self.parts
        parts.collector.returned()
        try:
            with self.lock:
                records = parts.collector.collect(max_records, max_bytes)
                if parts.fetch.wants_poll:
                    self._send_soon(parts.fetch)
            if not records and not parts.collector.moved:
                return None
            if self.interceptors is not None and records:
                records = self.interceptors.consumed(records)
        except BaseException:  # Ctrl-C, too: records that do not reach the caller were not consumed
            self.not_returned()
            raise
        return records

    def not_returned(self) -> None:
        """The records of the last poll did not reach the caller: put the positions back."""
        with self.lock:
            self.parts.collector.undo()
            self._service_at = 0.0

    # --- subscription ----------------------------------------------------------------------------------------------

    def subscription_changed(self, listener: RebalanceListener | None) -> None:
        """The user subscribed: the next poll joins, metadata learns the topics."""
        self.callbacks.listener = listener
        self._service_at = 0.0
        self.parts.metadata.request_new_topics()

    def assignment_changed(self) -> None:
        """The user assigned or sought: look at everything again at the next poll."""
        self._service_at = 0.0
        self.parts.metadata.request_new_topics()

    def unsubscribe(self) -> None:
        """Leave the group if in one; callbacks first, then forget subscription and assignment."""
        try:
            self._leave("the consumer unsubscribed", None)
        finally:
            with self.lock:
                self.parts.subscription.unsubscribe()
                self.parts.buffer.clear()
                self.callbacks.listener = None

    @property
    def ready_to_poll(self) -> bool:
        """Whether there is anything to read from."""
        return self.parts.subscription.kind is not SubscriptionKind.NONE

    def seek(self, tp: TopicPartition, target: OffsetAndMetadata) -> None:
        """Move a position; the lock is held."""
        cluster = self.parts.cluster
        self.parts.metadata.see_epoch(tp, target.leader_epoch)
        self.parts.subscription.seek(tp, target.offset, target.leader_epoch, cluster.leader(tp))
        self._service_at = 0.0

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go back to these offsets where the partition is still assigned; the lock is held."""
        for tp, offset in offsets.items():
            if self.parts.subscription.is_assigned(tp):
                self.seek(tp, OffsetAndMetadata(offset))

    def resumed(self) -> None:
        """Paused data may be returned again; the lock is held."""
        self.parts.buffer.unpark()
        self._service_at = 0.0

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin at the next poll."""
        with self.lock:
            self._group().member.request_rejoin(reason)

    def _leave(self, reason: str, leave_group: bool | None) -> None:
        membership = self.membership
        if membership is None or not self.parts.subscription.is_group_managed:
            return
        callback = membership.leave_callback()
        if self._giving_up:
            callback = None  # the listener is just being told, and wants to leave for good
        error = self._run_callback(callback) if callback is not None else None
        with self.lock:
            now = self._clock.now()
            request = membership.leave(reason, now, leave_group)
            if request is not None:
                self._left = _ended(request)
                self._submit([request], now)
        if error is not None:
            raise error

    # --- offsets ---------------------------------------------------------------------------------------------------

    def consumed_before(self, unseen: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """All positions, except that partitions in `unseen` count as consumed up to that offset only."""
        with self.lock:
            consumed = self.parts.subscription.all_consumed()
        return consumed | {tp: OffsetAndMetadata(offset) for tp, offset in unseen.items() if tp in consumed}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timer: Timer, *, automatic: bool = False
    ) -> None:
        """Commit and wait; None commits every position."""
        group = self._group()
        with self.lock:
            chosen = self.parts.subscription.all_consumed() if offsets is None else offsets
            promise = group.commits.commit(chosen, timer.deadline, automatic=automatic)
        began = self._clock.now()
        try:
            self.wait(promise, timer, f"the commit in group {group.member.group_id!r}")
        finally:
            self._metrics.commit_ended(began, self._clock.now())
            self.callbacks.run_commits()

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> None:
        """Send a commit without waiting; `callback(offsets, error)` runs inside a later call."""
        group = self._group()
        with self.lock:
            chosen = dict(self.parts.subscription.all_consumed() if offsets is None else offsets)
            promise = group.commits.commit(chosen)
            notify = next(c for c in (callback, self._config.on_commit, _log_failed_commit) if c is not None)

            def finished(done: Promise[Any]) -> None:
                self.callbacks.commit_finished(notify, chosen, done.error)

            promise.when_done(finished)
            self._send_soon(group.commits, group.coordinator)

    def committed(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed."""
        group = self._group()
        with self.lock:
            promise = group.commits.committed(partitions, timer.deadline)
        began = self._clock.now()
        try:
            return self.wait(promise, timer, f"fetching committed offsets of group {group.member.group_id!r}")
        finally:
            self._metrics.committed_ended(began, self._clock.now())

    def position(self, tp: TopicPartition, timer: Timer) -> int:
        """The next offset to fetch, looked up if it is not known yet."""
        subscription = self.parts.subscription
        while True:
            with self.lock:
                state = subscription.get(tp)
                if state.has_valid_position and state.position is not None:
                    return state.position.offset
                self.parts.positions.ask(tp)
            if timer.expired:
                raise self.timeout_error(f"finding the position of {tp}", [tp.topic])
            self._raise_wakeup()
            self._step(timer.remaining_ms())
            self._raise_errors(positions=True)

    def group_metadata(self) -> GroupMetadata:
        """Group id, generation and member id."""
        self._group()
        assert self.membership is not None
        return self.membership.group_metadata()

    # --- looking around --------------------------------------------------------------------------------------------

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer, what: str
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets by timestamp (-1 latest, -2 earliest) from the partitions' leaders."""
        if not timestamps:
            return {}
        with self.lock:
            promise = self.parts.offsets.list_offsets(timestamps, timer.deadline)
        return self.wait(promise, timer, what, {tp.topic for tp in timestamps})

    def topics(self, names: Collection[str] | None, timer: Timer, *, fresh: bool = False) -> TopicTable:
        """The partitions of these topics, or of all; from the cache where it knows them, unless `fresh`."""
        with self.lock:
            promise = self.parts.metadata.require(names, timer.deadline, fresh=fresh)
        return self.wait(promise, timer, "fetching metadata")

    def current_lag(self, tp: TopicPartition) -> int | None:
        """The end of the partition minus the position; None, and asked for, while the end is not known."""
        with self.lock:
            lag = self.parts.subscription.get(tp).lag(self._config.read_committed)
            if lag is None:
                self.parts.offsets.request_end_offset(tp)
                self._service_at = 0.0
            return lag

    def partition_states(self) -> dict[TopicPartition, PartitionStatus]:
        """Each assigned partition explains itself."""
        parts = self.parts
        now = self._clock.now()
        with self.lock:
            return {
                tp: outlook(self._situation(tp, state, now), read_committed=self._config.read_committed)
                for tp, state in sorted(parts.subscription.states().items(), key=itemgetter(0))
            }

    def summary(self) -> str:
        """The partitions in one line; never blocks, for `repr` is called from anywhere."""
        if not self.lock.acquire(blocking=False):
            return f"{len(self.parts.subscription.assigned())} partitions, busy in another thread"
        try:
            return summary(self.partition_states().values())
        finally:
            self.lock.release()

    def _situation(self, tp: TopicPartition, state: PartitionState, now: float) -> Situation:
        parts = self.parts
        found = parts.fetch.situation(tp, state, now)
        found.hint = parts.metadata.hint(tp.topic)
        if found.broker is not None:
            found.unreachable = parts.client.trouble_with(str(found.broker.id), now)
        if parts.group is not None and parts.group.coordinator.connection is None:
            found.coordinator = f"the coordinator is {parts.group.coordinator.describe()}"
        return found

    def metrics(self) -> dict[MetricName, float]:
        """A snapshot of all metrics."""
        with self.lock:
            self._metrics.settle()
            return self.parts.metrics.snapshot(self._clock.now())

    # --- close -----------------------------------------------------------------------------------------------------

    def close(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> None:
        """Commit, leave, close. Every step runs, bounded by the timer; the first error is raised at the end."""
        self._wakeup_enabled = False
        trouble: Exception | None = None
        steps: list[Callable[[], object]] = [
            partial(self._finish_async_commits, timer),
            self.stop_heartbeats,
            partial(self._find_coordinator, timer),
            partial(self._leave, "the consumer closed", leave_group),
            partial(self._drain, timer),
            partial(self._await_sessions, timer),
        ]
        if auto_commit:
            steps.insert(0, partial(self._commit_on_close, timer))
        steps.insert(0, self._end_sessions)
        try:
            for step in steps:
                try:
                    step()
                except Exception as error:  # whatever a callback or a broker did, the remaining steps must run
                    log.warning("closing the consumer: %s", error)
                    trouble = trouble or error
        finally:  # Ctrl-C ends the steps, but leaves neither thread nor sockets behind
            self.stop_heartbeats()
            with self.lock:
                self.parts.subscription.unsubscribe()
                self.parts.buffer.clear()
                self.parts.client.close()
            if self.interceptors is not None:
                self.interceptors.close()
        if trouble is not None:
            raise trouble

    def _commit_on_close(self, timer: Timer) -> None:
        group = self.parts.group
        if group is None or not group.commits.auto_commit_enabled:
            return
        if self.parts.subscription.is_group_managed:
            self._finish_join(group, timer)
            if not group.member.may_commit:
                return
        if timer.expired:  # close(timeout=0): it is sent, but nobody waits for the answer
            self.commit_async(None, None)
            return
        try:
            self.commit(None, timer, automatic=True)
        except KafkaError as error:
            log.warning("group %s: auto-commit on close failed: %s", group.member.group_id, error)

    def _finish_join(self, group: Group, timer: Timer) -> None:
        """Let a join under way end before leaving: a cooperative member goes on reading while it joins, and what it
        read can be committed only before the join or after it. The others hear of the join by their next heartbeat.
        """
        limit_ms = min(timer.remaining_ms(), JOINS_WAITED_FOR * self._config.heartbeat_interval_ms)
        limit = Timer(self._clock, limit_ms)
        while group.member.rebalancing and self.parts.subscription.all_consumed() and not limit.expired:
            self._step(limit.remaining_ms(), joining=True)

    def _finish_async_commits(self, timer: Timer) -> None:
        group = self.parts.group
        if group is None:
            return
        while group.commits.pending_commits() and not timer.expired:
            self._step(timer.remaining_ms())
        self.callbacks.run_commits()

    def _find_coordinator(self, timer: Timer) -> None:
        """A coordinator that is lost just now is looked for, but not long: a member that cannot say that it leaves is
        missed after its session only."""
        group = self.parts.group
        if group is None or not group.member.in_group:
            return
        limit = Timer(self._clock, min(timer.remaining_ms(), LOOKED_FOR_MS))
        while group.coordinator.connection is None and not limit.expired:
            group.coordinator.wanted = True
            self._step(limit.remaining_ms())

    def _drain(self, timer: Timer) -> None:
        """Let the LeaveGroup go out and be answered; nothing else in flight is waited for."""
        left = self._left
        if left is not None:
            self._await(lambda: left.done, timer)

    def _end_sessions(self) -> None:
        """Tell connected brokers that nothing more will be fetched. First of all steps, because each answers the
        fetch under way before, which may wait there for `fetch_max_wait_ms`."""
        client = self.parts.client
        with self.lock:
            now = self._clock.now()
            requests = [r for r in self.parts.fetch.close() if r.node and client.api_versions(r.node) is not None]
            self.parts.dispatcher.submit([r for r in requests if r.node and client.ready(r.node, now)], now)
            self._ending_sessions = [r.node for r in requests if r.node]

    def _await_sessions(self, timer: Timer) -> None:
        """Let the brokers take note of the end of their fetch sessions. It is a courtesy: a broker that does not answer
        in the usual time is not waited for longer."""
        in_flight = self.parts.client.in_flight
        limit_ms = self._config.fetch_max_wait_ms + SLOW_ANSWER_MS
        self._await(lambda: not any(map(in_flight, self._ending_sessions)), timer, limit_ms)

    def _await(self, ended: Callable[[], bool], timer: Timer, limit_ms: float = math.inf) -> None:
        """Let the network go on until something has ended, at most for `request_timeout_ms`."""
        limit = Timer(self._clock, min(timer.remaining_ms(), float(self._config.request_timeout_ms), limit_ms))
        with self.lock:
            while not limit.expired and not ended():
                self.parts.dispatcher.step(limit.remaining_ms())

    def abandon(self) -> None:
        """In a forked child: forget the sockets without touching the parent's connections."""
        self.parts.client.abandon()


def _ended(request: UnsentRequest) -> Promise[None]:
    """A promise kept when the request has come to its end."""
    promise: Promise[None] = Promise()
    handler = request.handler

    def then_keep(reply: Reply) -> None:
        handler(reply)
        promise.keep(None)

    request.handler = then_keep
    return promise


def _log_failed_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
    if error is not None:
        log.warning("an asynchronous commit failed: %s", error)
