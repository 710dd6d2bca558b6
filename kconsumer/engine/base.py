"""Engine: what the public methods of a consumer call. It polls, changes the subscription, and closes the consumer.

Operations that wait are generators (see `waiting.py`). Most of them are in `operations.py`. `run` drives an operation
on the calling thread. A poll that finds data in the buffer returns the data without an operation.

A batch counts as consumed when the public method that returns it has ended (`Delivery`). Until then, user code may run:
signal handlers, deserializers, interceptors. If it raises, the positions are moved back. If it has used the consumer,
`recheck` decides which records may still be returned. The public method ends with plain stores. Between them and its
return there is no call after which a signal handler could run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.cycle import PollState
from kconsumer._core.lock import FORKED, Timer, fork_count
from kconsumer._internal.deferred_signals import HandlersRunning
from kconsumer.assignors import Assignor
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.client_engine import ClientEngine
from kconsumer.engine.close_sequence import CloseSequence
from kconsumer.engine.components import Components
from kconsumer.engine.driver import Driver
from kconsumer.engine.environment import Environment
from kconsumer.engine.interceptors import Interceptors
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.operations import Operations
from kconsumer.engine.section import Unlocked
from kconsumer.engine.status import StatusView
from kconsumer.engine.waiting import AT_ONCE, Operation, Wait
from kconsumer.errors import ForkedConsumerError, StateError
from kconsumer.listener import RebalanceListener
from kconsumer.records import ConsumerRecords
from kconsumer.state.subscription import SubscriptionKind
from kconsumer.types import GroupMetadata, MetricValues, OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

if TYPE_CHECKING:
    from kconsumer.arrow import RecordBatch

T = TypeVar("T")
NOTHING = SubscriptionKind.NONE
POLL_AT_ONCE = Wait(AT_ONCE, joining=True, fetching=True)


class Engine(PollState[ConsumerRecords], ClientEngine):
    """One consumer, with or without a group. The public methods call it."""

    components: Components
    callbacks: Callbacks
    driver: Driver
    interceptors: Interceptors | None
    _metrics: ConsumerMetrics

    def __init__(
        self,
        config: ConsumerConfig,
        environment: Environment,
        assignors: Collection[Assignor],
        make_driver: Callable[[Components, Callbacks], Driver],
        make_callbacks: Callable[[Components], Callbacks] = Callbacks,
        *,
        deferred: bool = False,
    ) -> None:
        parts = Components(config, environment, assignors, deferred=deferred)
        callbacks = make_callbacks(parts)
        driver = make_driver(parts, callbacks)
        super().__init__(parts, driver, callbacks, NOTHING, config.max_poll_interval_ms)
        self.changing = parts.changing
        self.status = StatusView(parts)
        self.interceptors = Interceptors(config.interceptors) if config.interceptors else None
        self._config = config
        parts.collector.set_unlocked(partial(Unlocked, parts))
        self._metrics = ConsumerMetrics(parts.metrics)
        self.polls = self._metrics.polls
        self.operations = Operations(parts, self.callbacks, self._metrics, self.driver)
        if parts.group is not None:
            callbacks, interceptors, on_commit = self.callbacks, self.interceptors, config.on_commit
            parts.group.commits.set_listeners(
                on_committed=None if interceptors is None else partial(callbacks.committed, interceptors.committed),
                on_auto_commit=None if on_commit is None else partial(callbacks.commit_finished, on_commit),
            )

    # --- poll ------------------------------------------------------------------------------------------------------

    def _intercepted_outside(self, records: ConsumerRecords) -> ConsumerRecords:
        """Run the interceptors while signal handlers are not deferred. Returns their result."""
        with HandlersRunning():
            return self._intercepted(records)

    def _intercepted(self, records: ConsumerRecords) -> ConsumerRecords:
        """Run the interceptors. Returns their result. Raises ForkedConsumerError in a child that one of them forked."""
        if self.interceptors is not None:
            records = self.interceptors.consumed(records)
        if self._forks != fork_count():
            raise ForkedConsumerError(FORKED)
        return records

    def poll_steps(
        self, timeout_ms: float, max_records: int, max_bytes: int | None = None
    ) -> Operation[ConsumerRecords]:
        """Returns the result of `poll`. This is a whole poll as one operation, for operations that poll."""
        delivery, lock = self.delivery, self.lock
        records = self.poll_without_wait(timeout_ms, max_records, max_bytes)
        if records is None:
            records = yield from self.poll_operation(timeout_ms, max_records, max_bytes)
        while records and lock.version != delivery.version:
            records = self.recheck(records)
        delivery.open = False
        lock.version += 1
        return records

    def poll_operation(
        self, timeout_ms: float, max_records: int, max_bytes: int | None = None
    ) -> Operation[ConsumerRecords]:
        """Returns the operation that continues a poll for which `poll_without_wait` has returned None."""
        timer = Timer(self._clock, timeout_ms)
        wait = self.wait_in_flight(timer)
        if wait is not None:
            yield wait
            records = self.records_of_wait(max_records, max_bytes)
            if records is not None:
                return records
        return (yield from self._poll_full(timer, max_records, max_bytes))

    def _poll_full(self, timer: Timer, max_records: int, max_bytes: int | None) -> Operation[ConsumerRecords]:
        """Returns buffered records, after it has polled the managers and run the callbacks that are due.

        Repeats this until there are records or the timer has expired. Then the result is empty.
        """
        driver = self.driver
        self._last_poll_empty = False
        if self.callbacks.commits_pending:
            yield from self.callbacks.run_commits()
        self._begin_poll()
        if not self._ready_to_poll:  # a commit callback closed the consumer, or unsubscribed
            return ConsumerRecords.EMPTY
        wait = POLL_AT_ONCE
        while True:
            driver.raise_wakeup()
            yield wait
            if self.callbacks.due or self.callbacks.unfinished:
                yield from self._run_callbacks()
            if self.callbacks.commits_pending:
                yield from self.callbacks.run_commits()
            if not self._ready_to_poll:  # a callback or a signal handler unsubscribed or closed the consumer
                return ConsumerRecords.EMPTY
            driver.raise_errors(positions=True)
            self.polls.wait_ended(self._clock.now())
            records = self._collect(max_records, max_bytes)
            if records is not None:
                return records
            self._raise_lasting_error()
            if timer.expired:
                self._last_poll_empty = True
                return self.components.collector.passed()
            wait = Wait(timer.deadline, joining=True, fetching=True)

    def _raise_lasting_error(self) -> None:
        """Raise the error of a partition if only the user can resolve it. Every poll without records calls this."""
        error = self.components.offsets.lasting_error()
        if error is not None:
            raise error

    def _begin_poll(self) -> None:
        group = self.components.group
        if group is None:
            return
        with self.changing():
            group.heartbeat.poll_started(self._clock.now())
            if self.components.subscription.is_group_managed:
                self.driver.keep_alive()

    def _run_callbacks(self) -> Operation[None]:
        """Run the rebalance callbacks that are due. After the last one, raises the first error."""
        try:
            yield from self.callbacks.run_due()
        finally:
            self.driver.request_manager_poll()

    def recheck(self, records: ConsumerRecords) -> ConsumerRecords:
        """Returns those records of the running poll that may still be returned, because its consumer was used since it
        has taken them."""
        try:
            with self.changing():
                records = self.components.collector.recheck(records)
                self.delivery.version = self.lock.version
                self.driver.request_manager_poll()
        except BaseException:
            self.rollback_open()
            raise
        return records

    def _take_over(self) -> None:
        """Restore the positions of the poll that runs the user code which polls now. This poll takes its records.

        Raises StateError inside a deserializer, because its batch is incomplete.
        """
        if self.components.collector.busy:
            raise StateError("poll() cannot be called inside a deserializer, nor by a signal handler that runs in one")
        self.rollback_last_poll()

    def rollback_open(self) -> None:
        """Restore the positions from before the running poll, if it has taken records.

        Does nothing while a deserializer runs: the exception is that of a poll which the deserializer has called, and
        not of the poll that has taken the records.
        """
        if self.delivery.open and not self.components.collector.busy:
            self.rollback_last_poll()

    def take_back(self, records: ConsumerRecords | RecordBatch) -> None:
        """Restore the positions from before the poll that has returned these records, which did not reach the user.

        Does nothing if another poll has taken records since.
        """
        ends = {tp: position.offset for tp, position in self.delivery.after.items()}
        if ends == {tp: position.offset for tp, position in records.next_offsets().items()}:
            self.rollback_last_poll()

    def rollback_last_poll(self) -> None:
        """Restore the positions from before the last poll. Used if its records did not reach the user.

        Does nothing in a forked child, in which the poll of its parent ends.
        """
        if self._forks != fork_count():
            return
        with self.changing():
            self.components.collector.rollback()
            self.driver.request_manager_poll()

    # --- subscription ----------------------------------------------------------------------------------------------

    def subscription_changed(self, listener: RebalanceListener | None) -> None:
        """Set the listener, let the next poll join the group, and request metadata of new topics."""
        self.callbacks.set_listener(listener)
        self.assignment_changed()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the manual assignment. The caller holds the lock.

        If an auto-commit is due, it is started first (Java `maybeAutoCommitOffsetsAsync`): no rebalance follows that
        would commit the positions of the partitions which this drops.
        """
        subscription = self.components.subscription
        if subscription.kind is SubscriptionKind.ASSIGNED:
            self._commit_if_due()
        subscription.assign(partitions)
        self.assignment_changed()

    def _commit_if_due(self) -> None:
        """Start an auto-commit if it is due, without waiting for its response."""
        group = self.components.group
        if group is not None and group.commits.maybe_auto_commit(self._clock.now()):
            self.driver.flush_managers(group.commits, group.coordinator)

    def assignment_changed(self) -> None:
        """Request metadata of new topics, and make the next `poll` poll all managers."""
        self.driver.request_manager_poll()
        self.components.metadata.request_new_topics()

    @property
    def _ready_to_poll(self) -> bool:
        """True if there is a subscription or an assignment."""
        return self.components.subscription.kind is not NOTHING

    def seek(self, tp: TopicPartition, target: OffsetAndMetadata) -> None:
        """Move the position of a partition to `target`. The caller holds the lock."""
        cluster = self.components.cluster
        self.components.metadata.update_last_seen_epoch(tp, target.leader_epoch)
        leader = cluster.leader(tp)
        self.components.positions.seek(tp, target.offset, target.leader_epoch, leader)
        self.delivery.forget(tp)
        self.driver.request_manager_poll()

    def rewind(self, offsets: Mapping[TopicPartition, int], records: ConsumerRecords) -> None:
        """Seek back to these offsets in the last batch, `records`, and keep what is stored. Skips partitions that are
        no longer assigned.

        The caller holds the lock.
        """
        self.components.collector.record_cut(offsets, records)
        for tp, offset in offsets.items():
            state = self.components.assignment.find(tp)
            if state is not None:
                stored = state.stored
                self.seek(tp, OffsetAndMetadata(offset))
                state.keep_stored(stored)

    def shorten(self, offsets: Mapping[TopicPartition, int], records: ConsumerRecords) -> None:
        """End the running poll's batch, `records`, at these offsets: its records from there on are not returned."""
        before = self.lock.version
        with self.changing():
            self.components.collector.shorten(offsets, records)
            self.driver.request_manager_poll()
            if self.delivery.version == before and self.lock.version == before + 1:  # no other thread in between
                self.delivery.version = self.lock.version

    def resumed(self) -> None:
        """Make buffered data of resumed partitions available to polls again. The caller holds the lock."""
        self.components.buffer.restore_paused()
        self.driver.request_manager_poll()

    def enforce_rebalance(self, reason: str) -> None:
        """Make the next poll rejoin the group. Raises StateError without a group."""
        with self.changing():
            self.operations.group().member.request_rejoin(reason)

    # --- offsets ---------------------------------------------------------------------------------------------------

    def consumed_before(self, unseen: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit while a `for` loop is in the middle of a batch, or the stored offsets.

        `unseen` maps partitions to the first offset that the loop has not reached. This offset replaces the position of
        the partition. Partitions without a position are left out.
        """
        with self.lock:
            consumed = self.components.positions.all_consumed()
        if not self.components.positions.auto_store:
            return consumed
        return consumed | {tp: OffsetAndMetadata(offset) for tp, offset in unseen.items() if tp in consumed}

    # --- lag, group, metrics ---------------------------------------------------------------------------------------

    def current_lag(self, tp: TopicPartition) -> int | None:
        """Returns the end offset minus the position. If the end offset is unknown, requests it, and returns None."""
        with self.changing():
            lag = self.components.assignment.get(tp).lag(self._config.read_committed)
            if lag is None:
                self.components.offsets.request_end_offset(tp)
                self.driver.request_manager_poll()
            return lag

    def group_metadata(self) -> GroupMetadata:
        """Returns the group id, generation and member id. Raises StateError without a group."""
        return self.operations.group().membership.group_metadata()

    def metrics(self) -> MetricValues:
        """Returns a snapshot of all metrics."""
        with self.lock:
            self.polls.settle()
            return self.components.metrics.snapshot(self._clock.now())

    # --- ending ----------------------------------------------------------------------------------------------------

    def close(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> None:
        """Run the steps of CloseSequence: commit, leave the group, close the connections.

        The timer limits the total duration of the steps. Every step runs, and the first error is raised at the end. If
        an exception has interrupted an earlier change of the state, nothing is sent, because the positions may be
        wrong.
        """
        self._closing = True
        self.components.fetch.continue_to(0.0)
        interrupted = self._release_interrupted()
        if self._take_network(timer):
            self.operations.driver = self.driver
            if not interrupted:
                self.run(CloseSequence(self, self.driver, timer).run(leave_group, auto_commit=auto_commit))
                return
            self.driver.stop()
            self.components.client.close()
        self.ended()

    def _leave_dropped(self, driver: Driver, limit: Timer) -> Operation[None]:
        group = self.components.group
        if group is None or not self.components.subscription.is_group_managed:
            return
        self.operations.driver = driver
        group.membership.leave_callback()  # it is not called: the application has no reference to the consumer
        self.operations.send_leave("the consumer was not closed", None, closing=True)
        promise = self.operations.leave_promise
        while promise is not None and not promise.done and not limit.expired:
            yield Wait(limit.deadline, promise, managers=False)

    def ended(self) -> None:
        """Mark the consumer as closed, so that waiting calls raise StateError. Close interceptors and reporters."""
        if self.interceptors is not None:
            self.interceptors.close()
        super().ended()
